//! Both ends are killed at random under load, a hundred times.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bentpipe_units::Rng;
use nix::sys::signal::Signal;

use crate::common::Namespace;
use crate::ends::{BIN, End, LONG, SERVER, World, answer, ask, wait_until};

const KILLS: u32 = 100;
const CLIENTS: usize = 8;

/// Connections at the server that have not ended.
static SERVED: AtomicU64 = AtomicU64::new(0);

fn counted(stream: TcpStream) {
    SERVED.fetch_add(1, Ordering::Relaxed);
    answer(stream);
    SERVED.fetch_sub(1, Ordering::Relaxed);
}

/// Asks for an answer over a new connection. Returns false if it ended before.
///
/// # Panics
/// If the answer has other bytes, or none come for a long time.
fn is_answered(server: &str, which: u8) -> bool {
    let address = SocketAddr::new(server.parse().expect("an address"), 80);
    let Ok(mut stream) = TcpStream::connect_timeout(&address, LONG) else { return false };
    stream.set_read_timeout(Some(LONG)).expect("a time-out");
    let result = ask(&mut stream, which);
    if let Err(e) = &result {
        assert_ne!(e.kind(), std::io::ErrorKind::WouldBlock, "a connection hangs");
    }
    result.is_ok()
}

/// Eight clients ask for answers over new connections, one after the other, while an end is killed a hundred times: in the midst
/// of transfers, some while it starts; its rules are removed before each second start only, as a unit or a person may do. No
/// connection hangs or has other bytes, all clients have answers afterwards, and neither rules nor routes nor connections are
/// left in the end.
#[test]
#[ignore = "takes minutes: make faults"]
fn ends_that_are_killed_a_hundred_times_leave_nothing() {
    let Some(mut world) = World::new("hundred", "50 Mbps", "") else { return };
    world.serve(80, counted);
    let answers: Arc<[AtomicU64; CLIENTS]> = Arc::new(Default::default());
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let (answers, stop) = (Arc::clone(&answers), Arc::clone(&stop));
            world.clients.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if is_answered(SERVER[n % 2], n as u8) {
                        answers[n].fetch_add(1, Ordering::Relaxed);
                    } else {
                        thread::sleep(Duration::from_millis(20));
                    }
                }
            })
        })
        .collect();
    let count = |n: usize| answers[n].load(Ordering::Relaxed);
    let sum = || (0..CLIENTS).map(count).sum::<u64>();
    let mut rng = Rng::stream(1, "kills", 0, "test");
    for kill in 0..KILLS {
        if rng.below(4) > 0 {
            let before = sum();
            wait_until("clients have answers", || sum() > before + 2);
        }
        thread::sleep(Duration::from_millis(rng.below(200)));
        let place = rng.below(2) as usize;
        let config = world.folder.join(["gateway.toml", "terminal.toml"][place]);
        world.end(place).kill(Signal::SIGKILL);
        if kill % 2 == 0 {
            let config = config.clone();
            world.ends[place].run(move || {
                assert!(Command::new(BIN).arg("cleanup").arg(config).status().expect("cleanup").success());
            });
        }
        *world.end(place) = End::start(&world.ends[place], &config, config.with_extension("jsonl"));
    }
    for n in 0..CLIENTS {
        let before = count(n);
        wait_until("every client has an answer", || count(n) > before);
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("no connection hangs");
    }
    wait_until("the server's connections end", || SERVED.load(Ordering::Relaxed) == 0);
    assert!(world.gateway.kill(Signal::SIGTERM) && world.terminal.kill(Signal::SIGTERM));
    for end in &world.ends {
        for command in ["iptables-nft-save", "ip6tables-nft-save"] {
            assert_eq!(end.command(command).matches("bentpipe").count(), 0, "rules are left");
        }
        for version in ["-4", "-6"] {
            let rules = |of: &Namespace| of.command(&format!("ip {version} rule"));
            assert_eq!(rules(end), rules(&world.servers), "rules of routing are left");
            let routes = end.command(&format!("ip {version} route show table all"));
            let mut tables = routes.lines().filter_map(|line| line.split_once(" table "));
            assert!(tables.all(|(_, name)| name.starts_with("local ")), "{routes}");
        }
        assert!(!end.command("ip link").contains("bentpipe"), "a tunnel is left");
    }
}
