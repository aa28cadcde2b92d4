//! Causes of resets of split connections.

use std::io;

use serde::Serializer;
use serde::ser::SerializeMap as _;

named_enum! {
    /// Cause of a reset by this end.
    pub enum Cause {
        /// The client or server at this end has reset it.
        Host = "host",
        /// The client or server at this end has stopped answering.
        Silent = "silent",
        /// The server refuses it or is unreachable.
        Refused = "refused",
        /// The server has not answered the handshake in time.
        Unanswered = "unanswered",
        /// Idle for too long.
        Idle = "idle",
        /// The peer has reset it, and knows the cause.
        Peer = "peer",
        /// The spacelink was lost.
        Spacelink = "spacelink",
        /// No stream, descriptor or room for it.
        Limit = "limit",
        /// The daemon was stopped.
        Stopped = "stopped",
        /// Another error of its socket.
        Error = "error",
    }
}

impl Cause {
    /// Cause of a socket's error, before or after the connection was made.
    #[must_use]
    pub fn of(error: &io::Error, connected: bool) -> Self {
        use io::ErrorKind as Kind;
        match (error.kind(), connected) {
            (Kind::TimedOut, false) => Self::Unanswered,
            (
                Kind::ConnectionRefused
                | Kind::ConnectionReset
                | Kind::HostUnreachable
                | Kind::NetworkUnreachable,
                false,
            ) => Self::Refused,
            (Kind::TimedOut | Kind::HostUnreachable | Kind::NetworkUnreachable, true) => Self::Silent,
            (Kind::ConnectionReset | Kind::BrokenPipe, true) => Self::Host,
            _ => Self::Error,
        }
    }

    /// True for causes that no operator needs to look into: a host's own decision.
    #[must_use]
    pub const fn is_usual(self) -> bool {
        matches!(self, Self::Host | Self::Peer | Self::Stopped)
    }
}

/// Number of resets by [`Cause::ALL`].
pub type Resets = [u64; Cause::ALL.len()];

/// Serializes as an object with the causes' names.
pub(crate) fn by_name<S: Serializer>(resets: &Resets, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(resets.len()))?;
    for (cause, count) in Cause::ALL.iter().zip(resets) {
        map.serialize_entry(cause.name(), count)?;
    }
    map.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::libc;

    #[test]
    fn causes_are_listed_in_order() {
        for (place, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, place);
            assert_eq!(Cause::ALL.iter().filter(|other| other.name() == cause.name()).count(), 1);
        }
    }

    #[test]
    fn causes_of_errors_depend_on_the_handshake() {
        for (code, before, after) in [
            (libc::ETIMEDOUT, Cause::Unanswered, Cause::Silent),
            (libc::ECONNREFUSED, Cause::Refused, Cause::Error),
            (libc::ECONNRESET, Cause::Refused, Cause::Host),
            (libc::EPIPE, Cause::Error, Cause::Host),
            (libc::EHOSTUNREACH, Cause::Refused, Cause::Silent),
            (libc::ENOMEM, Cause::Error, Cause::Error),
        ] {
            let error = io::Error::from_raw_os_error(code);
            assert_eq!((Cause::of(&error, false), Cause::of(&error, true)), (before, after), "{error}");
        }
    }
}
