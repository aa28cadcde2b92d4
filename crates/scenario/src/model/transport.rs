//! Transports.

use std::fmt;

pub use bentpipe_transport::tcp::Algorithm as Congestion;
use bentpipe_units::{Duration, Rate};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::canonical::{congestion, is_zero};

/// A transport.
#[derive(Clone, Debug)]
pub enum Transport {
    /// TCP.
    Tcp(Box<Tcp>),
    /// SCTP.
    Sctp(Box<Sctp>),
    /// RTP over UDP.
    Rtp(Box<Rtp>),
    /// QUIC.
    Quic(Box<Quic>),
}

impl Transport {
    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Tcp(t) => &t.name,
            Self::Sctp(t) => &t.name,
            Self::Rtp(t) => &t.name,
            Self::Quic(t) => &t.name,
        }
    }

    /// Returns the TCP configuration; `None` for other protocols.
    #[must_use]
    pub fn tcp(&self) -> Option<&Tcp> {
        match self {
            Self::Tcp(t) => Some(t),
            _ => None,
        }
    }

    /// Returns the protocol's name in a scenario file.
    #[must_use]
    pub fn protocol(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp",
            Self::Sctp(_) => "sctp",
            Self::Rtp(_) => "rtp",
            Self::Quic(_) => "quic",
        }
    }

    /// Returns the length of a full packet on the wire [bytes]; `None` if the source determines packet lengths.
    #[must_use]
    pub fn full_packet(&self) -> Option<u64> {
        match self {
            Self::Tcp(t) => Some(t.full_segment()),
            Self::Sctp(t) => Some(t.pmtu),
            Self::Rtp(_) => None,
            Self::Quic(t) => Some(t.max_udp_payload + t.udp_header),
        }
    }
}

impl Serialize for Transport {
    /// Serializes TCP without the protocol's name.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Named<'a, T> {
            protocol: &'static str,
            #[serde(flatten)]
            of: &'a T,
        }
        match self {
            Self::Tcp(t) => t.serialize(to),
            Self::Sctp(t) => Named { protocol: "sctp", of: t.as_ref() }.serialize(to),
            Self::Rtp(t) => Named { protocol: "rtp", of: t.as_ref() }.serialize(to),
            Self::Quic(t) => Named { protocol: "quic", of: t.as_ref() }.serialize(to),
        }
    }
}

/// TCP.
#[derive(Clone, Debug, Serialize)]
pub struct Tcp {
    /// Name.
    pub name: String,
    /// Congestion control.
    #[serde(serialize_with = "congestion")]
    pub algorithm: Congestion,
    /// Maximum segment size: payload of a full segment [bytes].
    pub mss: u64,
    /// Headers of a segment on the wire, all layers [bytes].
    pub header: u64,
    /// True if TCP options add to the length on the wire.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub option_bytes: bool,
    /// Initial window [segments].
    pub initial_window: u32,
    /// Receive window [bytes].
    pub receive_window: u64,
    /// Initial receive window if it grows [bytes].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_receive_window: Option<u64>,
    /// Upper bound of the sender's window [bytes]; `None` without a bound.
    pub max_window: Option<u64>,
    /// Initial slow start threshold [bytes]; `None` without a bound.
    pub initial_ssthresh: Option<u64>,
    /// Retransmission timeout before the first measurement.
    pub initial_rto: Duration,
    /// Minimum retransmission timeout.
    pub min_rto: Duration,
    /// Estimator of the retransmission timeout.
    #[serde(skip_serializing_if = "Rto::is_rfc6298")]
    pub rto: Rto,
    /// Maximum retransmission timeout.
    pub max_rto: Duration,
    /// Granularity of the clock that measures round-trip times.
    pub clock_granularity: Duration,
    /// True with limited transmit.
    pub limited_transmit: bool,
    /// True with selective acknowledgements and SACK-based recovery.
    pub sack: bool,
    /// True with proportional rate reduction.
    pub prr: bool,
    /// True with appropriate byte counting.
    pub abc: bool,
    /// Delayed acknowledgement timeout; `None` if every segment is acknowledged at once.
    pub delayed_ack: Option<Duration>,
    /// True if only the first partial acknowledgement restarts the retransmission timer.
    pub impatient: bool,
    /// True if congestion reduces to a share of cwnd, false if to a share of the bytes in flight.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub half_of_cwnd: bool,
    /// True with the recovery of ns-2.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ns2_recovery: bool,
    /// True if a timeout retransmits everything from the first unacknowledged segment.
    pub go_back_n: bool,
    /// True if an idle connection restarts from the initial window.
    pub slow_start_restart: bool,
    /// True with HyStart++.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hystart: bool,
    /// SEARCH ends slow start (draft-chung-ccwg-search-09).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub search: bool,
    /// True with pacing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pacing: bool,
    /// Feedback of congestion marks.
    pub ecn: Ecn,
    /// True with RACK-TLP loss detection.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rack: bool,
    /// True with Eifel detection of spurious timeouts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub eifel: bool,
    /// True with timestamps.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub timestamps: bool,
    /// Window scale shift; `None` for windows of any length without the option.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_scale: Option<u8>,
    /// Maximum random processing delay before a host sends.
    #[serde(skip_serializing_if = "is_zero")]
    pub overhead: Duration,
    /// Maximum number of SYN retransmissions.
    pub syn_retries: u32,
    /// Maximum number of retransmissions of a segment before the connection is aborted.
    pub retries: u32,
}

impl Tcp {
    /// Returns the length of a full segment on the wire [bytes].
    #[must_use]
    pub fn full_segment(&self) -> u64 {
        let timestamps = if self.option_bytes && self.timestamps { 12 } else { 0 };
        self.mss + self.header + timestamps
    }
}

/// Estimator of the retransmission timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rto {
    /// RFC 6298.
    Rfc6298,
    /// As in Linux: `min_rto` is the lower bound of the deviation term, which follows the largest deviation within a round
    /// trip.
    Linux,
    /// As in 4.4BSD and ns-2: whole ticks of `clock_granularity`, with a deviation of at least three quarters of a tick.
    Bsd,
}

impl Rto {
    fn is_rfc6298(&self) -> bool {
        *self == Self::Rfc6298
    }
}

/// Feedback of congestion marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// No ECN.
    Off,
    /// RFC 3168.
    Classic,
    /// Accurate ECN, RFC 9768.
    Accurate,
}

impl Serialize for Ecn {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => false.serialize(to),
            Self::Classic => true.serialize(to),
            Self::Accurate => "accurate".serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Ecn {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Ecn;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, \"classic\" or \"accurate\"")
            }

            fn visit_bool<E: Error>(self, on: bool) -> Result<Ecn, E> {
                Ok(if on { Ecn::Classic } else { Ecn::Off })
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Ecn, E> {
                match name {
                    "classic" => Ok(Ecn::Classic),
                    "accurate" => Ok(Ecn::Accurate),
                    _ => Err(E::invalid_value(Unexpected::Str(name), &self)),
                }
            }
        }
        from.deserialize_any(Reader)
    }
}

impl JsonSchema for Ecn {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Ecn".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "enum": [false, true, "classic", "accurate"] })
    }
}

/// QUIC, RFC 9000.
#[derive(Clone, Debug, Serialize)]
pub struct Quic {
    /// Name.
    pub name: String,
    /// Congestion control.
    #[serde(serialize_with = "congestion")]
    pub algorithm: Congestion,
    /// Longest UDP payload of a packet [bytes].
    pub max_udp_payload: u64,
    /// IP and UDP headers of a packet [bytes].
    pub udp_header: u64,
    /// Initial window [packets].
    pub initial_window: u32,
    /// Round-trip time before the first measurement.
    pub initial_rtt: Duration,
    /// HyStart++, RFC 9406.
    pub hystart: bool,
    /// SEARCH ends slow start (draft-chung-ccwg-search-09).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub search: bool,
    /// Lifetime of saved paths, RFC 9959.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub careful_resume: Option<Duration>,
    /// Lifetime of what clients need to resume, RFC 9001 section 4.6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zero_rtt: Option<Duration>,
    /// Data that a peer may send on a connection beyond what has been read [bytes].
    pub max_data: u64,
    /// Data that a peer may send on a stream beyond what has been read [bytes].
    pub max_stream_data: u64,
    /// Time without a packet after which a connection is given up.
    pub max_idle_timeout: Duration,
    /// True if packets are ECN-capable.
    pub ecn: bool,
    /// True if packet sources use DATAGRAM frames, RFC 9221.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub datagrams: bool,
    /// Length of the server's handshake messages after its ServerHello [bytes].
    pub tls_flight: u64,
    /// True if it carries throughput advice, draft-ietf-scone-protocol-07.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub scone: bool,
}

/// SCTP over one path, RFC 9260.
#[derive(Clone, Debug, Serialize)]
pub struct Sctp {
    /// Name.
    pub name: String,
    /// Path MTU: longest packet, IP header included [bytes].
    pub pmtu: u64,
    /// IP header [bytes].
    pub ip_header: u64,
    /// Length of the messages that the data is split into [bytes].
    pub message: u64,
    /// Length of the state cookie [bytes].
    pub cookie: u64,
    /// Advertised receiver window [bytes].
    pub a_rwnd: u64,
    /// Initial slow start threshold [bytes]; `None` without a bound.
    pub initial_ssthresh: Option<u64>,
    /// Maximum window growth per acknowledgement in slow start [full DATA chunks].
    pub slow_start_limit: u32,
    /// Granularity of the clock that measures round-trip times.
    pub clock_granularity: Duration,
    /// Number of packets per acknowledgement.
    pub sack_every: u32,
    /// SACK.Delay.
    pub sack_delay: Duration,
    /// RTO.Initial.
    pub rto_initial: Duration,
    /// RTO.Min.
    pub rto_min: Duration,
    /// RTO.Max.
    pub rto_max: Duration,
    /// Max.Burst [packets].
    pub max_burst: u32,
    /// Valid.Cookie.Life.
    pub valid_cookie_life: Duration,
    /// Association.Max.Retrans.
    pub association_max_retrans: u32,
    /// Max.Init.Retransmits.
    pub max_init_retransmits: u32,
}

/// Controller of a source's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum RtpController {
    /// By the reported loss.
    Loss,
    /// NADA, RFC 8698.
    Nada,
}

/// RTP over UDP with RTCP, RFC 3550, with a source that adapts its rate.
#[derive(Clone, Debug, Serialize)]
pub struct Rtp {
    /// Name.
    pub name: String,
    /// IP and UDP headers of a report [bytes].
    pub udp_header: u64,
    /// Rate of the media clock [1/s].
    pub clock_rate: u32,
    /// Time between two reports of one end.
    pub rtcp_interval: Duration,
    /// True if the source adapts its rate.
    pub adapt: bool,
    /// Controller of the rate.
    pub controller: RtpController,
    /// Priority with NADA.
    pub priority: f64,
    /// Weight of a report in the smoothed loss.
    pub smoothing: f64,
    /// Smoothed loss below which the rate increases.
    pub unloaded: f64,
    /// Smoothed loss above which the rate decreases.
    pub congested: f64,
    /// Factor of a decrease.
    pub decrease: f64,
    /// Summand of an increase.
    pub increase: Rate,
    /// Minimum rate.
    pub min_rate: Rate,
    /// Maximum rate; `None` for the source's own rate.
    pub max_rate: Option<Rate>,
}
