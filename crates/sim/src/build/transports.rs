//! Configurations of the transports.

use bentpipe_quic as quic;
use bentpipe_scenario as scenario;
use bentpipe_scenario::Ecn;
use bentpipe_transport::{rtp, sctp, tcp};
use bentpipe_units::{Duration, Rate};

use crate::endpoints::quic::Lifetimes;
use crate::ids::{Id, QuicConfigId, RtpConfigId, SctpConfigId, TcpConfigId};

/// Configurations in use, each once.
#[derive(Default)]
pub(super) struct Transports {
    /// Seed of the run.
    pub(super) seed: u64,
    /// With the overhead of the host.
    pub(super) tcp: Vec<(tcp::Config, Duration)>,
    pub(super) sctp: Vec<sctp::Config>,
    pub(super) rtp: Vec<rtp::Config>,
    /// With the lifetime of the paths that the host saves.
    pub(super) quic: Vec<(quic::Config, Lifetimes)>,
}

impl Transports {
    /// TCP of a host, which paces at a rate if it has one.
    pub(super) fn tcp(&mut self, t: &scenario::Tcp, pacing: Option<Rate>) -> TcpConfigId {
        let config = tcp::Config { seed: self.seed, ..tcp_config(t, pacing) };
        let host = (config, t.overhead);
        let place = self.tcp.iter().position(|known| *known == host).unwrap_or_else(|| {
            self.tcp.push(host);
            self.tcp.len() - 1
        });
        TcpConfigId::new(place as u32)
    }

    pub(super) fn sctp(&mut self, s: &scenario::Sctp) -> SctpConfigId {
        self.sctp.push(sctp_config(s));
        SctpConfigId::new(self.sctp.len() as u32 - 1)
    }

    /// QUIC of a host, which does not exceed a rate if it has one, and may let clients migrate.
    pub(super) fn quic(
        &mut self,
        q: &scenario::Quic,
        rate_cap: Option<Rate>,
        migration: bool,
    ) -> QuicConfigId {
        let config = quic::Config { seed: self.seed, migration, ..quic_config(q, rate_cap) };
        let lifetimes = Lifetimes { path: q.careful_resume, ticket: q.zero_rtt };
        self.quic.push((config, lifetimes));
        QuicConfigId::new(self.quic.len() as u32 - 1)
    }

    pub(super) fn rtp(&mut self, r: &scenario::Rtp) -> RtpConfigId {
        self.rtp.push(rtp_config(r));
        RtpConfigId::new(self.rtp.len() as u32 - 1)
    }
}

fn tcp_config(t: &scenario::Tcp, pacing: Option<Rate>) -> tcp::Config {
    tcp::Config {
        mss: small(t.mss),
        header_len: small(t.header),
        option_bytes: t.option_bytes,
        initial_window: t.initial_window,
        receive_window: small(t.receive_window),
        initial_receive_window: t.initial_receive_window.map(small),
        max_window: t.max_window.unwrap_or(u64::MAX),
        initial_ssthresh: t.initial_ssthresh,
        initial_rto: t.initial_rto,
        min_rto: t.min_rto,
        estimator: match t.rto {
            scenario::Rto::Rfc6298 => tcp::Estimator::Rfc6298,
            scenario::Rto::Linux => tcp::Estimator::Linux,
            scenario::Rto::Bsd => tcp::Estimator::Bsd,
        },
        max_rto: t.max_rto,
        clock_granularity: t.clock_granularity,
        limited_transmit: t.limited_transmit,
        delayed_ack: t.delayed_ack,
        impatient: t.impatient,
        half_of_cwnd: t.half_of_cwnd,
        ns2_recovery: t.ns2_recovery,
        go_back_n: t.go_back_n,
        slow_start_restart: t.slow_start_restart,
        pacing,
        pace_window: t.pacing,
        hystart: t.hystart,
        search: t.search,
        ecn: t.ecn != Ecn::Off,
        accurate_ecn: t.ecn == Ecn::Accurate,
        rack: t.rack,
        eifel: t.eifel,
        timestamps: t.timestamps,
        window_scale: t.window_scale,
        sack: t.sack,
        prr: t.prr,
        abc: t.abc,
        algorithm: t.algorithm,
        seed: 0,
        syn_retries: t.syn_retries,
        retries: t.retries,
    }
}

fn sctp_config(s: &scenario::Sctp) -> sctp::Config {
    sctp::Config {
        pmtu: small(s.pmtu),
        ip_header: small(s.ip_header),
        message_len: small(s.message),
        cookie_len: small(s.cookie),
        a_rwnd: small(s.a_rwnd),
        initial_ssthresh: s.initial_ssthresh,
        slow_start_limit: s.slow_start_limit,
        clock_granularity: s.clock_granularity,
        sack_every: s.sack_every,
        rto_initial: s.rto_initial,
        rto_min: s.rto_min,
        rto_max: s.rto_max,
        max_burst: s.max_burst,
        valid_cookie_life: s.valid_cookie_life,
        association_max_retrans: s.association_max_retrans,
        max_init_retransmits: s.max_init_retransmits,
        sack_delay: s.sack_delay,
        ..sctp::Config::default()
    }
}

fn quic_config(q: &scenario::Quic, rate_cap: Option<Rate>) -> quic::Config {
    quic::Config {
        algorithm: q.algorithm,
        seed: 0,
        max_udp_payload: u16::try_from(q.max_udp_payload).unwrap_or(u16::MAX),
        udp_header: small(q.udp_header),
        initial_window: q.initial_window,
        initial_rtt: q.initial_rtt,
        hystart: q.hystart,
        search: q.search,
        max_data: q.max_data,
        max_stream_data: q.max_stream_data,
        max_idle_timeout: Some(q.max_idle_timeout),
        ecn: q.ecn,
        rate_cap,
        zero_rtt: q.zero_rtt.is_some(),
        tls_flight: small(q.tls_flight),
        scone: q.scone,
        migration: false,
    }
}

fn rtp_config(r: &scenario::Rtp) -> rtp::Config {
    rtp::Config {
        udp_header_len: small(r.udp_header),
        clock_rate: r.clock_rate,
        rtcp_interval: r.rtcp_interval,
        nada: (r.adapt && r.controller == scenario::RtpController::Nada).then_some(rtp::Nada {
            priority: r.priority,
            min_rate: r.min_rate,
            max_rate: r.max_rate,
        }),
        adaptation: (r.adapt && r.controller == scenario::RtpController::Loss).then_some(rtp::Adaptation {
            smoothing: r.smoothing,
            unloaded: r.unloaded,
            congested: r.congested,
            decrease: r.decrease,
            increase: r.increase,
            min_rate: r.min_rate,
            max_rate: r.max_rate,
        }),
        ..rtp::Config::default()
    }
}

/// A size that the scenario has bounded.
pub(super) fn small(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
