//! Tests of the daemon in one program, which saves link time.

mod beam;
mod clock_steps;
mod common;
mod deploy;
mod ends;
mod inputs;
mod kills;
mod metrics;
mod nfqueue;
mod openapi;
mod prometheus;
mod relay;
mod rules;
mod satellite;
mod sender;
mod service;
mod soak;
mod terminals;
mod windows;
