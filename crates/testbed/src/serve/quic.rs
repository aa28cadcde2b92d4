//! Servers over QUIC: answer every request on its stream.

use std::error::Error;
use std::net::SocketAddr;

use bentpipe_quic::Chunk;

use super::Servers;
use crate::plan::Plan;
use crate::quic::request::Inbox;
use crate::quic::{Ends, transport};
use crate::reactor::Reactor;
use crate::table::Token;

/// Length of an endless object [bytes]: more than any run transfers.
const ENDLESS: u64 = u64::MAX / 8;

/// Requests on the streams of a connection.
#[derive(Debug, Default)]
pub(super) struct Streams {
    inboxes: Vec<Stream>,
}

#[derive(Debug, Default)]
struct Stream {
    inbox: Inbox,
    is_finished: bool,
}

/// Opens a socket for each address of each workload's servers; returns their number.
pub(super) fn listen(
    plan: &Plan,
    ends: &mut Ends<Streams>,
    reactor: &Reactor,
) -> Result<usize, Box<dyn Error>> {
    let mut opened = 0;
    for (id, workload) in plan.workloads().filter(|(_, workload)| transport(plan, workload).is_some()) {
        let traffic = plan.traffic(workload);
        let Some(hosts) = &plan.hosts[traffic.from.0] else { continue };
        let addresses = hosts.addresses.iter().flatten().filter(|address| address.is_ipv6() == workload.ipv6);
        for address in addresses {
            let local = SocketAddr::new(*address, workload.port);
            ends.listen(reactor, local, id, traffic.dscp)
                .map_err(|e| format!("traffic.{}: UDP socket {local}: {e}", traffic.name))?;
            opened += 1;
        }
    }
    Ok(opened)
}

impl Servers<'_> {
    /// Handles the connections that have received something, or whose timers are due.
    pub(super) fn on_quic(&mut self, active: &mut Vec<Token>) {
        let now = self.endpoint.now;
        for token in active.drain(..) {
            if let Some(end) = self.quic.get(token)
                && !end.app.answer(&mut end.quic)
            {
                end.quic.abort(now);
            }
            self.quic.flush(token, now);
        }
    }
}

impl Streams {
    /// Answers the requests that have arrived; false if a client sends anything else.
    fn answer(&mut self, quic: &mut bentpipe_quic::Connection) -> bool {
        for Chunk { stream, at, bytes } in quic.take_chunks() {
            self.inboxes.resize_with(self.inboxes.len().max(stream + 1), Stream::default);
            if !self.inboxes[stream].inbox.receive(at, &bytes) {
                return false;
            }
        }
        for (at, stream) in self.inboxes.iter_mut().enumerate().filter(|(_, stream)| !stream.is_finished) {
            while let Some((len, bytes)) = stream.inbox.take(quic.readable(at)) {
                quic.read(at, len);
                quic.write(at, bytes.unwrap_or(ENDLESS));
            }
            if quic.peer_finished(at) && quic.readable(at) == 0 {
                quic.finish(at);
                stream.is_finished = true;
            }
        }
        true
    }
}
