//! Tests of the testbed, in one program: each program more is linked once more.

mod common;
mod emulate;
mod links;
mod load;
mod speed;
mod users;
