//! The subset of HTTP/1.1 (RFC 9112) that transfers objects of a given length over persistent connections.
//!
//! A download requests a range of an object; without a range, `serve` sends endlessly. An upload declares its length or
//! ends when the client closes its half of the connection. The last part of a path at `serve` is the user's number.

use std::fmt::Write as _;
use std::net::IpAddr;

/// Maximum length of a header [bytes].
pub const MAX_HEADER: usize = 8 << 10;

/// A GET request for `bytes`, or for an endless object, padded to at least `size` bytes. `last`: no other request follows on
/// this connection.
#[must_use]
pub fn get(host: IpAddr, path: &str, bytes: Option<u64>, size: u64, last: bool) -> Vec<u8> {
    let mut text = head("GET", host, path);
    if let Some(bytes) = bytes {
        let _ = write!(text, "Range: bytes=0-{}\r\n", bytes.saturating_sub(1));
    }
    if last {
        text.push_str("Connection: close\r\n");
    }
    // "X-Pad: " with its CRLF, and the empty line.
    let frame = 9 + 2;
    let pad = (size as usize).saturating_sub(text.len() + frame).min(MAX_HEADER - 1024);
    if pad > 0 {
        let _ = write!(text, "X-Pad: {}\r\n", "x".repeat(pad));
    }
    text.push_str("\r\n");
    text.into_bytes()
}

/// The header of an upload of `bytes`, or of one until the end of the stream, by a client that opened the connection at
/// `opened` (CLOCK_MONOTONIC [ns]).
#[must_use]
pub fn post(host: IpAddr, path: &str, bytes: Option<u64>, opened: u64) -> Vec<u8> {
    let mut text = head("POST", host, path);
    if let Some(bytes) = bytes {
        let _ = write!(text, "Content-Length: {bytes}\r\n");
    }
    let _ = write!(text, "X-Opened: {opened}\r\nConnection: close\r\n\r\n");
    text.into_bytes()
}

fn head(method: &str, host: IpAddr, path: &str) -> String {
    match host {
        IpAddr::V4(host) => format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n"),
        IpAddr::V6(host) => format!("{method} {path} HTTP/1.1\r\nHost: [{host}]\r\n"),
    }
}

/// The header of a response with `bytes`, or of an endless one.
#[must_use]
pub fn response(bytes: Option<u64>, last: bool) -> Vec<u8> {
    let mut text = match bytes {
        Some(bytes) => format!("HTTP/1.1 206 Partial Content\r\nContent-Length: {bytes}\r\n"),
        None => "HTTP/1.1 200 OK\r\n".to_owned(),
    };
    if last || bytes.is_none() {
        text.push_str("Connection: close\r\n");
    }
    text.push_str("\r\n");
    text.into_bytes()
}

/// Fields of a message header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Words of the first line: method, path and version, or version, status and reason.
    pub first: [String; 3],
    /// `Content-Length`.
    pub length: Option<u64>,
    /// Number of bytes that `Range` requests, from the first on.
    pub range: Option<u64>,
    /// Time at which the client opened the connection (CLOCK_MONOTONIC [ns]).
    pub opened: Option<u64>,
    /// True if the connection closes after the message.
    pub close: bool,
    /// Length of the header [bytes].
    pub size: usize,
}

/// Parses the header at the beginning of `bytes`; `None` if it is incomplete.
///
/// # Errors
/// If it is not HTTP/1.1 or longer than [`MAX_HEADER`].
pub fn parse(bytes: &[u8]) -> Result<Option<Header>, &'static str> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return if bytes.len() >= MAX_HEADER { Err("header too long") } else { Ok(None) };
    };
    let Ok(text) = std::str::from_utf8(&bytes[..end]) else { return Err("header is not UTF-8") };
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().splitn(3, ' ').map(str::to_owned);
    let first = [(); 3].map(|()| words.next().unwrap_or_default());
    if !first.iter().any(|word| word.starts_with("HTTP/1.")) {
        return Err("not HTTP/1.1");
    }
    let mut header = Header { first, length: None, range: None, opened: None, close: false, size: end + 4 };
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { return Err("header line without a name") };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => header.length = value.parse().ok(),
            "x-opened" => header.opened = value.parse().ok(),
            "connection" => header.close = value.eq_ignore_ascii_case("close"),
            "range" => {
                let last: Option<u64> = value.strip_prefix("bytes=0-").and_then(|last| last.parse().ok());
                let Some(last) = last else { return Err("range does not start at 0") };
                header.range = Some(last.saturating_add(1));
            }
            _ => {}
        }
    }
    Ok(Some(header))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_padded_to_the_given_size() {
        let host = "10.1.0.1".parse().unwrap();
        for size in [0, 200, 201, 300, 1000] {
            let request = get(host, "/object", Some(400_000), size, true);
            let header = parse(&request).unwrap().unwrap();
            assert_eq!((header.range, header.close, header.size), (Some(400_000), true, request.len()));
            assert_eq!(header.first[1], "/object");
            assert!(request.len() as u64 == size || size < 120, "{size}: {}", request.len());
        }
        let header = parse(&get("fd01::1".parse().unwrap(), "/3", None, 0, false)).unwrap().unwrap();
        assert_eq!((header.range, header.close), (None, false));
    }

    #[test]
    fn a_header_is_parsed_once_it_is_complete() {
        let text = response(Some(1234), false);
        for end in 0..text.len() {
            assert_eq!(parse(&text[..end]), Ok(None));
        }
        let header = parse(&text).unwrap().unwrap();
        assert_eq!((header.length, header.close, header.first[1].as_str()), (Some(1234), false, "206"));
        assert!(parse(&response(None, false)).unwrap().unwrap().close);
        let header = parse(&post("10.1.0.1".parse().unwrap(), "/1", Some(7), 5)).unwrap().unwrap();
        assert_eq!((header.length, header.opened), (Some(7), Some(5)));
    }

    #[test]
    fn input_other_than_http_is_rejected() {
        assert!(parse(b"SSH-2.0\r\n\r\n").is_err());
        assert!(parse(b"GET / HTTP/1.1\r\nRange: bytes=5-9\r\n\r\n").is_err());
        assert!(parse(&vec![b'x'; MAX_HEADER + 1]).is_err());
        assert!(parse(b"\xff\xfe\r\n\r\n").is_err());
    }
}
