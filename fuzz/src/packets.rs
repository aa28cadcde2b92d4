//! Any bytes as a packet: nothing panics, and a rewrite changes the named field and its checksum only.

use bentpipe_packet::build::window_update;
use bentpipe_packet::{Info, TCP, TcpInfo, header_len, parse, set_ce, set_window};
use bentpipe_queue::Ecn;

/// Sum of big-endian 16-bit words modulo 65 535. A correct Internet checksum makes it 0, and a rewrite that adjusts the
/// checksum leaves it unchanged.
pub fn residue(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .enumerate()
        .map(|(at, byte)| u64::from(*byte) << if at % 2 == 0 { 8 } else { 0 })
        .sum::<u64>()
        % 65_535
}

/// Fails with `problem` unless the condition holds.
pub fn must(holds: bool, problem: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem.to_owned()) }
}

/// Number of positions at which two packets differ.
fn differences(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).filter(|(a, b)| a != b).count()
}

/// Parses and rewrites a packet; returns the first problem found.
pub fn run(before: &[u8]) -> Result<(), String> {
    let info = parse(before);

    let mut after = before.to_vec();
    let marked = set_ce(&mut after);
    match info {
        None => must(!marked && after == before, "bytes that are not a packet were marked")?,
        Some(info) => {
            must(marked == (info.ecn != Ecn::NotEct), "set_ce does not follow the ECN field")?;
            let expected = if marked { Info { ecn: Ecn::Ce, ..info } } else { info };
            must(parse(&after) == Some(expected), "set_ce changed another field")?;
            must(differences(before, &after) <= 3, "set_ce changed more than 3 bytes")?;
            must(info.version == 6 || residue(before) == residue(&after), "set_ce broke a checksum")?;
        }
    }

    let mut after = before.to_vec();
    let window = u16::from(before.len() as u8).wrapping_mul(257);
    let set = set_window(&mut after, window);
    let tcp = info.and_then(|info| info.tcp);
    must(set == tcp.is_some(), "set_window and parse disagree about the TCP header")?;
    must(set == header_len(before).is_some(), "set_window and header_len disagree about the TCP header")?;
    if let (Some(info), Some(tcp)) = (info, tcp) {
        let expected = Info { tcp: Some(TcpInfo { window, ..tcp }), ..info };
        must(parse(&after) == Some(expected), "set_window changed another field")?;
        must(differences(before, &after) <= 4, "set_window changed more than 4 bytes")?;
        must(residue(before) == residue(&after), "set_window broke a checksum")?;
        must(header_len(before).is_some_and(|length| length <= before.len()), "headers exceed the packet")?;
    } else {
        must(after == before, "set_window changed a packet without a TCP header")?;
    }

    let mut update = Vec::new();
    if window_update(before, 7, 9, &mut update) {
        let (Some(old), Some(info)) = (tcp, parse(&update)) else {
            return Err("window update for a packet without a TCP header".to_owned());
        };
        let Some(tcp) = info.tcp else { return Err("window update without a TCP header".to_owned()) };
        must(
            (tcp.seq, tcp.ack, tcp.window, tcp.payload) == (7, old.ack, 9, 0),
            "window update with wrong fields",
        )?;
        must(info.len as usize == update.len(), "window update with a wrong length")?;
        let (header, addresses) = if info.version == 4 { (20, 12..20) } else { (40, 8..40) };
        must(info.version == 6 || residue(&update[..20]) == 0, "window update with a wrong IP checksum")?;
        let segment = &update[header..];
        let sum = residue(&update[addresses]) + residue(segment) + u64::from(TCP) + segment.len() as u64;
        must(sum.is_multiple_of(65_535), "window update with a wrong TCP checksum")?;
    } else {
        must(update.is_empty(), "output without a window update")?;
    }
    Ok(())
}
