//! The netfilter side of the gateway: queued packets, their verdicts, and the windows advertised to servers.

use std::io;
use std::net::SocketAddr;

use crate::intercept::inject::Injector;
use crate::intercept::nfqueue::{PacketId, Queue, Verdict};
use crate::intercept::windows::Windows;

/// Batches read from a queue in one turn.
const MOST_BATCHES: usize = 4;

/// Verdict on a packet that waited in the gateway.
#[derive(Debug)]
pub enum Held {
    /// Forward it as it is.
    Accept,
    /// Forward it with these bytes.
    AcceptChanged(Vec<u8>),
    /// Drop it.
    Drop,
}

/// Netfilter queues with the verdicts that are due, and the windows of servers. Empty at a terminal.
#[derive(Debug, Default)]
pub struct Interceptor {
    /// Packets for clients.
    pub packets: Option<Queue>,
    /// This host's packets to servers, where windows are cut; `None` without window marking.
    pub acks: Option<Queue>,
    /// Sends window updates.
    pub injector: Option<Injector>,
    /// Windows that servers were offered.
    pub windows: Windows,
    verdicts: Vec<(PacketId, Held)>,
    update: Vec<u8>,
}

impl Interceptor {
    /// Reads packets for clients, at most `MOST_BATCHES` batches, and has `each` decide.
    ///
    /// The queue is the caller's meanwhile (see [`Self::packets`]), so that `each` can use everything else.
    pub fn receive(
        queue: &mut Queue,
        each: &mut dyn FnMut(PacketId, &mut [u8]) -> Verdict,
    ) -> io::Result<()> {
        for _ in 0..MOST_BATCHES {
            if queue.receive(each)? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Decides about a packet that waited. The kernel learns of it with [`Self::flush_verdicts`].
    pub fn decide(&mut self, id: PacketId, verdict: Held) {
        self.verdicts.push((id, verdict));
    }

    /// Tells the kernel all verdicts; `recycle` takes buffers back.
    pub fn flush_verdicts(&mut self, mut recycle: impl FnMut(Vec<u8>)) -> io::Result<()> {
        let Some(queue) = &mut self.packets else { return Ok(()) };
        for (id, verdict) in self.verdicts.drain(..) {
            match verdict {
                Held::Accept => queue.accept(id),
                Held::AcceptChanged(bytes) => {
                    queue.accept_changed(id, &bytes);
                    recycle(bytes);
                }
                Held::Drop => queue.drop_packet(id),
            }
        }
        queue.flush()
    }

    /// Reads this host's packets to servers and cuts their windows to `room(client, server)` [bytes]. Returns how many
    /// windows were cut, and the result of reading and of the verdicts.
    pub fn cut_windows(
        &mut self,
        room: &mut dyn FnMut(SocketAddr, SocketAddr) -> Option<u64>,
    ) -> (u64, io::Result<()>, io::Result<()>) {
        let Some(queue) = &mut self.acks else { return (0, Ok(()), Ok(())) };
        let (windows, mut cut) = (&mut self.windows, 0);
        let read = Self::receive(queue, &mut |_, packet| {
            if windows.outgoing(packet, room) {
                cut += 1;
                Verdict::Changed
            } else {
                Verdict::Accept
            }
        });
        (cut, read, queue.flush())
    }

    /// Sends a server a window update for `room` [bytes] if it needs one; `None` if it does not.
    pub fn send_window_update(
        &mut self,
        client: SocketAddr,
        server: SocketAddr,
        room: u64,
    ) -> Option<io::Result<()>> {
        let injector = self.injector.as_ref()?;
        let needed = self.windows.update(client, server, room, &mut self.update);
        needed.then(|| injector.send(&self.update))
    }
}
