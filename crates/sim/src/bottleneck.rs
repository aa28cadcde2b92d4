//! Resources that limit flows.

/// The resource that limits a flow over TCP or QUIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bottleneck {
    /// The sending application: everything that it has written was sent.
    Sender,
    /// A handshake, or a congestion window that grows before the first loss.
    StartUp,
    /// The receiving host's window.
    ReceiveWindow,
    /// The PEP's buffer, of which the gateway's receive window is the free part.
    PepBuffer,
    /// The window of the spacelink, or of its stream.
    SpacelinkWindow,
    /// The satellite link: its queue, or the AQM that acts for it.
    Carrier,
    /// Any other link (an index of the scenario's).
    Link(u32),
    /// Losses on a link that is not full.
    Loss,
}
