//! Adaptive video: a player, its controllers, and what its viewer sees. It knows no network and no clock, and draws nothing at random.

mod controller;
mod player;
mod viewing;

pub use player::Player;
pub use viewing::{Period, Playback, Rung, Viewing};
