//! Transports other than TCP.

use super::nodes::{check_name, named};
use super::{Cx, step};
use crate::error::Error;
use crate::file;
use crate::model::{Rtp, Sctp};
use crate::quantity::Size;

/// Headers of a packet and a DATA chunk beside the IP header, and the shortest payload (RFC 9260, 3.1, 3.3.1) [bytes].
const SCTP_LEAST: u64 = 12 + 16 + 4;

/// The smallest buffer that an endpoint may offer (RFC 9260, 6) [bytes].
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
    Ok(Rtp {
        name: name.to_owned(),
        udp_header: raw.udp_header.0,
        clock_rate: raw.clock_rate.0,
        rtcp_interval: raw.rtcp_interval.time(),
        adapt: raw.adapt,
        smoothing: raw.smoothing.0,
        unloaded: raw.unloaded.0,
        congested: raw.congested.0,
        decrease: raw.decrease.0,
        increase: raw.increase.rate(),
        min_rate: raw.min_rate.rate(),
        max_rate: raw.max_rate.map(|r| r.rate()),
    })
}
