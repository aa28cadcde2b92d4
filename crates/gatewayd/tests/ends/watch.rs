//! Measures how long the daemons take to answer a request: one that gets no processor sends nothing either.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::ends::World;
use crate::ends::satellite::now;

/// Longest time to an answer of a daemon that is in time.
pub const IN_TIME: Duration = Duration::from_millis(20);

/// Sends requests to both daemons until dropped. They serve metrics on port 9180.
pub struct Watch {
    /// Longest time to an answer [ns].
    longest: Arc<AtomicU64>,
    /// Time in which a daemon did not answer in time [ns].
    stalled: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Watch {
    /// Starts to send requests.
    pub fn start(world: &World) -> Self {
        let watch = Self { longest: Arc::default(), stalled: Arc::default(), stop: Arc::default() };
        for end in &world.ends {
            let [longest, stalled] = [&watch.longest, &watch.stalled].map(Arc::clone);
            let stop = Arc::clone(&watch.stop);
            end.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let begin = now();
                    if let Ok(mut stream) = TcpStream::connect("127.0.0.1:9180") {
                        let _ = stream.write_all(b"GET /none HTTP/1.1\r\n\r\n");
                        let _ = stream.read_to_end(&mut Vec::new());
                    }
                    let took = begin.elapsed();
                    longest.fetch_max(took.as_nanos() as u64, Ordering::Relaxed);
                    stalled.fetch_add(took.saturating_sub(IN_TIME).as_nanos() as u64, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(10));
                }
            });
        }
        watch
    }

    /// Longest time to an answer since the last call.
    pub fn longest(&self) -> Duration {
        // A request in progress ends.
        thread::sleep(IN_TIME);
        Duration::from_nanos(self.longest.swap(0, Ordering::Relaxed))
    }

    /// Time in which a daemon did not answer in time, since the last call.
    pub fn stalled(&self) -> Duration {
        Duration::from_nanos(self.stalled.swap(0, Ordering::Relaxed))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
