//! The simulator's context, lent to an AQM in Python, under every order of two threads' events.
#![cfg(loom)]

#[path = "../../src/lent.rs"]
mod lent;

#[cfg(test)]
mod tests {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    use crate::lent::Lent;

    /// A thread that an algorithm started looks during two calls, after them and between them; the simulator changes the value
    /// between the calls. loom panics if two threads use the value at a time, or one of them sees an old one.
    #[test]
    fn nobody_uses_a_value_that_another_thread_has() {
        loom::model(|| {
            let lent = Arc::new(Lent::<UnsafeCell<u32>>::default());
            let mut value = Box::new(UnsafeCell::new(0));
            let other = {
                let lent = Arc::clone(&lent);
                thread::spawn(move || {
                    // SAFETY: `look` has the value alone.
                    let add = |value: &mut UnsafeCell<u32>| value.with_mut(|at| unsafe { *at += 10 });
                    [lent.look(add), lent.look(add)].into_iter().flatten().count()
                })
            };
            let mut looks = 0;
            for _ in 0..2 {
                // SAFETY: `value` lives until the end, and is used through `lent` only.
                unsafe {
                    lent.lend(&mut *value, || {
                        looks += lent.look(|value| value.with_mut(|at| *at += 1)).is_some() as u32;
                    });
                }
                // SAFETY: nobody else has it between calls.
                value.with_mut(|at| unsafe { *at += 100 });
            }
            let others = other.join().unwrap() as u32;
            // SAFETY: the other thread has ended.
            let sum = value.with(|at| unsafe { *at });
            assert_eq!(sum, 200 + looks + 10 * others);
        });
    }
}
