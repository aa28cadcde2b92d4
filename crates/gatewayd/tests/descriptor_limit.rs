//! Without descriptors the HTTP server waits instead of spinning. A separate process, since the limit is that of all
//! threads.

mod prometheus;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration as Wait;

use bentpipe_gatewayd::observe::http::serve;
use bentpipe_gatewayd::observe::state::Shared;
use bentpipe_units::Duration;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, socket};
use prometheus::about;

/// Clock ticks used by the server's thread; `None` until the thread has its name.
fn ticks() -> Option<u64> {
    let tasks = fs::read_dir("/proc/self/task").expect("threads").flatten();
    let mut stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    let of_server = stats.find(|stat| stat.contains("(http)"))?;
    let fields: Vec<&str> = of_server.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // utime and stime are fields 14 and 15 of proc(5); field 2 is the name in brackets.
    Some(fields[11..13].iter().map(|ticks| ticks.parse::<u64>().expect("a number")).sum())
}

#[test]
fn the_server_waits_without_descriptors() {
    let shared = Shared::new(about(), Duration::from_secs(1), Duration::from_secs(3));
    let address = serve("127.0.0.1:0".parse().expect("an address"), shared).expect("a listener");
    let client =
        socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    let before = loop {
        match ticks() {
            Some(ticks) => break ticks,
            None => sleep(Wait::from_millis(1)),
        }
    };
    setrlimit(Resource::RLIMIT_NOFILE, 3, hard).expect("a lower limit");
    connect(std::os::fd::AsRawFd::as_raw_fd(&client), &SockaddrStorage::from(address)).expect("a listener");
    sleep(Wait::from_millis(500));
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("the former limit");
    // Of some fifty ticks of 10 ms each.
    let used = ticks().expect("a running server") - before;
    assert!(used < 10, "{used} ticks in half a second");
    // It continues afterwards.
    let mut client = TcpStream::from(client);
    client.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").expect("a request sent");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("an answer");
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
}
