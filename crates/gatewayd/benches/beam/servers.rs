//! Servers that send without end, on one thread.

use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{Backlog, listen};

use crate::common::Namespace;

/// Length of the bytes that are repeated.
pub const BLOCK: usize = 1 << 16;

/// The bytes that are repeated.
pub fn block() -> Vec<u8> {
    (0..BLOCK).map(|n| (n % 251) as u8).collect()
}

/// Counters of the servers.
#[derive(Clone, Default)]
pub struct Counters(Arc<AtomicU64>);

impl Counters {
    /// Connections that failed.
    pub fn failed(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Serves port 80 of 10.1.0.1.
pub fn serve(namespace: &Namespace) -> Counters {
    let counters = Counters::default();
    let (ours, (started, listening)) = (counters.clone(), channel());
    namespace.spawn(move || {
        let listener = TcpListener::bind("10.1.0.1:80").expect("a listener");
        // All connections may come before this thread has a processor.
        listen(&listener, Backlog::new(4096).expect("a length")).expect("a longer queue");
        listener.set_nonblocking(true).expect("an option");
        started.send(()).expect("a receiver");
        run(&listener, &ours);
    });
    listening.recv().expect("a listener");
    counters
}

fn run(listener: &TcpListener, counters: &Counters) {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("epoll");
    epoll.add(listener.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, 0)).expect("epoll");
    let block = block();
    let mut streams: Vec<Option<(TcpStream, usize)>> = vec![None];
    let mut events = vec![EpollEvent::empty(); 256];
    loop {
        let count = match epoll.wait(&mut events, EpollTimeout::NONE) {
            Ok(count) => count,
            Err(_) => continue,
        };
        for event in &events[..count] {
            let number = event.data() as usize;
            if number == 0 {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true).expect("an option");
                    let flags = EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
                    epoll.add(stream.as_fd(), EpollEvent::new(flags, streams.len() as u64)).expect("epoll");
                    streams.push(Some((stream, 0)));
                }
                continue;
            }
            let Some((stream, at)) = &mut streams[number] else { continue };
            loop {
                match stream.write(&block[*at..]) {
                    Ok(written) => *at = (*at + written) % BLOCK,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(_) => {
                        counters.0.fetch_add(1, Ordering::Relaxed);
                        streams[number] = None;
                        break;
                    }
                }
            }
        }
    }
}
