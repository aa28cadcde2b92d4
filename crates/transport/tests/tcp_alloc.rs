//! No allocation per packet in a bulk transfer.

mod counting;

use bentpipe_transport::tcp::{Algorithm, Config, Connection};
use bentpipe_units::{Duration, Instant};
use counting::allocations;

/// Exchanges segments until `packets` data segments have been sent, dropping every `lose`-th.
fn exchange(ends: &mut [Connection; 2], cfg: &Config, now: &mut Instant, packets: u64, lose: u64) {
    let mut data = 0;
    while data < packets {
        let before = data;
        *now += Duration::from_millis(10);
        for from in 0..2 {
            if ends[from].poll_timeout().is_some_and(|at| at <= *now) {
                ends[from].handle_timeout(cfg, *now);
            }
            while let Some(segment) = ends[from].poll_transmit(cfg, *now) {
                data += u64::from(segment.len > 0);
                if segment.len == 0 || data % lose != 0 {
                    ends[1 - from].on_segment(cfg, *now, &segment);
                    let readable = ends[1 - from].readable();
                    ends[1 - from].read(readable);
                }
            }
        }
        if data == before {
            *now = ends.iter().filter_map(Connection::poll_timeout).min().unwrap_or(*now).max(*now);
        }
    }
}

#[test]
fn no_allocation_in_steady_state() {
    let cfg = Config { receive_window: 200_000, ..Config::default() };
    check(&cfg);
    check(&Config { sack: true, ..cfg.clone() });
    check(&Config { sack: true, prr: true, ..cfg.clone() });
    check(&Config { hystart: true, ..cfg.clone() });
    check(&Config { sack: true, algorithm: Algorithm::Bbr, ..cfg.clone() });
    check(&Config { sack: true, prr: true, rack: true, timestamps: true, ..cfg });
}

fn check(cfg: &Config) {
    let mut now = Instant::ZERO;
    let mut ends = [Connection::connect(cfg, now), Connection::listen(cfg)];
    ends[0].write(u64::MAX);
    // Losses let the reassembly queue reach its maximum size, and windows the list of segments sent.
    let losses = [u64::MAX, 100, 7];
    for lose in losses {
        exchange(&mut ends, cfg, &mut now, 20_000, lose);
    }
    for lose in losses {
        let before = allocations();
        exchange(&mut ends, cfg, &mut now, 20_000, lose);
        assert_eq!(allocations() - before, 0, "with one packet lost of {lose}");
    }
    assert!(ends[1].received() > 40_000_000, "{:?}", ends[1].stats());
    assert!(ends[0].stats().retransmissions > 1000, "{:?}", ends[0].stats());
}
