//! Memory of large tables: pages, and what is fetched into the processor's cache.
//!
//! All that is here are hints, without which a run takes longer and is otherwise the same.

use std::mem::MaybeUninit;

/// Bytes of a cache line.
const CACHE_LINE: usize = 64;

/// Bytes from which on a table gets large pages: two of them on most processors.
const LARGE: usize = 4 << 20;

/// Makes room in a table, whose memory has large pages if it is large: a table of many small pages makes the processor look up
/// the place of nearly each one that it uses.
#[cold]
pub fn grow<T>(table: &mut Vec<T>) {
    let capacity = 2 * table.capacity();
    if capacity.saturating_mul(size_of::<T>()) >= LARGE {
        let mut larger = Vec::with_capacity(capacity);
        advise_large_pages(larger.spare_capacity_mut());
        larger.append(table);
        *table = larger;
    }
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn advise_large_pages<T>(room: &mut [MaybeUninit<T>]) {
    // Large pages are aligned to their own length, which is a multiple of that of any other.
    const ALIGNMENT: usize = 2 << 20;
    let begin = room.as_mut_ptr().cast::<u8>();
    let skipped = begin.align_offset(ALIGNMENT);
    let length = size_of_val(room).saturating_sub(skipped) / ALIGNMENT * ALIGNMENT;
    if length > 0 {
        // SAFETY: the range is within the room, and the call changes how the kernel provides it, not what it holds.
        unsafe { libc::madvise(begin.wrapping_add(skipped).cast(), length, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn advise_large_pages<T>(_: &mut [MaybeUninit<T>]) {}

/// Begins to fetch an item into the cache, as a hint that changes nothing else.
#[inline(always)]
pub fn prefetch<T>(item: &T) {
    let start = std::ptr::from_ref(item).cast::<i8>();
    for offset in (0..size_of::<T>()).step_by(CACHE_LINE) {
        prefetch_line(start.wrapping_add(offset));
    }
    if align_of::<T>() < CACHE_LINE {
        // The last byte may be on another line.
        prefetch_line(start.wrapping_add(size_of::<T>().saturating_sub(1)));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[allow(unsafe_code)]
fn prefetch_line(address: *const i8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction is a hint. It does not access memory as the program sees it, and no address makes it fail.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn prefetch_line(_: *const i8) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_keeps_its_items_while_it_grows_beyond_a_large_page() {
        let mut table = Vec::new();
        for item in 0..2_000_000_u64 {
            if table.len() == table.capacity() {
                grow(&mut table);
            }
            table.push(item);
        }
        assert!(table.iter().copied().eq(0..2_000_000));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_large_table_asks_for_large_pages() {
        const SUPPORT: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
        if !std::fs::exists(SUPPORT).unwrap_or(false) {
            return;
        }
        let mut table = vec![0_u8; 8 << 20];
        grow(&mut table);
        let middle = table.as_ptr() as usize + table.capacity() / 2;
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_there = false;
        for line in maps.lines() {
            let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let bounds = range.map(|(a, b)| [a, b].map(|text| usize::from_str_radix(text, 16)));
            if let Some([Ok(begin), Ok(end)]) = bounds {
                is_there = (begin..end).contains(&middle);
            } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_there) {
                return assert!(flags.split_whitespace().any(|flag| flag == "hg"), "{flags}");
            }
        }
        panic!("the table is in no mapping:\n{maps}");
    }
}
