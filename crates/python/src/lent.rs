//! A value that is accessible from several threads, one at a time, while a call lasts.

#[cfg(loom)]
use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicPtr, Ordering},
};
use std::ptr;
#[cfg(not(loom))]
use std::{
    hint::spin_loop,
    sync::atomic::{AtomicPtr, Ordering},
};

/// Place of a lent value. `loom` checks it with every order of events (`make loom`). Every access is a swap, which sees and is seen
/// by the next one, so that no wait lasts longer than the use by another thread.
pub struct Lent<T> {
    /// Null between calls, and while a thread uses the value.
    at: AtomicPtr<T>,
}

impl<T> Default for Lent<T> {
    fn default() -> Self {
        Self { at: AtomicPtr::new(ptr::null_mut()) }
    }
}

impl<T> Lent<T> {
    /// Runs `call` with the value at `at` accessible; returns once no other thread uses it.
    ///
    /// # Safety
    /// Until it returns, `at` has to be valid, and nothing else may use the value.
    #[allow(unsafe_code)]
    pub unsafe fn lend<R>(&self, at: *mut T, call: impl FnOnce() -> R) -> R {
        self.at.swap(at, Ordering::Release);
        let done = call();
        // Another thread started by the algorithm may be using it.
        while self.at.swap(ptr::null_mut(), Ordering::Acquire).is_null() {
            spin_loop();
        }
        done
    }

    /// Applies `read` to the value; `None` if none is lent, or another thread uses it.
    pub fn look<R>(&self, read: impl FnOnce(&mut T) -> R) -> Option<R> {
        let shown = self.at.swap(ptr::null_mut(), Ordering::Acquire);
        if shown.is_null() {
            return None;
        }
        // SAFETY: the pointer is that of `lend`, whose caller promises that it is valid until `lend` returns, which waits until
        // the pointer is back. While it is taken out here, no other `look` can get it.
        #[allow(unsafe_code)]
        let found = read(unsafe { &mut *shown });
        self.at.swap(shown, Ordering::Release);
        Some(found)
    }
}
