//! Arriving packets: association setup and shutdown, RFC 9260 sections 5, 8.4 and 9.

use bentpipe_units::Instant;

use super::association::{Association, State};
use super::{Config, Control, Cookie, Packet};

impl Association {
    /// Processes an arriving packet.
    ///
    /// No packet, whatever it contains, can do worse than abort the association.
    pub fn on_packet(&mut self, cfg: &Config, now: Instant, packet: &Packet) {
        self.stats.packets_received += 1;
        self.burst = cfg.max_burst;
        if self.state == State::Closed && !self.listening {
            return self.on_packet_closed(packet);
        }
        match packet.control {
            Control::Init { .. } => self.on_init(cfg, now, &packet.control),
            Control::InitAck { a_rwnd, cookie } => self.on_init_ack(cfg, now, a_rwnd, cookie),
            Control::CookieEcho { cookie } => self.on_cookie_echo(cfg, now, cookie),
            Control::CookieAck if self.state == State::CookieEchoed => {
                self.rto.on_acked(cfg, now, 0);
                self.establish(now);
            }
            Control::StaleCookie if self.state == State::CookieEchoed => {
                // Section 5.2.6: (1) request a new cookie; (2) give up, if cookies are always stale.
                self.rto.on_acked(cfg, now, 0);
                self.stale_cookies += 1;
                if self.stale_cookies > cfg.max_init_retransmits {
                    return self.fail();
                }
                self.state = State::CookieWait;
                self.control_due = Control::Init { a_rwnd: cfg.a_rwnd };
            }
            Control::Abort => return self.on_abort(),
            _ => {}
        }
        // Section 6: DATA is accepted in these states; SACKs in those with DATA to acknowledge.
        let data = packet.data();
        if matches!(self.state, State::Established | State::ShutdownPending | State::ShutdownSent)
            && !data.is_empty()
        {
            self.rx.on_data(cfg, now, data);
            if self.state == State::ShutdownSent {
                // Section 9.2: each packet with DATA is answered with a SHUTDOWN and restarts T2-shutdown. A SACK goes
                // with it: it is required to report gaps or duplicates, and it alone carries the window.
                self.rx.sack_now = true;
                self.control_due = Control::Shutdown { cum_tsn_ack: self.rx.cum_tsn_ack };
            }
        }
        if let Some(sack) = &packet.sack
            && matches!(self.state, State::Established | State::ShutdownPending | State::ShutdownReceived)
        {
            self.on_sack(cfg, now, sack);
        }
        match packet.control {
            Control::Shutdown { cum_tsn_ack } => self.on_shutdown(cfg, now, cum_tsn_ack),
            // Section 9.2.
            Control::ShutdownAck if matches!(self.state, State::ShutdownSent | State::ShutdownAckSent) => {
                self.peer_closed = true;
                self.terminate();
                self.control_due = Control::ShutdownComplete;
            }
            // Section 8.5.1 (E): a SHUTDOWN ACK of an association that was never set up is answered too.
            Control::ShutdownAck if matches!(self.state, State::CookieWait | State::CookieEchoed) => {
                self.control_due = Control::ShutdownComplete;
            }
            Control::ShutdownComplete if self.state == State::ShutdownAckSent => self.terminate(),
            _ => {}
        }
    }

    /// Section 8.4: a packet for a closed association.
    fn on_packet_closed(&mut self, packet: &Packet) {
        self.control_due = match packet.control {
            // (5): the SHUTDOWN COMPLETE was lost.
            Control::ShutdownAck => Control::ShutdownComplete,
            // (8).
            Control::None | Control::Init { .. } | Control::Shutdown { .. } => Control::Abort,
            _ => self.control_due,
        };
    }

    /// Sections 5.1 (B), 5.2.1 and 5.2.2: an INIT is answered in every state, without keeping state.
    fn on_init(&mut self, cfg: &Config, now: Instant, control: &Control) {
        let &Control::Init { a_rwnd } = control else { return };
        if self.control_due == Control::None {
            // Section 9.2: with the SHUTDOWN ACK if that has been sent.
            self.control_due = if self.state == State::ShutdownAckSent {
                Control::ShutdownAck
            } else {
                Control::InitAck { a_rwnd: cfg.a_rwnd, cookie: Cookie { a_rwnd, created_at: now } }
            };
        }
    }

    /// Section 5.1 (C).
    fn on_init_ack(&mut self, cfg: &Config, now: Instant, a_rwnd: u32, cookie: Cookie) {
        // Section 5.2.3: an unexpected INIT ACK is discarded.
        if self.state != State::CookieWait {
            return;
        }
        self.rto.on_acked(cfg, now, 0);
        // T1-init is stopped; T1-cookie is started.
        self.errors = 0;
        self.timer_at = None;
        self.rwnd = a_rwnd.into();
        self.cookie = cookie;
        self.state = State::CookieEchoed;
        self.control_due = Control::CookieEcho { cookie };
    }

    /// Sections 5.1 (D) and 5.1.5.
    fn on_cookie_echo(&mut self, cfg: &Config, now: Instant, cookie: Cookie) {
        match self.state {
            State::Closed | State::CookieWait | State::CookieEchoed => {
                if now - cookie.created_at > cfg.valid_cookie_life {
                    self.control_due = Control::StaleCookie;
                    return;
                }
                self.rwnd = cookie.a_rwnd.into();
                self.establish(now);
                self.control_due = Control::CookieAck;
            }
            // Section 5.2.4 (D): the COOKIE ACK was lost, or the cookie was duplicated. A peer waiting for the COOKIE
            // ACK also delays its answer to a SHUTDOWN.
            State::Established
            | State::ShutdownPending
            | State::ShutdownReceived
            | State::ShutdownSent
            | State::ShutdownAckSent => {
                self.control_due = Control::CookieAck;
            }
        }
    }

    /// Completes the setup: both ends know the association.
    fn establish(&mut self, now: Instant) {
        self.state = if self.closing { State::ShutdownPending } else { State::Established };
        self.listening = false;
        self.control_due = Control::None;
        self.errors = 0;
        self.timer_at = None;
        self.data_sent_at = now;
    }

    /// Section 9.2: the peer has no more data to send.
    fn on_shutdown(&mut self, cfg: &Config, now: Instant, cum_tsn_ack: u64) {
        match self.state {
            State::Established | State::ShutdownPending | State::ShutdownReceived => {
                self.state = State::ShutdownReceived;
                self.peer_closed = true;
                self.rx.sack_now = false;
                self.rx.sack_at = None;
                self.on_cumulative_ack(cfg, now, cum_tsn_ack);
            }
            // Both ends shut down at the same time.
            State::ShutdownSent | State::ShutdownAckSent => {
                self.peer_closed = true;
                self.state = State::ShutdownAckSent;
                self.control_due = Control::ShutdownAck;
            }
            State::Closed | State::CookieWait | State::CookieEchoed => {}
        }
    }

    /// Section 9.1.
    fn on_abort(&mut self) {
        match self.state {
            State::Closed => {}
            // All data of both ends has arrived: the peer has only forgotten the association.
            State::ShutdownAckSent => self.terminate(),
            _ => self.fail(),
        }
    }
}
