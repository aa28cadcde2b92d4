//! Any bytes as input of the live gateway: nothing panics, and a packet changes only in the fields that are meant to
//! change.
//!
//! The first byte selects the parser of the rest: a packet, netlink messages, spacelink frames, a configuration, the head of
//! a request over HTTP, or a sequence of packets for window marking, each behind three bytes (direction, buffer space, length).

use std::sync::LazyLock;

use bentpipe_gatewayd::config::{Config, Role, listing};
use bentpipe_gatewayd::intercept::netlink::{Message, message_at};
use bentpipe_gatewayd::intercept::windows::Windows;
use bentpipe_gatewayd::observe::http::answer;
use bentpipe_gatewayd::observe::metrics::About;
use bentpipe_gatewayd::observe::state::Shared;
use bentpipe_packet::parse;
use bentpipe_spacelink::frames::{self, Control, Datagram, MAX_FRAGMENTS, Open};
use bentpipe_units::Duration;

mod packets;

use packets::{must, residue};

/// Runs the selected parser; returns the first problem found.
pub fn run(bytes: &[u8]) -> Result<(), String> {
    match bytes.split_first() {
        None => Ok(()),
        Some((kind, rest)) => match kind % 7 {
            2 => windows(rest),
            3 => netlink(rest),
            4 => frames(rest),
            5 => configuration(rest),
            6 => request(rest),
            _ => packets::run(rest),
        },
    }
}

/// Every request gets a response, whose body is as long as its head says, and the page only if it asks for it.
fn request(head: &[u8]) -> Result<(), String> {
    static SHARED: LazyLock<Shared> = LazyLock::new(|| {
        let (role, none) = (Role::Gateway, String::new);
        let about = About { role, aqm: none(), scheduler: none(), marking: none(), reloaded: (0.0, true) };
        Shared::new(about, Duration::from_secs(1), Duration::from_secs(2))
    });
    let text = answer(head, &SHARED, 0);
    let text = std::str::from_utf8(&text).map_err(|_| "a response is not UTF-8")?;
    let (lines, body) = text.split_once("\r\n\r\n").ok_or("a response without an end of its head")?;
    must(lines.starts_with("HTTP/1.1 "), "a response without a status")?;
    let length = lines.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let is_head = head.starts_with(b"HEAD ");
    must(is_head || length == Some(&body.len().to_string()), "the length of a body is not that of its head")?;
    must(lines.lines().count() <= 10, "a request adds lines to the head")?;
    let is_page = lines.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html");
    let asks =
        ["GET / ", "GET /?", "HEAD / ", "HEAD /?"].iter().any(|line| head.starts_with(line.as_bytes()));
    must(asks || !is_page, "the page without a request for it")
}

fn netlink(bytes: &[u8]) -> Result<(), String> {
    let mut at = 0;
    while let Some((message, next)) = message_at(bytes, at) {
        must(next >= at + 16, "a netlink message is shorter than its header")?;
        if let Message::Packet { at: from, len, .. } = message {
            must(from >= at && from + len <= next.min(bytes.len()), "a packet exceeds its netlink message")?;
        }
        at = next;
    }
    Ok(())
}

/// An accepted configuration can be listed; a refused one has a message of one line with the file's name.
fn configuration(bytes: &[u8]) -> Result<(), String> {
    match Config::parse(&String::from_utf8_lossy(bytes), "x.toml") {
        Ok(config) => must(!listing(&config).is_empty(), "a configuration lists no values"),
        Err(error) => {
            let text = error.to_string();
            must(
                text.starts_with("x.toml") && !text.contains('\n'),
                "a message is not one line with the file's name",
            )
        }
    }
}

/// Encoding a parsed frame gives the parsed bytes.
fn frames(bytes: &[u8]) -> Result<(), String> {
    let mut again = Vec::new();
    if let Ok(Some((open, length))) = Open::parse(bytes) {
        open.encode(&mut again);
        must(bytes.get(..length) == Some(&again), "Open encodes to other bytes")?;
    }
    let mut rest = bytes;
    while let Ok(Some((frame, length))) = Control::parse(rest) {
        again.clear();
        frame.encode(&mut again);
        // The integers may have been encoded with more bytes than necessary.
        must(again.len() <= length, "Control encodes to more bytes than it was parsed from")?;
        must(
            Control::parse(&again) == Ok(Some((frame, again.len()))),
            "Control parses to another frame after encoding",
        )?;
        rest = rest
            .get(length..)
            .filter(|rest| rest.len() < bytes.len())
            .ok_or("Control is longer than the input")?;
    }
    match Datagram::parse(bytes) {
        Ok(Datagram::Packet(packet)) => {
            must(frames::packet_datagram(packet) == bytes, "a packet datagram encodes to other bytes")
        }
        Ok(Datagram::Fragment { packet, index, count, data }) => {
            must(
                index < count && usize::from(count) <= MAX_FRAGMENTS,
                "a fragment index exceeds the fragment count",
            )?;
            must(
                frames::fragment_datagram(packet, index, count, data) == bytes,
                "a fragment datagram encodes to other bytes",
            )
        }
        Ok(Datagram::Credits(credits)) => {
            let mut left: Vec<_> = credits.collect();
            must(left.len() <= bytes.len() / 2, "more credits than the input can hold")?;
            left.reverse();
            let (encoded, again) = (left.clone(), frames::credits_datagram(&mut left, usize::MAX));
            let Ok(Datagram::Credits(parsed)) = Datagram::parse(&again) else {
                return Err("encoded credits do not parse".to_owned());
            };
            must(parsed.eq(encoded.into_iter().rev()), "credits parse to others after encoding")
        }
        Err(frames::Malformed) => Ok(()),
    }
}

fn windows(mut bytes: &[u8]) -> Result<(), String> {
    let mut windows = Windows::new();
    let mut update = Vec::new();
    while let [direction, room, length, rest @ ..] = bytes {
        let (before, next) = rest.split_at(usize::from(*length).min(rest.len()));
        bytes = next;
        // No limit, or any order of magnitude.
        let room = room.checked_sub(1).map(|room| u64::from(room) << (room % 48));
        let Some(info) = parse(before) else { continue };
        if direction % 2 == 0 {
            windows.incoming(&info);
            continue;
        }
        let mut after = before.to_vec();
        let changed = windows.outgoing(&mut after, &mut |_, _| room);
        let window = |packet| parse(packet).and_then(|info| info.tcp).map(|tcp| tcp.window);
        must(changed == (after != before), "outgoing() misreports whether it changed the packet")?;
        must(window(&after) <= window(before), "outgoing() increased a window")?;
        must(residue(before) == residue(&after), "outgoing() broke a checksum")?;
        if windows.update(info.src, info.dst, room.unwrap_or(0), &mut update) {
            must(window(&update) > window(&after), "an update offers no more than the last acknowledgement")?;
            packets::run(&update)?;
        }
    }
    Ok(())
}
