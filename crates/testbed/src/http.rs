//! As much of HTTP/1.1 (RFC 9112) as objects of a given length need, over connections that stay open for several.
//!
//! A download asks for a range of an object, or, of `serve`, without a range for bytes without end. An upload says how much is to
//! come, or sends until it closes its half. The path of `serve` ends in the user's number.

use std::fmt::Write as _;
use std::net::IpAddr;

/// The longest header [bytes].
pub const LONGEST: usize = 8 << 10;

/// A request for `bytes`, or for bytes without end, padded to `size` bytes where that is more; the `last` of its connection.
#[must_use]
pub fn get(host: IpAddr, path: &str, bytes: Option<u64>, size: u64, last: bool) -> Vec<u8> {
    let mut text = head("GET", host, path);
    if let Some(bytes) = bytes {
        let _ = write!(text, "Range: bytes=0-{}\r\n", bytes.saturating_sub(1));
    }
    if last {
        text.push_str("Connection: close\r\n");
    }
    // "X-Pad: " and the line's end, then the header's.
    let frame = 9 + 2;
    let pad = (size as usize).saturating_sub(text.len() + frame).min(LONGEST - 1024);
    if pad > 0 {
        let _ = write!(text, "X-Pad: {}\r\n", "x".repeat(pad));
    }
    text.push_str("\r\n");
    text.into_bytes()
}

/// The header of what is sent to the server: so many bytes, or until the end.
#[must_use]
pub fn post(host: IpAddr, path: &str, bytes: Option<u64>) -> Vec<u8> {
    let mut text = head("POST", host, path);
    if let Some(bytes) = bytes {
        let _ = write!(text, "Content-Length: {bytes}\r\n");
    }
    text.push_str("Connection: close\r\n\r\n");
    text.into_bytes()
}

fn head(method: &str, host: IpAddr, path: &str) -> String {
    match host {
        IpAddr::V4(host) => format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n"),
        IpAddr::V6(host) => format!("{method} {path} HTTP/1.1\r\nHost: [{host}]\r\n"),
    }
}

/// The header of an answer that has so many bytes, or goes on without end.
#[must_use]
pub fn answer(bytes: Option<u64>, last: bool) -> Vec<u8> {
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

/// The header of a message, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The first line's words: method, path and version, or version, status and reason.
    pub first: [String; 3],
    /// `Content-Length`.
    pub length: Option<u64>,
    /// How many bytes `Range` asks for, from the first on.
    pub range: Option<u64>,
    /// Whether the connection is closed after it.
    pub close: bool,
    /// How long it is [bytes].
    pub size: usize,
}

/// Reads a header from the beginning of what has come; none where it is not whole.
///
/// # Errors
/// Where it is none, or too long.
pub fn read(bytes: &[u8]) -> Result<Option<Header>, &'static str> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return if bytes.len() >= LONGEST { Err("a header that is too long") } else { Ok(None) };
    };
    let Ok(text) = std::str::from_utf8(&bytes[..end]) else { return Err("a header that is no text") };
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().splitn(3, ' ').map(str::to_owned);
    let first = [(); 3].map(|()| words.next().unwrap_or_default());
    if !first.iter().any(|word| word.starts_with("HTTP/1.")) {
        return Err("no HTTP/1.1");
    }
    let mut header = Header { first, length: None, range: None, close: false, size: end + 4 };
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { return Err("a line without a name") };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => header.length = value.parse().ok(),
            "connection" => header.close = value.eq_ignore_ascii_case("close"),
            "range" => {
                let last: Option<u64> = value.strip_prefix("bytes=0-").and_then(|last| last.parse().ok());
                let Some(last) = last else { return Err("a range that is none from 0 on") };
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
    fn a_request_has_the_length_that_is_asked_for() {
        let host = "10.1.0.1".parse().unwrap();
        for size in [0, 200, 201, 300, 1000] {
            let request = get(host, "/object", Some(400_000), size, true);
            let header = read(&request).unwrap().unwrap();
            assert_eq!((header.range, header.close, header.size), (Some(400_000), true, request.len()));
            assert_eq!(header.first[1], "/object");
            assert!(request.len() as u64 == size || size < 120, "{size}: {}", request.len());
        }
        let header = read(&get("fd01::1".parse().unwrap(), "/3", None, 0, false)).unwrap().unwrap();
        assert_eq!((header.range, header.close), (None, false));
    }

    #[test]
    fn an_answer_is_read_once_it_is_whole() {
        let text = answer(Some(1234), false);
        for end in 0..text.len() {
            assert_eq!(read(&text[..end]), Ok(None));
        }
        let header = read(&text).unwrap().unwrap();
        assert_eq!((header.length, header.close, header.first[1].as_str()), (Some(1234), false, "206"));
        assert!(read(&answer(None, false)).unwrap().unwrap().close);
        assert_eq!(read(&post("10.1.0.1".parse().unwrap(), "/1", Some(7))).unwrap().unwrap().length, Some(7));
    }

    #[test]
    fn what_is_no_http_is_refused() {
        assert!(read(b"SSH-2.0\r\n\r\n").is_err());
        assert!(read(b"GET / HTTP/1.1\r\nRange: bytes=5-9\r\n\r\n").is_err());
        assert!(read(&vec![b'x'; LONGEST + 1]).is_err());
        assert!(read(b"\xff\xfe\r\n\r\n").is_err());
    }
}
