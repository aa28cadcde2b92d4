//! SACKs, gaps and the receive buffer: sections 6.2, 6.7 and 6.9.

use bentpipe_transport::sctp::Config;

use crate::trace::{config, established};

fn delayed() -> Config {
    Config { sack_every: 2, ..config() }
}

#[test]
fn every_second_packet_is_acknowledged_at_once() {
    established(
        &delayed(),
        9000,
        "300  < data 1:984
              > sack 1               # section 5.1: the first at once
         310  < data 2:984
              = timer 510
         320  < data 3:984
              > sack 3
              = timer none
         330  < data 4:100 data 5:100    # one packet
              = timer 530
         530  timer
              > sack 5",
    );
}

/// Section 6.7; duplicates: section 6.2.
#[test]
fn gaps_and_duplicates_are_reported_at_once() {
    established(
        &delayed(),
        9000,
        "300  < data 1:984
              > sack 1
         600  < data 3:984
              > sack 1 g3-3
         610  < data 5:984
              > sack 1 g3-3,5-5
         620  < data 2:984
              > sack 3 g5-5
         630  < data 4:984
              > sack 5
         640  < data 5:984
              > sack 5 d1
              = received 4920
         650  < data 6:984
              = timer 850",
    );
}

/// Section 6.1: a SACK is bundled with DATA if it fits.
#[test]
fn a_sack_is_bundled_if_it_fits() {
    established(
        &delayed(),
        9000,
        "300  < data 1:984
              > sack 1
         650  < data 2:984
              = timer 850
         660  send 100
              > sack 2 data 1:100
              = timer 1660           # T3-rtx
         700  < data 3:984
              = timer 900
         710  send 984               # it does not fit
              > data 2:984
              = timer 900",
    );
}

/// Section 6.2: the window excludes buffered data; without room, a new TSN is dropped.
#[test]
fn the_window_is_the_free_buffer() {
    let cfg = Config { a_rwnd: 3000, ..config() };
    established(
        &cfg,
        9000,
        "300  < data 1:984
              > sack 1 w2016
         310  < data 2:984
              > sack 2 w1032
         320  < data 3:984
              > sack 3 w48
         330  < data 4:984
              > sack 4 w0
         340  < data 5:984
              > sack 4 w0
              = readable 3936
         400  read 984
         410  read 984
         420  read 984               # RFC 1122 section 4.2.3.3: half of the buffer
              > sack 4 w2016",
    );
}

/// Section 6.2: the highest TSN is dropped to make room for a lower one.
#[test]
fn a_full_buffer_makes_room_for_missing_tsns() {
    let cfg = Config { a_rwnd: 2000, ..config() };
    established(
        &cfg,
        9000,
        "300  < data 3:984
              > sack 0 w1016 g3-3
         310  < data 4:984
              > sack 0 w32 g3-4
         320  < data 5:984
              > sack 0 w0 g3-5
         330  < data 1:984
              > sack 1 w0 g3-4
         340  < data 6:984
              > sack 1 w0 g3-4",
    );
}

/// Section 6.9: complete messages are delivered, or parts of messages that would never fit.
#[test]
fn messages_are_reassembled() {
    let cfg = Config { a_rwnd: 2000, ..config() };
    established(
        &cfg,
        9000,
        "300  < data 1:484-
              > sack 1 w1516
              = readable 0
         310  < data -2:16
              > sack 2 w1500
              = readable 500
         320  < data 3:984-
              > sack 3 w516
              = readable 500
         330  < data -4:984-
              > sack 4 w0
              = readable 2468",
    );
}
