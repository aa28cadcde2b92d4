//! Transports.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, EnumAccess, Error as _, VariantAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::forms::{OneOf, Share, tables};
use super::quantity::{HeaderSize, PacketSize, Rate, SegmentsKind, Size, SizeKind, Span, Time, Whole};
use crate::model::{Congestion, Ecn, Rto};

tables! {
    /// A transport; TCP unless `protocol` names another.
    Transport by "protocol" ("Protocol.") {
        "tcp": Tcp(Box<Tcp>),
        "sctp": Sctp(Box<Sctp>),
        "rtp": Rtp(Box<Rtp>),
        "quic": Quic(Box<Quic>),
    }
}

impl Default for Transport {
    fn default() -> Self {
        Self::Tcp(Box::default())
    }
}

impl JsonSchema for Transport {
    fn schema_name() -> Cow<'static, str> {
        "Transport".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut protocols = Self::schemas(generator);
        // TCP is the default and does not require the key.
        if let Some(required) = protocols[0].get_mut("required").and_then(|r| r.as_array_mut()) {
            required.retain(|key| key != "protocol");
        }
        json_schema!({ "description": "A transport of one protocol.", "oneOf": protocols })
    }
}

/// A window: bytes, or full segments.
pub type Window = OneOf<SizeKind, SegmentsKind>;

/// TCP (RFC 9293). The defaults are those of the RFCs.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tcp {
    /// Preset from which the other keys take their defaults. Default: the RFCs.
    #[schemars(schema_with = "crate::schema::presets::transport_preset")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Congestion control.
    pub algorithm: CongestionName,
    /// Maximum segment size: payload of a full segment.
    pub mss: PacketSize,
    /// Headers of a segment on the wire, all layers, independent of the options.
    pub header: HeaderSize,
    /// True if TCP options add to the length on the wire: timestamps, selective acknowledgements and those of a SYN.
    pub option_bytes: bool,
    /// Initial window in segments. Default: 10, or fewer if segments are long (RFC 6928).
    pub initial_window: Option<Whole<1, 1000>>,
    /// Receive window.
    pub receive_window: Window,
    /// Initial receive window, if it grows: by two segments per arriving segment, which is acknowledged at once (Linux,
    /// `tcp_grow_window`). Default: `receive_window`.
    pub initial_receive_window: Option<Window>,
    /// Upper bound of the sender's window. Default: none.
    pub max_window: Option<Window>,
    /// Initial slow start threshold. Default: none (RFC 5681, 3.1: arbitrarily high).
    pub initial_ssthresh: Option<Window>,
    /// Retransmission timeout before the first measurement (RFC 6298, 2.1).
    pub initial_rto: Span,
    /// Minimum retransmission timeout (RFC 6298, 2.4).
    pub min_rto: Span,
    /// Estimator of the retransmission timeout.
    pub rto: Rto,
    /// Maximum retransmission timeout (RFC 6298, 2.5).
    pub max_rto: Span,
    /// Granularity of the clock that measures round-trip times (RFC 6298, G).
    pub clock_granularity: Time,
    /// Limited transmit (RFC 3042): duplicate acknowledgements release new segments, at most two, or with `rack` as
    /// many as arrive.
    pub limited_transmit: bool,
    /// Selective acknowledgements (RFC 2018) and SACK-based recovery (RFC 6675).
    pub sack: bool,
    /// Proportional rate reduction during SACK-based recovery (RFC 9937); false to reduce the window at once.
    pub prr: bool,
    /// Appropriate byte counting: the window grows by acknowledged bytes instead of acknowledgements (RFC 3465).
    pub abc: bool,
    /// Delayed acknowledgement timeout (RFC 5681, 4.2). Default: every segment is acknowledged at once.
    pub delayed_ack: Option<Span>,
    /// Only the first partial acknowledgement restarts the retransmission timer (RFC 6582, 4).
    pub impatient: bool,
    /// Congestion reduces the window to a share of cwnd instead of the bytes in flight (RFC 5681, 3.1).
    pub half_of_cwnd: bool,
    /// Recovery and windows as in ns-2.35: of its Reno or Newreno, or with `sack` and without `prr` of its Sack1. A mark on
    /// a window of one segment makes the sender wait for its timer (RFC 3168, 6.1.2); otherwise two segments are the least.
    pub ns2_recovery: bool,
    /// A timeout retransmits everything from the first unacknowledged segment, in slow start, except for what is
    /// selectively acknowledged. If false, one segment per detected hole is retransmitted, which takes a round trip
    /// each.
    pub go_back_n: bool,
    /// An idle connection restarts from the initial window (RFC 5681, 4.1); with `cubic-linux` from half of its window for each
    /// retransmission timeout that it was idle (RFC 2861).
    pub slow_start_restart: bool,
    /// HyStart++: slow start ends when the round-trip time grows (RFC 9406). For reno, newreno and cubic.
    pub hystart: bool,
    /// SEARCH: slow start ends when less is delivered than was sent a round trip before, and the window falls to what was
    /// delivered in a round trip (draft-chung-ccwg-search-09). For reno, newreno and cubic; not with `hystart`.
    pub search: bool,
    /// Pacing of the window over the round-trip time: at 2 cwnd / SRTT in slow start, else at 1.2 cwnd / SRTT. BBR
    /// always paces.
    pub pacing: bool,
    /// ECN feedback: one echo per round trip (`true` or "classic", RFC 3168), a count of marks ("accurate", RFC 9768;
    /// required by dctcp and prague), or `false` for no ECN.
    pub ecn: Ecn,
    /// RACK-TLP: loss detection by time (RFC 8985) instead of RFC 6675; requires `sack`. Receivers report duplicates
    /// (RFC 2883), and `go_back_n` has no effect.
    pub rack: bool,
    /// Eifel detection and response: timestamps reveal a spurious timeout, which is undone (RFC 3522, RFC 4015);
    /// requires `rack` and `timestamps`, has no effect with `bbr`.
    pub eifel: bool,
    /// Timestamps (RFC 7323, 3): every acknowledgement of new data, also of retransmissions, measures a round trip.
    pub timestamps: bool,
    /// Shift of the window scale option (RFC 7323, 2): windows are multiples of 2^n B, up to 65535 of them. Default: no
    /// option, and windows of any length.
    pub window_scale: Option<Whole<0, 14>>,
    /// Maximum random processing delay before a host sends, uniform from zero (ns-2's `overhead_`). It avoids phase
    /// effects between simulated connections.
    pub overhead: Time,
    /// Maximum number of SYN retransmissions.
    pub syn_retries: Whole<0, 1000>,
    /// Maximum number of retransmissions of a segment before the connection is aborted.
    pub retries: Whole<1, 1000>,
}

/// Congestion control as a file names it.
#[derive(Clone, Copy, Debug)]
pub struct CongestionName(pub Congestion);

impl Serialize for CongestionName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.name().serialize(to)
    }
}

impl<'de> Deserialize<'de> for CongestionName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = CongestionName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a congestion control algorithm")
            }

            fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<CongestionName, A::Error> {
                let (name, content): (String, _) = data.variant()?;
                content.unit_variant()?;
                let found = Congestion::ALL.iter().find(|algorithm| algorithm.name() == name);
                let unknown = || A::Error::unknown_variant(&name, Congestion::NAMES);
                found.copied().map(CongestionName).ok_or_else(unknown)
            }
        }
        from.deserialize_enum("Congestion", Congestion::NAMES, Reader)
    }
}

impl JsonSchema for CongestionName {
    fn schema_name() -> Cow<'static, str> {
        "Congestion".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let each = Congestion::ALL.iter().map(
            |algorithm| json_schema!({ "description": algorithm.title(), "type": "string", "const": algorithm.name() }),
        );
        json_schema!({ "description": "A congestion control algorithm.", "oneOf": each.collect::<Vec<_>>() })
    }
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            preset: None,
            algorithm: CongestionName(Congestion::NewReno),
            mss: PacketSize::of(1460),
            header: HeaderSize::of(40),
            option_bytes: false,
            initial_window: None,
            receive_window: OneOf::First(Size::of(4_000_000)),
            initial_receive_window: None,
            max_window: None,
            initial_ssthresh: None,
            initial_rto: Span::of(1_000_000_000),
            min_rto: Span::of(1_000_000_000),
            rto: Rto::Rfc6298,
            max_rto: Span::of(60_000_000_000),
            clock_granularity: Time::of(1_000_000),
            limited_transmit: true,
            sack: false,
            prr: true,
            abc: false,
            delayed_ack: None,
            impatient: true,
            half_of_cwnd: false,
            ns2_recovery: false,
            go_back_n: true,
            slow_start_restart: true,
            hystart: false,
            search: false,
            pacing: false,
            ecn: Ecn::Off,
            rack: false,
            eifel: false,
            timestamps: false,
            window_scale: None,
            overhead: Time::of(0),
            syn_retries: Whole(6),
            retries: Whole(15),
        }
    }
}

/// QUIC (RFC 9000) as quinn implements it. The defaults are those of RFC 9000 and RFC 9002.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Quic {
    /// Congestion control.
    pub algorithm: CongestionName,
    /// Longest UDP payload of a packet (RFC 9000, 14).
    pub max_udp_payload: PacketSize,
    /// IP and UDP headers of a packet.
    pub udp_header: HeaderSize,
    /// Initial window in packets. Default: 10, or fewer if packets are long (RFC 9002, 7.2).
    pub initial_window: Option<Whole<2, 1000>>,
    /// Round-trip time before the first measurement (RFC 9002, 6.2.2).
    pub initial_rtt: Span,
    /// HyStart++: slow start ends when the round-trip time grows (RFC 9406). For reno, newreno and cubic.
    pub hystart: bool,
    /// SEARCH: slow start ends when less is delivered than was sent a round trip before, and the window falls to what was
    /// delivered in a round trip (draft-chung-ccwg-search-09). For reno, newreno and cubic; not with `hystart`.
    pub search: bool,
    /// Careful Resume (RFC 9959): lifetime of the window and the round-trip time that a host saves of each path, for the next
    /// connection to resume with half of the window. Default: nothing is saved.
    pub careful_resume: Option<Span>,
    /// Time for which a client keeps what it needs to resume with a server: its next connections send data in 0-RTT packets,
    /// and the server sends no certificate (RFC 9001, 4.6). Default: each connection begins anew.
    pub zero_rtt: Option<Span>,
    /// Data that a peer may send on a connection beyond what has been read (RFC 9000, 4).
    pub max_data: Size,
    /// As `max_data`, on each stream. Default: `max_data`.
    pub max_stream_data: Option<Size>,
    /// Time without a packet after which a connection is given up (RFC 9000, 10.1).
    pub max_idle_timeout: Span,
    /// True if packets are ECN-capable: ECT(0), or ECT(1) with prague. Required by dctcp and prague.
    pub ecn: bool,
    /// True if packet sources send each packet in a DATAGRAM frame (RFC 9221), which is not repeated; else they write to a
    /// stream.
    pub datagrams: bool,
    /// Length of the server's handshake messages after its ServerHello, most of it certificates. What exceeds three packets
    /// costs a round trip (RFC 9000, 8.1).
    pub tls_flight: Size,
    /// True if senders let gateways write throughput advice into SCONE packets, and players of adaptive video follow it
    /// (draft-ietf-scone-protocol-07). `max_udp_payload` has to be at least 1215 B.
    pub scone: bool,
}

impl Default for Quic {
    fn default() -> Self {
        Self {
            algorithm: CongestionName(Congestion::NewReno),
            max_udp_payload: PacketSize::of(1200),
            udp_header: HeaderSize::of(28),
            initial_window: None,
            initial_rtt: Span::of(333_000_000),
            hystart: false,
            search: false,
            careful_resume: None,
            zero_rtt: None,
            max_data: Size::of(16_000_000),
            max_stream_data: None,
            max_idle_timeout: Span::of(30_000_000_000),
            ecn: false,
            datagrams: false,
            tls_flight: Size::of(3000),
            scone: false,
        }
    }
}

/// SCTP (RFC 9260) over one path. The defaults are those of its section 16.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sctp {
    /// Path MTU: longest packet, IP header included.
    pub pmtu: PacketSize,
    /// IP header of a packet.
    pub ip_header: HeaderSize,
    /// Length of the messages that the data is split into. Default: each fills a packet.
    pub message: Option<Size>,
    /// Length of the state cookie.
    pub cookie: HeaderSize,
    /// Advertised receiver window.
    pub a_rwnd: Size,
    /// Initial slow start threshold. Default: none (RFC 9260, 7.2.1: arbitrarily high).
    pub initial_ssthresh: Option<Size>,
    /// Maximum window growth per acknowledgement in slow start, in full DATA chunks (RFC 9260, 7.2.1: L).
    pub slow_start_limit: Whole<1, 100>,
    /// Granularity of the clock that measures round-trip times (RFC 9260, 6.3.1: G).
    pub clock_granularity: Time,
    /// Number of packets per acknowledgement (RFC 9260, 6.2).
    pub sack_every: Whole<1, 100>,
    /// Maximum delay of an acknowledgement (SACK.Delay).
    pub sack_delay: Span,
    /// Retransmission timeout before the first measurement (RTO.Initial).
    pub rto_initial: Span,
    /// Minimum retransmission timeout (RTO.Min).
    pub rto_min: Span,
    /// Maximum retransmission timeout (RTO.Max).
    pub rto_max: Span,
    /// Maximum number of packets of new data sent at a time (Max.Burst).
    pub max_burst: Whole<1, 1_000_000>,
    /// Lifetime of a state cookie (Valid.Cookie.Life).
    pub valid_cookie_life: Span,
    /// Maximum number of consecutive timeouts of an association (Association.Max.Retrans).
    pub association_max_retrans: Whole<1, 1000>,
    /// Maximum number of INIT retransmissions (Max.Init.Retransmits).
    pub max_init_retransmits: Whole<0, 1000>,
}

impl Default for Sctp {
    fn default() -> Self {
        Self {
            pmtu: PacketSize::of(1500),
            ip_header: HeaderSize::of(20),
            message: None,
            cookie: HeaderSize::of(100),
            a_rwnd: Size::of(4_000_000),
            initial_ssthresh: None,
            slow_start_limit: Whole(1),
            clock_granularity: Time::of(1_000_000),
            sack_every: Whole(2),
            sack_delay: Span::of(200_000_000),
            rto_initial: Span::of(1_000_000_000),
            rto_min: Span::of(1_000_000_000),
            rto_max: Span::of(60_000_000_000),
            max_burst: Whole(4),
            valid_cookie_life: Span::of(60_000_000_000),
            association_max_retrans: Whole(10),
            max_init_retransmits: Whole(8),
        }
    }
}

/// RTP over UDP with RTCP (RFC 3550). The source adapts its rate: to the reported loss as in Busse, Deffner & Schulzrinne
/// (1996), a linear controller with a dead zone; or to delay and loss by NADA (RFC 8698). At half the rate, packets are twice as
/// far apart.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rtp {
    /// IP and UDP headers of a report. The packet length of a source includes all headers.
    pub udp_header: HeaderSize,
    /// Rate of the media clock in Hz (RFC 3551).
    pub clock_rate: Whole<1, 1_000_000>,
    /// Time between two reports of one end. Default: 900 ms; 100 ms with NADA.
    pub rtcp_interval: Option<Span>,
    /// True if the source adapts its rate.
    pub adapt: bool,
    /// Controller of the rate.
    pub controller: RtpControllerName,
    /// With NADA: priority of the flow, by which it shares a link with others.
    pub priority: Whole<1, 100>,
    /// Weight of a report in the smoothed loss.
    pub smoothing: Share,
    /// Smoothed loss up to which the rate increases.
    pub unloaded: Share,
    /// Smoothed loss from which on the rate decreases.
    pub congested: Share,
    /// Factor of a decrease.
    pub decrease: Share,
    /// Summand of an increase.
    pub increase: Rate,
    /// Minimum rate; with NADA also the rate before the first report.
    pub min_rate: Rate,
    /// Maximum rate. Default: the source's own rate.
    pub max_rate: Option<Rate>,
}

/// Controller of a source's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RtpControllerName {
    /// By the reported loss (Busse et al. 1996).
    Loss,
    /// By delay and loss (NADA, RFC 8698).
    Nada,
}

impl Default for Rtp {
    fn default() -> Self {
        Self {
            udp_header: HeaderSize::of(28),
            clock_rate: Whole(90_000),
            rtcp_interval: None,
            adapt: true,
            controller: RtpControllerName::Loss,
            priority: Whole(1),
            smoothing: Share(0.3),
            unloaded: Share(0.02),
            congested: Share(0.04),
            decrease: Share(0.875),
            increase: Rate::of(50_000),
            min_rate: Rate::of(50_000),
            max_rate: None,
        }
    }
}
