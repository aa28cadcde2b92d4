//! Transports.

use std::ops::RangeInclusive;

use bentpipe_units::Duration;

use super::cx::Cx;
use super::nodes::{check_name, named};
use crate::error::Error;
use crate::model::{Congestion, Ecn, Quic, Rtp, RtpController, Sctp, Tcp, Transport};
use crate::reader::tree::{Step, step};
use crate::schema::file::File;
use crate::schema::forms::OneOf;
use crate::schema::presets;
use crate::schema::quantity::{Size, Whole};
use crate::schema::transport::{self as file, Window};

/// Name of the TCP of traffic that names no transport.
pub const DEFAULT: &str = "default";

/// Maximum length of a packet [bytes].
const LONGEST: u64 = 65_535;

/// Largest buffer of a receiver, of which simulations count the bytes with 32 bits [bytes].
const LARGEST_BUFFER: u64 = u32::MAX as u64;

/// Maximum length of the options of a TCP header [bytes].
const OPTIONS: u64 = 40;

/// Resolves the file's transports, and the default one if traffic needs it.
pub fn transports(cx: &mut Cx<'_>, file: &mut File) -> Result<Vec<Transport>, Error> {
    let uses_default = file.traffic.iter().any(|(_, t)| t.source().common().transport == Some(DEFAULT));
    if uses_default && !file.transport.names().any(|name| name == DEFAULT) {
        file.transport.0.push((DEFAULT.to_owned(), file::Transport::default()));
    }
    let mut transports = Vec::new();
    for (name, raw) in &mut file.transport.0 {
        transports.push(match raw {
            file::Transport::Tcp(raw) => Transport::Tcp(Box::new(tcp(cx, name, raw)?)),
            file::Transport::Sctp(raw) => Transport::Sctp(Box::new(sctp(cx, name, raw)?)),
            file::Transport::Rtp(raw) => Transport::Rtp(Box::new(rtp(cx, name, raw)?)),
            file::Transport::Quic(raw) => Transport::Quic(Box::new(quic(cx, name, raw)?)),
        });
    }
    Ok(transports)
}

fn tcp(cx: &mut Cx<'_>, name: &str, raw: &mut file::Tcp) -> Result<Tcp, Error> {
    let path = named("transport", name);
    check_name(cx, &path, name)?;
    if let Some(name) = &raw.preset
        && presets::preset(name).is_none()
    {
        return Err(cx.unknown(&step(&path, "preset"), name, presets::PRESETS.iter().map(|p| p.name)));
    }
    let mss = raw.mss.0;
    let refuse = |key: &str, found: String, allowed: String| {
        Err(cx.error(&step(&path, key), format!("found \"{found}\"; allowed: {allowed}")))
    };
    let options = if raw.option_bytes { OPTIONS } else { 0 };
    if mss + raw.header.0 + options > LONGEST {
        let and = if raw.option_bytes { " and 40 B of options" } else { "" };
        let allowed = format!("together with the header (\"{:?}\"){and}, at most {LONGEST} B", raw.header);
        return refuse("mss", format!("{:?}", raw.mss), allowed);
    }
    let windows = [
        ("receive_window", Some(raw.receive_window)),
        ("initial_receive_window", raw.initial_receive_window),
        ("max_window", raw.max_window),
    ];
    for (key, window) in windows {
        if let Some(window) = window
            && bytes(window, mss) < mss
        {
            return refuse(key, window_text(window), format!("at least a segment (\"{:?}\")", raw.mss));
        }
        if let Some(window) = window
            && key != "max_window"
            && bytes(window, mss) > LARGEST_BUFFER
        {
            return refuse(key, window_text(window), format!("at most {LARGEST_BUFFER} B"));
        }
    }
    if raw.rack && !raw.sack {
        let problem = "found true; allowed: true only with sack".to_owned();
        return Err(cx.error(&step(&path, "rack"), problem));
    }
    if raw.eifel && !(raw.rack && raw.timestamps) {
        let problem = "found true; allowed: true only with rack and timestamps".to_owned();
        return Err(cx.error(&step(&path, "eifel"), problem));
    }
    if let Some(shift) = raw.window_scale
        && bytes(raw.receive_window, mss) >> shift.0 == 0
    {
        let allowed = format!("at least 2^window_scale B ({} B)", 1u64 << shift.0);
        return refuse("receive_window", window_text(raw.receive_window), allowed);
    }
    for (key, rto) in [("min_rto", raw.min_rto), ("initial_rto", raw.initial_rto)] {
        if rto.0 > raw.max_rto.0 {
            return refuse(key, format!("{rto:?}"), format!("at most max_rto (\"{:?}\")", raw.max_rto));
        }
    }
    let algorithm = raw.algorithm.0;
    check_slow_start(cx, &path, algorithm, raw.hystart, raw.search)?;
    if algorithm.is_proportional() && raw.ecn != Ecn::Accurate {
        let found = if raw.ecn == Ecn::Off { "false" } else { "\"classic\"" };
        let allowed = format!("\"accurate\" if algorithm = \"{}\"", algorithm.name());
        return Err(cx.error(&step(&path, "ecn"), format!("found {found}; allowed: {allowed}")));
    }
    let initial_window = raw.initial_window.map_or_else(|| initial_window(mss), |w| w.0);
    if raw.initial_window.is_none() {
        raw.initial_window = Some(Whole(initial_window));
        cx.note(
            &step(&path, "initial_window"),
            None,
            "RFC 6928: min(10 mss, max(2 mss, 14600 B))".to_owned(),
        );
    }
    Ok(Tcp {
        name: name.to_owned(),
        algorithm,
        mss,
        header: raw.header.0,
        option_bytes: raw.option_bytes,
        initial_window,
        receive_window: bytes(raw.receive_window, mss),
        initial_receive_window: raw.initial_receive_window.map(|w| bytes(w, mss)),
        max_window: raw.max_window.map(|w| bytes(w, mss)),
        initial_ssthresh: raw.initial_ssthresh.map(|w| bytes(w, mss)),
        initial_rto: raw.initial_rto.time(),
        min_rto: raw.min_rto.time(),
        rto: raw.rto,
        max_rto: raw.max_rto.time(),
        clock_granularity: raw.clock_granularity.time(),
        limited_transmit: raw.limited_transmit,
        sack: raw.sack,
        prr: raw.prr,
        abc: raw.abc,
        delayed_ack: raw.delayed_ack.map(|t| t.time()),
        impatient: raw.impatient,
        half_of_cwnd: raw.half_of_cwnd,
        ns2_recovery: raw.ns2_recovery,
        go_back_n: raw.go_back_n,
        slow_start_restart: raw.slow_start_restart,
        hystart: raw.hystart,
        search: raw.search,
        pacing: raw.pacing,
        ecn: raw.ecn,
        rack: raw.rack,
        eifel: raw.eifel,
        timestamps: raw.timestamps,
        window_scale: raw.window_scale.map(|shift| shift.0 as u8),
        overhead: raw.overhead.time(),
        syn_retries: raw.syn_retries.0,
        retries: raw.retries.0,
    })
}

/// Checks what ends slow start: one of HyStart++ and SEARCH, for an algorithm with the slow start of RFC 5681.
fn check_slow_start(
    cx: &Cx<'_>,
    path: &[Step],
    algorithm: Congestion,
    hystart: bool,
    search: bool,
) -> Result<(), Error> {
    let key = if hystart { "hystart" } else { "search" };
    if (hystart || search) && !algorithm.has_slow_start() {
        let allowed = format!(
            "false if algorithm = \"{}\", which does not use the slow start of RFC 5681",
            algorithm.name()
        );
        return Err(cx.error(&step(path, key), format!("found true; allowed: {allowed}")));
    }
    if hystart && search {
        let problem = "found true; allowed: false with hystart = true, which ends slow start too".to_owned();
        return Err(cx.error(&step(path, "search"), problem));
    }
    Ok(())
}

/// Initial window in whole segments: RFC 6928, section 2.
fn initial_window(mss: u64) -> u32 {
    let bytes = (10 * mss).min((2 * mss).max(14_600));
    u32::try_from(bytes / mss).unwrap_or(1).max(1)
}

fn bytes(window: Window, mss: u64) -> u64 {
    match window {
        OneOf::First(bytes) => bytes.0,
        OneOf::Second(segments) => segments.0 * mss,
    }
}

fn window_text(window: Window) -> String {
    match window {
        OneOf::First(bytes) => format!("{bytes:?}"),
        OneOf::Second(segments) => format!("{segments:?}"),
    }
}

/// Longest and shortest UDP payload: RFC 9000, section 14, and what a 16-bit length leaves [bytes].
const UDP_PAYLOAD: RangeInclusive<u64> = 1200..=65_000;

/// Shortest messages of a server after its ServerHello: those of a TLS handshake without certificates [bytes].
const LEAST_FLIGHT: u64 = 100;
/// Longest: the length of a TLS message has 24 bits (RFC 8446, section 4) [bytes].
const MOST_FLIGHT: u64 = 16_000_000;

/// Minimum data that a peer may send: a few packets, without which nothing proceeds [bytes].
const LEAST_DATA: u64 = 4096;

pub fn quic(cx: &mut Cx<'_>, name: &str, raw: &mut file::Quic) -> Result<Quic, Error> {
    let path = named("transport", name);
    check_name(cx, &path, name)?;
    let refuse = |key: &str, found: String, allowed: String| {
        Err(cx.error(&step(&path, key), format!("found {found}; allowed: {allowed}")))
    };
    if !UDP_PAYLOAD.contains(&raw.max_udp_payload.0) {
        let allowed = format!("{} to {} B", UDP_PAYLOAD.start(), UDP_PAYLOAD.end());
        return refuse("max_udp_payload", format!("\"{:?}\"", raw.max_udp_payload), allowed);
    }
    if raw.max_udp_payload.0 + raw.udp_header.0 > LONGEST {
        let allowed = format!("together with udp_header (\"{:?}\"), at most {LONGEST} B", raw.udp_header);
        return refuse("max_udp_payload", format!("\"{:?}\"", raw.max_udp_payload), allowed);
    }
    if raw.tls_flight.0 < LEAST_FLIGHT {
        return refuse(
            "tls_flight",
            format!("\"{:?}\"", raw.tls_flight),
            format!("at least {LEAST_FLIGHT} B"),
        );
    }
    if raw.tls_flight.0 > MOST_FLIGHT {
        return refuse("tls_flight", format!("\"{:?}\"", raw.tls_flight), "at most 16 MB".to_owned());
    }
    for (key, size) in [("max_data", Some(raw.max_data)), ("max_stream_data", raw.max_stream_data)] {
        if let Some(size) = size
            && size.0 < LEAST_DATA
        {
            return refuse(key, format!("\"{size:?}\""), format!("at least {LEAST_DATA} B"));
        }
    }
    let algorithm = raw.algorithm.0;
    check_slow_start(cx, &path, algorithm, raw.hystart, raw.search)?;
    if let Some(lifetime) = raw.careful_resume
        && algorithm.sets_cwnd()
    {
        let name = algorithm.name();
        let allowed = format!("none if algorithm = \"{name}\", which has no slow start to shorten");
        return refuse("careful_resume", format!("\"{lifetime:?}\""), allowed);
    }
    if algorithm.is_proportional() && !raw.ecn {
        let allowed = format!("true if algorithm = \"{}\"", algorithm.name());
        return refuse("ecn", "false".to_owned(), allowed);
    }
    if raw.scone && raw.max_udp_payload.0 < LEAST_WITH_SCONE {
        let allowed =
            format!("at least {LEAST_WITH_SCONE} B with scone, whose packets take {SCONE_PACKET} B");
        return refuse("max_udp_payload", format!("\"{:?}\"", raw.max_udp_payload), allowed);
    }
    let packet = raw.max_udp_payload.0;
    let initial_window = match raw.initial_window {
        Some(window) => window.0,
        None => {
            // RFC 9002, section 7.2.
            let bytes = (10 * packet).min((2 * packet).max(14_720));
            let window = u32::try_from(bytes / packet).unwrap_or(2).max(2);
            raw.initial_window = Some(Whole(window));
            let how = "RFC 9002: min(10 packets, max(2 packets, 14720 B))".to_owned();
            cx.note(&step(&path, "initial_window"), None, how);
            window
        }
    };
    let max_stream_data = *raw.max_stream_data.get_or_insert(raw.max_data);
    Ok(Quic {
        name: name.to_owned(),
        algorithm,
        max_udp_payload: packet,
        udp_header: raw.udp_header.0,
        initial_window,
        initial_rtt: raw.initial_rtt.time(),
        hystart: raw.hystart,
        search: raw.search,
        careful_resume: raw.careful_resume.map(|t| t.time()),
        zero_rtt: raw.zero_rtt.map(|t| t.time()),
        max_data: raw.max_data.0,
        max_stream_data: max_stream_data.0,
        max_idle_timeout: raw.max_idle_timeout.time(),
        ecn: raw.ecn,
        datagrams: raw.datagrams,
        tls_flight: raw.tls_flight.0,
        scone: raw.scone,
    })
}

/// A SCONE packet, sent in front of others in their datagram [bytes].
pub const SCONE_PACKET: u64 = 15;

/// Shortest `max_udp_payload` with SCONE packets: 1200 bytes (RFC 9000, section 14) and a SCONE packet [bytes].
const LEAST_WITH_SCONE: u64 = 1200 + SCONE_PACKET;

/// Headers of a packet and a DATA chunk without the IP header, plus the shortest payload (RFC 9260, 3.1, 3.3.1)
/// [bytes].
const SCTP_LEAST: u64 = 12 + 16 + 4;

/// Minimum buffer that an endpoint may advertise (RFC 9260, 6) [bytes].
const LEAST_BUFFER: u64 = 1500;

pub fn sctp(cx: &mut Cx<'_>, name: &str, raw: &mut file::Sctp) -> Result<Sctp, Error> {
    let path = named("transport", name);
    check_name(cx, &path, name)?;
    let refuse = |key: &str, found: String, allowed: String| {
        Err(cx.error(&step(&path, key), format!("found \"{found}\"; allowed: {allowed}")))
    };
    let least = raw.ip_header.0 + SCTP_LEAST;
    if raw.pmtu.0 < least {
        let allowed = format!("at least {least} B: ip_header, {SCTP_LEAST} B of headers and data");
        return refuse("pmtu", format!("{:?}", raw.pmtu), allowed);
    }
    // RFC 9260, 3.3.3: an INIT ACK, which is not fragmented.
    let longest = raw.pmtu.0.saturating_sub(raw.ip_header.0 + 12 + 24) & !3;
    if raw.cookie.0 > longest {
        let allowed = format!("at most {longest} B, so that an INIT ACK fits into pmtu (\"{:?}\")", raw.pmtu);
        return refuse("cookie", format!("{:?}", raw.cookie), allowed);
    }
    if raw.a_rwnd.0 < LEAST_BUFFER {
        return refuse("a_rwnd", format!("{:?}", raw.a_rwnd), format!("at least {LEAST_BUFFER} B"));
    }
    if raw.a_rwnd.0 > LARGEST_BUFFER {
        return refuse("a_rwnd", format!("{:?}", raw.a_rwnd), format!("at most {LARGEST_BUFFER} B"));
    }
    for (key, rto) in [("rto_min", raw.rto_min), ("rto_initial", raw.rto_initial)] {
        if rto.0 > raw.rto_max.0 {
            return refuse(key, format!("{rto:?}"), format!("at most rto_max (\"{:?}\")", raw.rto_max));
        }
    }
    let message = match raw.message {
        Some(message) => message.0,
        None => {
            let room = (raw.pmtu.0 - raw.ip_header.0 - 12) & !3;
            raw.message = Some(Size::of(room - 16));
            let how = "pmtu - ip_header - 28 B, in multiples of 4 B".to_owned();
            cx.note(&step(&path, "message"), None, how);
            room - 16
        }
    };
    Ok(Sctp {
        name: name.to_owned(),
        pmtu: raw.pmtu.0,
        ip_header: raw.ip_header.0,
        message,
        cookie: raw.cookie.0,
        a_rwnd: raw.a_rwnd.0,
        initial_ssthresh: raw.initial_ssthresh.map(|w| w.0),
        slow_start_limit: raw.slow_start_limit.0,
        clock_granularity: raw.clock_granularity.time(),
        sack_every: raw.sack_every.0,
        sack_delay: raw.sack_delay.time(),
        rto_initial: raw.rto_initial.time(),
        rto_min: raw.rto_min.time(),
        rto_max: raw.rto_max.time(),
        max_burst: raw.max_burst.0,
        valid_cookie_life: raw.valid_cookie_life.time(),
        association_max_retrans: raw.association_max_retrans.0,
        max_init_retransmits: raw.max_init_retransmits.0,
    })
}

pub fn rtp(cx: &Cx<'_>, name: &str, raw: &file::Rtp) -> Result<Rtp, Error> {
    let path = named("transport", name);
    check_name(cx, &path, name)?;
    let default = file::Rtp::default();
    let is_nada = raw.controller == file::RtpControllerName::Nada;
    for (key, of_nada, found, usual) in [
        ("priority", true, raw.priority.0.to_string(), default.priority.0.to_string()),
        ("smoothing", false, raw.smoothing.0.to_string(), default.smoothing.0.to_string()),
        ("unloaded", false, raw.unloaded.0.to_string(), default.unloaded.0.to_string()),
        ("congested", false, raw.congested.0.to_string(), default.congested.0.to_string()),
        ("decrease", false, raw.decrease.0.to_string(), default.decrease.0.to_string()),
        ("increase", false, format!("\"{:?}\"", raw.increase), format!("\"{:?}\"", default.increase)),
    ] {
        if found != usual && of_nada != is_nada {
            let other = if of_nada { "nada" } else { "loss" };
            let problem = format!("found {found}; allowed: only with controller = \"{other}\"");
            return Err(cx.error(&step(&path, key), problem));
        }
    }
    if raw.unloaded.0 > raw.congested.0 {
        let problem = format!("found {}; allowed: at most congested ({})", raw.unloaded.0, raw.congested.0);
        return Err(cx.error(&step(&path, "unloaded"), problem));
    }
    if let Some(most) = raw.max_rate
        && raw.min_rate.0 > most.0
    {
        let problem = format!("found \"{:?}\"; allowed: at most max_rate (\"{most:?}\")", raw.min_rate);
        return Err(cx.error(&step(&path, "min_rate"), problem));
    }
    let (controller, default_interval) = match raw.controller {
        file::RtpControllerName::Loss => (RtpController::Loss, Duration::from_millis(900)),
        file::RtpControllerName::Nada => (RtpController::Nada, Duration::from_millis(100)),
    };
    Ok(Rtp {
        name: name.to_owned(),
        udp_header: raw.udp_header.0,
        clock_rate: raw.clock_rate.0,
        rtcp_interval: raw.rtcp_interval.map_or(default_interval, |span| span.time()),
        adapt: raw.adapt,
        controller,
        priority: f64::from(raw.priority.0),
        smoothing: raw.smoothing.0,
        unloaded: raw.unloaded.0,
        congested: raw.congested.0,
        decrease: raw.decrease.0,
        increase: raw.increase.rate(),
        min_rate: raw.min_rate.rate(),
        max_rate: raw.max_rate.map(|r| r.rate()),
    })
}
