//! Tests of scenario files, in one program: each program more is linked once more.

mod errors;
mod links;
mod models;
mod mutations;
mod scenarios;
mod traces;
