//! The table of terminals that `bentpipe-gateway status` prints, from the HTTP server of a running daemon.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Columns of the table: names to the left, numbers to the right.
const COLUMNS: usize = 13;

/// Longest wait for an answer.
const MOST_TIME: Duration = Duration::from_secs(5);

/// Reads the terminals of the daemon whose metrics are at `listen`, as JSON.
///
/// # Errors
/// If nothing answers there, or something else.
pub fn read(listen: SocketAddr) -> io::Result<String> {
    let host = match listen.ip() {
        IpAddr::V4(any) if any.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(any) if any.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        host => host,
    };
    let mut stream = TcpStream::connect_timeout(&SocketAddr::new(host, listen.port()), MOST_TIME)?;
    stream.set_read_timeout(Some(MOST_TIME))?;
    stream.write_all(b"GET /terminals.json HTTP/1.1\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").filter(|(head, _)| head.starts_with("HTTP/1.1 200 "));
    let (_, body) = body.ok_or_else(|| io::Error::other("the answer is not that of a gateway"))?;
    Ok(body.to_owned())
}

/// The table of the terminals in `json`: those that are sent most first.
///
/// # Errors
/// If `json` is not what [`read`] returns.
pub fn table(json: &str) -> Result<String, String> {
    let read: Value = serde_json::from_str(json).map_err(|e| format!("the answer is not JSON: {e}"))?;
    let mut rows = read["terminals"].as_array().ok_or("the answer has no terminals")?.clone();
    let number = |row: &Value, key: &str| row[key].as_f64();
    rows.sort_by(|a, b| {
        let sent = |row| number(row, "sent_bps").unwrap_or(-1.0);
        sent(b).total_cmp(&sent(a)).then_with(|| a["terminal"].as_str().cmp(&b["terminal"].as_str()))
    });
    let shown = |row: &Value, key: &str, scale: f64, digits: usize| {
        number(row, key).map_or("-".to_owned(), |value| format!("{:.digits$}", value * scale))
    };
    let heads = [
        "terminal",
        "plan",
        "state",
        "sent Mbit/s",
        "received Mbit/s",
        "queue kB",
        "delay ms",
        "drops %",
        "loss %",
        "RTT ms",
        "MOS",
        "connections",
        "limit",
    ];
    let mut lines = vec![heads.map(str::to_owned)];
    lines.extend(rows.iter().map(|row| {
        let text = |key: &str| row[key].as_str().unwrap_or("-").to_owned();
        [
            text("terminal"),
            text("plan"),
            text("state"),
            shown(row, "sent_bps", 1e-6, 3),
            shown(row, "received_bps", 1e-6, 3),
            shown(row, "queue_bytes", 1e-3, 1),
            shown(row, "queue_delay_s", 1e3, 1),
            shown(row, "drop_ratio", 100.0, 2),
            shown(row, "loss_ratio", 100.0, 2),
            shown(row, "rtt_s", 1e3, 1),
            shown(row, "mos", 1.0, 2),
            shown(row, "connections", 1.0, 0),
            text("bottleneck"),
        ]
    }));
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut table = String::new();
    for line in &lines {
        let mut text = String::new();
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            let is_name = column < 3 || column == COLUMNS - 1;
            let _ = if is_name { write!(text, "{cell:width$}  ") } else { write!(text, "{cell:>width$}  ") };
        }
        let _ = writeln!(table, "{}", text.trim_end());
    }
    let up = rows.iter().filter(|row| row["state"] != "down").count();
    let _ = write!(table, "{up} of {} connected", rows.len());
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lists_the_busiest_terminals_first() {
        let json = r#"{"terminals": [
            {"terminal": "a", "plan": null, "state": "down", "sent_bps": 0.0, "received_bps": 0.0, "queue_bytes": null,
             "queue_delay_s": null, "drop_ratio": null, "loss_ratio": null, "rtt_s": null, "mos": null, "connections": 0,
             "bottleneck": "nothing"},
            {"terminal": "office-1", "plan": "office", "state": "up", "sent_bps": 12345678.0, "received_bps": 1e5,
             "queue_bytes": 2500, "queue_delay_s": 0.0123, "drop_ratio": 0.002, "loss_ratio": 0.0125, "rtt_s": 0.6123,
             "mos": 3.4567, "connections": 17, "bottleneck": "regulator"}]}"#;
        let expected = "\
terminal  plan    state  sent Mbit/s  received Mbit/s  queue kB  delay ms  drops %  loss %  RTT ms   MOS  connections  limit
office-1  office  up          12.346            0.100       2.5      12.3     0.20    1.25   612.3  3.46           17  regulator
a         -       down         0.000            0.000         -         -        -       -       -     -            0  nothing
1 of 2 connected";
        assert_eq!(table(json).unwrap(), expected);
        assert!(table("{}").is_err() && table("x").is_err());
    }
}
