//! Endpoints: the hosts' transports, and the slots that tie them to flows.
//!
//! Each transport has a table of its ends. It handles what arrives, schedules its timers, and gives the packets that it
//! wants to send; the engine puts these on the network.

pub mod quic;
pub mod rtp;
pub mod sctp;
mod slot;
mod stream;
pub mod tcp;
mod units;

use crate::ids::{IdVec, SlotId};

pub use slot::{
    Departures, Direction, FlowSlot, HostMember, Joint, Layout, LegLayout, LinkStep, Member, OwnDelay, Owner,
    Pass, Phase, Place, QueuesOf, Step, Transfer,
};

pub use stream::ByteStream;
pub use units::UnitsInFlight;

/// All endpoints of a run.
#[derive(Default)]
pub struct Endpoints {
    pub slots: IdVec<SlotId, FlowSlot>,
    pub tcp: tcp::TcpEnds,
    pub quic: quic::QuicEnds,
    pub sctp: sctp::SctpEnds,
    pub rtp: rtp::RtpSessions,
}
