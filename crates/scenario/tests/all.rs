//! Tests of scenario files, in one program to save link time.

mod errors;
mod handovers;
mod links;
mod models;
mod mutations;
mod pools;
mod scenarios;
mod traces;
