//! The live gateway on Linux.
//!
//! Two processes, the *ends*: a *gateway* that faces the internet and a *terminal* that faces the users. Both terminate TCP
//! connections with the kernel's TCP and relay their bytes over a spacelink, as streams of one QUIC connection. Packets that
//! cannot be split cross it as datagrams.
//!
//! ```text
//!  servers ═ NFQUEUE ─ AQM ─ kernel TCP ─ PEP ─ transmit queue, regulator ─ QUIC ~~ QUIC ─ PEP ─ kernel TCP ═ clients
//!            └──────────────────────── gateway ───────────────────────────┘    └────── terminal ──────┘
//! ```
//!
//! The simulator's code decides about packets: [`bentpipe_gateway::Gateway`], which is told real times. This crate is its
//! host.
//!
//! # Modules and their state
//!
//! | module | state | owner |
//! |---|---|---|
//! | [`event_loop`] | the loop with all parts below | [`event_loop::Daemon`] |
//! | | event sources: epoll, timer, signals | [`event_loop::sources::Sources`] |
//! | | the gateway, the items behind its packets, its time and rate | [`event_loop::gateway_host::GatewayHost`] |
//! | [`intercept`] | netfilter queues, verdicts, windows of servers | [`intercept::interceptor::Interceptor`] |
//! | | rules, bypass, reachability of the peer | [`intercept::steering::Steering`] |
//! | | routes of the users behind each of many terminals | [`intercept::terminal_routes::TerminalRoutes`] |
//! | [`relay`] | connections, ready list, users | [`relay::table::Relays`] |
//! | | a connection: socket, stream, bytes on their way | [`relay::connection::Relay`] |
//! | | PEP buffers and who waits for them | [`relay::memory::PepMemory`] |
//! | | send window and chunks to send again | [`relay::chunks::Chunks`] |
//! | | limits, listeners, SYN floods | [`relay::admission::Admission`] |
//! | | the spacelinks to all peers and their UDP socket | [`relay::spacelink_socket::SpacelinkSocket`] |
//! | | terminals: name, certificate, prefixes, state | [`relay::terminals::Terminals`] |
//! | [`observe`] | counters, histograms, recorded run | [`observe::observer::Observer`] |
//! | | published state and watchdog | [`observe::publisher::Publisher`] |
//! | [`config`] | the configuration | [`config::Config`] |
//! | [`sys`] | clock, TUN device, timer, modem socket, privileges | one type each |
//!
//! # Path of a packet
//!
//! A segment from a server to a client, through the gateway:
//!
//! 1. netfilter holds it: `Daemon::receive_intercepted` reads it from NFQUEUE, `offer_packet` offers it to
//!    `Gateway::arrive`, and `flush_verdicts` sends the verdict: accept, mark or drop.
//! 2. The kernel's TCP delivers it to the relay's socket. `on_socket` marks the relay ready, `serve_relays` calls
//!    `read_relay`, which reads bytes while `PepMemory::readable` allows it and hands them to `Gateway::process`.
//! 3. After the PEP's processing time `on_bytes_processed` calls `enqueue_chunks`: chunks enter the transmit queue by
//!    `Gateway::transmit` as far as the windows of `Chunks` allow.
//! 4. The regulator releases a chunk: `on_sent` calls `send_chunk`, which writes it to the stream.
//! 5. `flush_spacelink` sends the QUIC packets and charges the regulator for bytes that it did not count.
//!
//! Through the terminal:
//!
//! 6. `receive_spacelink` hands the datagram to the spacelink, whose `Event::Readable` marks the relay ready.
//! 7. `serve_relays` calls `Relay::move_inward`, which writes the bytes to the client's socket and reports them as delivered.
//! 8. The credit reaches the gateway as `Event::Acknowledged`: `on_delivered` frees the buffer, wakes the relays that wait
//!    for it, and offers the server a larger window.
//!
//! A packet that is not split is routed into the TUN device: `read_tun`, `process_datagram`, `Gateway::process` and
//! `Gateway::transmit`, `send_datagram`; at the other end `deliver_datagram` writes it to that end's TUN device.

pub mod config;
pub mod event_loop;
pub mod intercept;
pub mod observe;
pub mod relay;
pub mod sys;
