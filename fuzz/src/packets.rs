//! Bytes taken for a packet, for what netlink sends, or for what the far end says: whatever they are, nothing may panic,
//! and a packet may change only where it is meant to.
//!
//! The first byte says what the others are: a packet as it stands, netlink messages, frames of the spacelink, or packets of
//! which those with a window go through window marking, each behind a byte for its direction, one for the room and one for
//! its length.

use bentpipe_gatewayd::intercept::netlink::{Message, message_at};
use bentpipe_gatewayd::intercept::windows::Windows;
use bentpipe_gatewayd::intercept::wire::{self, Info, TcpInfo};
use bentpipe_queue::Ecn;
use bentpipe_spacelink::frames::{self, Control, Datagram, MAX_FRAGMENTS, Open};

/// What a sum of 16-bit words leaves when divided by 65 535. It stays the same when a checksum follows what it covers.
pub fn residue(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .enumerate()
        .map(|(at, byte)| u64::from(*byte) << if at % 2 == 0 { 8 } else { 0 })
        .sum::<u64>()
        % 65_535
}

/// Reads and changes; says what was found wrong.
pub fn run(bytes: &[u8]) -> Result<(), String> {
    match bytes.split_first() {
        None => Ok(()),
        Some((kind, rest)) => match kind % 5 {
            2 => windows(rest),
            3 => netlink(rest),
            4 => frames(rest),
            _ => packet(rest),
        },
    }
}

fn must(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

/// Places at which two packets differ.
fn differences(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).filter(|(a, b)| a != b).count()
}

fn packet(before: &[u8]) -> Result<(), String> {
    let info = wire::parse(before);

    let mut after = before.to_vec();
    let marked = wire::set_ce(&mut after);
    match info {
        None => must(!marked && after == before, "bytes that are no packet were marked")?,
        Some(info) => {
            must(marked == (info.ecn != Ecn::NotEct), "the mark does not go by the ECN field")?;
            let expected = if marked { Info { ecn: Ecn::Ce, ..info } } else { info };
            must(wire::parse(&after) == Some(expected), "a mark changed what else a packet says")?;
            must(differences(before, &after) <= 3, "a mark changed other bytes")?;
            must(info.version == 6 || residue(before) == residue(&after), "a mark broke a checksum")?;
        }
    }

    let mut after = before.to_vec();
    let window = u16::from(before.len() as u8).wrapping_mul(257);
    let set = wire::set_window(&mut after, window);
    let tcp = info.and_then(|info| info.tcp);
    must(set == tcp.is_some(), "a window was set where there is none, or not where there is one")?;
    must(set == wire::headers(before).is_some(), "headers and windows do not agree")?;
    if let (Some(info), Some(tcp)) = (info, tcp) {
        let expected = Info { tcp: Some(TcpInfo { window, ..tcp }), ..info };
        must(wire::parse(&after) == Some(expected), "a window changed what else a packet says")?;
        must(differences(before, &after) <= 4, "a window changed other bytes")?;
        must(residue(before) == residue(&after), "a window broke a checksum")?;
        must(
            wire::headers(before).is_some_and(|length| length <= before.len()),
            "headers end after the packet",
        )?;
    } else {
        must(after == before, "a window changed a packet without one")?;
    }

    let mut update = Vec::new();
    if wire::window_update(before, 7, 9, &mut update) {
        let (Some(old), Some(info)) = (tcp, wire::parse(&update)) else {
            return Err("an update of nothing".to_owned());
        };
        let Some(tcp) = info.tcp else { return Err("an update without a TCP header".to_owned()) };
        must(
            (tcp.seq, tcp.ack, tcp.window, tcp.payload) == (7, old.ack, 9, 0),
            "an update says something else",
        )?;
        must(info.len as usize == update.len(), "an update's length is wrong")?;
        let (header, addresses) = if info.version == 4 { (20, 12..20) } else { (40, 8..40) };
        must(info.version == 6 || residue(&update[..20]) == 0, "an update's IP checksum is wrong")?;
        let segment = &update[header..];
        let sum =
            residue(&update[addresses]) + residue(segment) + u64::from(wire::TCP) + segment.len() as u64;
        must(sum.is_multiple_of(65_535), "an update's TCP checksum is wrong")?;
    } else {
        must(update.is_empty(), "what is no update is not empty")?;
    }
    Ok(())
}

fn netlink(bytes: &[u8]) -> Result<(), String> {
    let mut at = 0;
    while let Some((message, next)) = message_at(bytes, at) {
        must(next >= at + 16, "a message is shorter than its header")?;
        if let Message::Packet { at: from, len, .. } = message {
            must(from >= at && from + len <= next.min(bytes.len()), "a packet is not in its message")?;
        }
        at = next;
    }
    Ok(())
}

/// What was taken must be what its encoding says.
fn frames(bytes: &[u8]) -> Result<(), String> {
    let mut again = Vec::new();
    if let Ok(Some((open, length))) = Open::parse(bytes) {
        open.encode(&mut again);
        must(bytes.get(..length) == Some(&again), "an open is not what it says")?;
    }
    let mut rest = bytes;
    while let Ok(Some((frame, length))) = Control::parse(rest) {
        again.clear();
        frame.encode(&mut again);
        // Its integers may have been longer than they need be.
        must(again.len() <= length, "a frame is longer than what it was read from")?;
        must(Control::parse(&again) == Ok(Some((frame, again.len()))), "a frame is not what it says")?;
        rest = rest
            .get(length..)
            .filter(|rest| rest.len() < bytes.len())
            .ok_or("a frame is longer than it is")?;
    }
    match Datagram::parse(bytes) {
        Ok(Datagram::Packet(packet)) => {
            must(frames::packet_datagram(packet) == bytes, "a packet is not all there")
        }
        Ok(Datagram::Fragment { packet, index, count, data }) => {
            must(index < count && usize::from(count) <= MAX_FRAGMENTS, "a fragment is none of its packet")?;
            must(
                frames::fragment_datagram(packet, index, count, data) == bytes,
                "a fragment is not all there",
            )
        }
        Ok(Datagram::Credits(credits)) => {
            let mut left: Vec<_> = credits.collect();
            must(left.len() <= bytes.len() / 2, "more credits than bytes for them")?;
            left.reverse();
            let (said, again) = (left.clone(), frames::credits_datagram(&mut left, usize::MAX));
            let Ok(Datagram::Credits(heard)) = Datagram::parse(&again) else {
                return Err("credits are no credits".to_owned());
            };
            must(heard.eq(said.into_iter().rev()), "credits are not what they say")
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
        // None, or any order of magnitude.
        let room = room.checked_sub(1).map(|room| u64::from(room) << (room % 48));
        let Some(info) = wire::parse(before) else { continue };
        if direction % 2 == 0 {
            windows.incoming(&info);
            continue;
        }
        let mut after = before.to_vec();
        let changed = windows.outgoing(&mut after, &mut |_, _| room);
        let window = |packet| wire::parse(packet).and_then(|info| info.tcp).map(|tcp| tcp.window);
        must(changed == (after != before), "a window was changed in silence, or not changed aloud")?;
        must(window(&after) <= window(before), "a window became larger")?;
        must(residue(before) == residue(&after), "a window broke a checksum")?;
        if windows.update(info.src, info.dst, room.unwrap_or(0), &mut update) {
            must(window(&update) > window(&after), "an update offers nothing")?;
            packet(&update)?;
        }
    }
    Ok(())
}
