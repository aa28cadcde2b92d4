//! A small HTTP server in its own thread: `/metrics`, the built-in page, and an API that only reads (`openapi.json`).
//!
//! One request per connection (RFC 9112, `Connection: close`), only GET and HEAD, no body. The number of connections, the
//! length of a request and its time are limited, so that no client can make the server hold much.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::thread;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::observe::state::Shared;
use crate::sys::clock::monotonic_ms;

/// Description of all answers (OpenAPI 3.1).
const OPENAPI: &str = include_str!("openapi.json");

/// Paths that are served.
const PATHS: &str = "/, /metrics, /healthz, /state.json, /terminals.json, /terminals/{terminal}.json, /plans.json, /openapi.json";

/// The built-in page, which loads nothing from elsewhere.
const PAGE: &str = include_str!("page.html");

/// Connections at a time. The next one replaces the oldest whose request is incomplete, or waits until one ends.
const MOST_CONNECTIONS: usize = 32;

/// Longest head of a request [bytes].
const LONGEST_HEAD: usize = 4096;

/// Longest time of a connection [ms].
const MOST_TIME_MS: u64 = 3000;

/// Serves at an address until the process ends. Returns the address with its port, which the system chooses if it is 0.
///
/// # Errors
/// If the address is not available.
pub fn serve(listen: SocketAddr, shared: Shared) -> io::Result<SocketAddr> {
    serve_within(listen, shared, MOST_TIME_MS)
}

/// Serves as [`serve`] does, each connection for at most `most_time` [ms].
fn serve_within(listen: SocketAddr, shared: Shared, most_time: u64) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let mut server = Server { listener, connections: Vec::new(), shared, most_time };
    thread::Builder::new().name("http".to_owned()).spawn(move || {
        loop {
            // An error of one connection ends that one; an error of the server is retried.
            if server.turn().is_err() {
                thread::sleep(std::time::Duration::from_millis(100));
            }
        }
    })?;
    Ok(address)
}

struct Server {
    listener: TcpListener,
    connections: Vec<Connection>,
    shared: Shared,
    /// Longest time of a connection [ms].
    most_time: u64,
}

struct Connection {
    stream: TcpStream,
    /// Deadline [ms of CLOCK_MONOTONIC].
    until: u64,
    head: Vec<u8>,
    answer: Vec<u8>,
    written: usize,
}

impl Server {
    /// Waits for events and handles them.
    fn turn(&mut self) -> io::Result<()> {
        let mut waits = Vec::with_capacity(self.connections.len() + 1);
        for c in &self.connections {
            let flags = if c.is_writing() { PollFlags::POLLOUT } else { PollFlags::POLLIN };
            waits.push(PollFd::new(c.stream.as_fd(), flags));
        }
        if self.has_room() {
            waits.push(PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
        }
        let now = monotonic_ms();
        let next = self.connections.iter().map(|c| c.until.saturating_sub(now)).min();
        let timeout =
            next.map_or(PollTimeout::NONE, |ms| PollTimeout::from((ms + 1).min(MOST_TIME_MS) as u16));
        match poll(&mut waits, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let shared = &self.shared;
        let now = monotonic_ms();
        self.connections.retain_mut(|c| c.until > now && !c.advance(shared));
        while self.has_room() {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
                // Most likely no descriptor is left; the listener stays readable.
                Err(e) => return Err(e),
            };
            if self.connections.len() >= MOST_CONNECTIONS
                && let Some(oldest) = self.connections.iter().position(|c| c.answer.is_empty())
            {
                self.connections.remove(oldest);
            }
            if stream.set_nonblocking(true).is_ok() {
                let (head, answer) = (Vec::new(), Vec::new());
                self.connections.push(Connection {
                    stream,
                    until: now + self.most_time,
                    head,
                    answer,
                    written: 0,
                });
            }
        }
        Ok(())
    }

    /// True if a connection can be accepted: there is a free place, or a client that has not completed its request.
    fn has_room(&self) -> bool {
        self.connections.len() < MOST_CONNECTIONS || self.connections.iter().any(|c| c.answer.is_empty())
    }
}

impl Connection {
    fn is_writing(&self) -> bool {
        self.written < self.answer.len()
    }

    /// Reads and writes as far as possible. Returns true once the connection is done.
    fn advance(&mut self, shared: &Shared) -> bool {
        match self.try_advance(shared) {
            Ok(done) => done,
            Err(e) => e.kind() != io::ErrorKind::WouldBlock,
        }
    }

    fn try_advance(&mut self, shared: &Shared) -> io::Result<bool> {
        let mut part = [0; 1024];
        while self.answer.is_empty() {
            let len = self.stream.read(&mut part)?;
            if len == 0 {
                return Ok(true);
            }
            self.head.extend_from_slice(&part[..len]);
            if self.head.windows(4).any(|end| end == b"\r\n\r\n") {
                self.answer = answer(&self.head, shared, monotonic_ms());
            } else if self.head.len() > LONGEST_HEAD {
                self.answer = response("431 Request Header Fields Too Large", TEXT, "too long\n", true);
            }
        }
        while self.is_writing() {
            self.written += self.stream.write(&self.answer[self.written..])?;
        }
        // Data that the client still sends would turn the close into a reset, so it is read to its end.
        self.stream.shutdown(Shutdown::Write)?;
        Ok(self.stream.read(&mut part)? == 0)
    }
}

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
/// Prometheus' text format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The response to a request, by its first line, at the monotonic time `now_ms` [ms].
#[must_use]
pub fn answer(head: &[u8], shared: &Shared, now_ms: u64) -> Vec<u8> {
    let line = head.split(|b| *b == b'\r').next().unwrap_or_default();
    let mut words = std::str::from_utf8(line).unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (method, target, version, words.next())
    else {
        return response("400 Bad Request", TEXT, "allowed: GET /path HTTP/1.1\n", true);
    };
    let body = match method {
        "GET" => true,
        "HEAD" => false,
        _ => return response("405 Method Not Allowed", TEXT, "allowed: GET, HEAD\n", true),
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match path {
        "/" => response("200 OK", HTML, PAGE, body),
        "/metrics" => match shared.prometheus() {
            Some(text) => response("200 OK", METRICS, &text, body),
            None => response("503 Service Unavailable", TEXT, "no sample yet\n", body),
        },
        "/state.json" => {
            let since = query.split('&').find_map(|pair| pair.strip_prefix("since="));
            response("200 OK", JSON, &shared.json(since.and_then(|ms| ms.parse().ok()).unwrap_or(0)), body)
        }
        "/terminals.json" => response("200 OK", JSON, &shared.peers(), body),
        "/plans.json" => response("200 OK", JSON, &shared.plans(), body),
        "/openapi.json" => response("200 OK", JSON, OPENAPI, body),
        "/healthz" => match shared.health(now_ms) {
            Ok(text) => response("200 OK", TEXT, &format!("{text}\n"), body),
            Err(text) => response("503 Service Unavailable", TEXT, &format!("{text}\n"), body),
        },
        _ => {
            let name = path.strip_prefix("/terminals/").and_then(|rest| rest.strip_suffix(".json"));
            match name.map(|name| (name, shared.peer(name))) {
                Some((_, Some(text))) => response("200 OK", JSON, &text, body),
                Some((name, None)) => {
                    let problem = format!("terminal {name:?} not found; /terminals.json lists all\n");
                    response("404 Not Found", TEXT, &problem, body)
                }
                None => {
                    let problem = format!("not found; available: {PATHS}\n");
                    response("404 Not Found", TEXT, &problem, body)
                }
            }
        }
    }
}

fn response(status: &str, kind: &str, text: &str, body: bool) -> Vec<u8> {
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}Cache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors \
         'none'\r\nConnection: close\r\n\r\n",
        text.len()
    )
    .into_bytes();
    if body {
        answer.extend_from_slice(text.as_bytes());
    }
    answer
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Duration;

    use super::*;
    use crate::config::Role;
    use crate::observe::metrics::About;

    fn shared() -> Shared {
        let about = About {
            role: Role::Gateway,
            aqm: String::new(),
            scheduler: String::new(),
            marking: String::new(),
            reloaded: (0.0, true),
        };
        Shared::new(about, Duration::from_secs(1), Duration::from_secs(2))
    }

    /// Two hundred clients that send half a request, and stay for an hour if they may. The next one is answered.
    #[test]
    fn slow_requests_do_not_delay_others() {
        let address = serve_within("127.0.0.1:0".parse().unwrap(), shared(), 3_600_000).unwrap();
        let slow = || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET / HT").unwrap();
            stream
        };
        let open: Vec<_> = (0..200).map(|_| slow()).collect();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK"));
        drop(open);
    }
}
