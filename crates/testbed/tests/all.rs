//! Tests of the testbed in one program, since every test program is linked separately.

mod common;
mod emulate;
mod links;
mod load;
mod quic;
mod speed;
mod users;
