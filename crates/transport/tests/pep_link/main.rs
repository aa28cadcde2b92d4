//! Two ends of a spacelink association against each other.

mod calls;
mod facts;
mod net;
mod properties;
