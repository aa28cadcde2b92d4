//! Tests of the daemon in one program, which saves link time.

mod common;
mod deploy;
mod ends;
mod exported;
mod inputs;
mod metrics;
mod nfqueue;
mod operate;
mod relay;
mod rules;
mod satellite;
mod windows;
