//! Fetching data into the processor's cache before they are used.

/// Bytes of a cache line.
const CACHE_LINE: usize = 64;

/// Begins to fetch an item into the cache, as a hint that changes nothing else.
#[inline(always)]
pub fn prefetch<T>(item: &T) {
    for offset in (0..size_of::<T>()).step_by(CACHE_LINE) {
        prefetch_line(std::ptr::from_ref(item).cast::<i8>().wrapping_add(offset));
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
