//! RTP over UDP with RTCP (RFC 3550), and a rate that adapts to the reported loss, or to delay and loss.
//!
//! A [`Sender`] numbers and timestamps the packets of one medium, and a [`Receiver`] keeps the statistics and reports
//! them every [`Config::rtcp_interval`]. Both send RTCP: the host calls [`Sender::poll_report`] at
//! [`Sender::next_report`] and [`Receiver::poll_report`] at [`Receiver::next_report`]. Payload is virtual.
//!
//! The rate: Busse, Deffner & Schulzrinne, *Dynamic QoS control of multimedia applications based on RTP*, Computer
//! Communications 19 (1996), a linear regulator with a dead zone. For each report with a loss fraction b
//!
//! ```text
//! lambda <- (1 - alpha) lambda + alpha b
//! lambda >= congested:  rate <- max(decrease * rate, min_rate)
//! lambda <= unloaded:   rate <- min(rate + increase, max_rate)
//! ```
//!
//! and in between the rate is unchanged. NADA (RFC 8698) is in `nada`. *Departures*: the RTCP interval is fixed and the same for both ends, where RFC
//! 3550 section 6.2 makes it grow with the session and randomizes it; there are two members, one of them silent; no BYE
//! is sent.
//!
//! | file | contents | source |
//! |---|---|---|
//! | `packet` | packets and reports, and their lengths | RFC 3550 sections 5.1, 6.4, 6.5 |
//! | `sender` | sequence numbers, sender reports, RTT, rate | RFC 3550 sections 5.1, 6.4.1; Busse et al. |
//! | `nada` | congestion signal of the receiver, rate of the sender | RFC 8698 |
//! | `receiver` | statistics and receiver reports | RFC 3550 section 6.4, appendices A.1, A.3, A.8 |

mod config;
mod nada;
mod packet;
mod receiver;
mod sender;

pub use config::{Adaptation, Config};
pub use nada::{Feedback, Nada};
pub use packet::{Packet, ReceiverReport, ReportBlock, SenderReport};
pub use receiver::Receiver;
pub use sender::Sender;
