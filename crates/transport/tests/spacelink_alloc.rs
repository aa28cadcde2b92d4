//! A flow allocates nothing per packet, with losses or without.

#![allow(unsafe_code)] // an allocator cannot be counted otherwise

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;

use bentpipe_transport::spacelink::{Config, Data, Endpoint, Event};
use bentpipe_units::{Duration, Instant};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator; counting touches no memory of its own making.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Passes packets from the first end to the second, 500 under way, until `packets` were sent; loses every `lose`-th.
fn exchange(ends: &mut [Endpoint; 2], way: &mut VecDeque<Data>, now: &mut Instant, packets: u64, lose: u64) {
    let [near, far] = ends;
    for n in 0..packets {
        *now += Duration::from_millis(1);
        way.extend(near.poll_data(*now));
        if way.len() >= 500
            && let Some(data) = way.pop_front()
            && n % lose != lose - 1
        {
            far.on_data(*now, &data);
        }
        while let Some(event) = far.poll_event() {
            if let Event::Readable { stream, bytes } = event {
                far.consume(stream, bytes);
            }
        }
        while let Some(ack) = far.poll_ack(*now) {
            near.on_ack(*now, &ack);
        }
        for end in [&mut *near, &mut *far] {
            end.on_timer(*now);
            while end.poll_event().is_some() {}
        }
    }
}

#[test]
fn a_flow_allocates_nothing_per_packet() {
    for lose in [u64::MAX, 50, 7] {
        let cfg = Config { stream_window: 1 << 20, ..Config::default() };
        let mut ends = [Endpoint::new(cfg.clone()), Endpoint::new(cfg)];
        for s in 0..10 {
            ends[0].open(s);
            ends[0].write(s, 1 << 40);
        }
        let (mut way, mut now) = (VecDeque::with_capacity(1000), Instant::ZERO);
        // Heavier losses first, so that every queue has grown to what it will need.
        exchange(&mut ends, &mut way, &mut now, 40_000, 3);
        let before = ALLOCATIONS.with(Cell::get);
        let sent = ends[0].stats().sent;
        exchange(&mut ends, &mut way, &mut now, 50_000, lose);
        assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0, "every {lose}th lost");
        assert!(ends[0].stats().sent - sent > 40_000, "{:?}", ends[0].stats());
    }
}
