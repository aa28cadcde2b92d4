//! Two ends of a PEP link association against each other.

mod api;
mod net;
mod paths;
mod properties;
