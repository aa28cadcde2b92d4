//! Adaptive video: a player, its controllers, and what its viewer sees; without network, clock or randomness of its own.

mod controller;
mod player;
mod viewing;

pub use player::Player;
pub use viewing::{Period, Playback, Rung, Viewing};
