//! Why a split connection is ended by a reset instead of being closed.

use std::io;

use serde::Serializer;
use serde::ser::SerializeMap as _;

/// Why this end has reset a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The host at this end has reset it.
    Peer,
    /// The host at this end has stopped answering.
    Silent,
    /// The server does not want it, or there is no way to it.
    Refused,
    /// The server has not answered its handshake in time.
    Unanswered,
    /// Nothing has moved on it for too long.
    Idle,
    /// The other end has reset it, and knows why.
    Far,
    /// The spacelink was lost.
    Spacelink,
    /// There was no stream, no descriptor or no room for it.
    Limit,
    /// The daemon was stopped.
    Stopped,
    /// Something else was wrong with its socket.
    Error,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Peer,
        Self::Silent,
        Self::Refused,
        Self::Unanswered,
        Self::Idle,
        Self::Far,
        Self::Spacelink,
        Self::Limit,
        Self::Stopped,
        Self::Error,
    ];

    /// Its name in metrics and in the log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::Silent => "silent",
            Self::Refused => "refused",
            Self::Unanswered => "unanswered",
            Self::Idle => "idle",
            Self::Far => "far",
            Self::Spacelink => "spacelink",
            Self::Limit => "limit",
            Self::Stopped => "stopped",
            Self::Error => "error",
        }
    }

    /// What a socket's error means, of a connection that has come about or has not.
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
            (Kind::ConnectionReset | Kind::BrokenPipe, true) => Self::Peer,
            _ => Self::Error,
        }
    }

    /// Whether it is a host's own will, and nothing that an operator would look into.
    #[must_use]
    pub const fn is_usual(self) -> bool {
        matches!(self, Self::Peer | Self::Far | Self::Stopped)
    }
}

/// How many connections were reset, by the cause's place in [`Cause::ALL`].
pub type Resets = [u64; Cause::ALL.len()];

/// As an object with the causes' names.
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
    fn causes_stand_in_their_order() {
        for (place, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, place);
            assert_eq!(Cause::ALL.iter().filter(|other| other.name() == cause.name()).count(), 1);
        }
    }

    #[test]
    fn errors_mean_another_thing_before_the_handshake() {
        for (code, before, after) in [
            (libc::ETIMEDOUT, Cause::Unanswered, Cause::Silent),
            (libc::ECONNREFUSED, Cause::Refused, Cause::Error),
            (libc::ECONNRESET, Cause::Refused, Cause::Peer),
            (libc::EPIPE, Cause::Error, Cause::Peer),
            (libc::EHOSTUNREACH, Cause::Refused, Cause::Silent),
            (libc::ENOMEM, Cause::Error, Cause::Error),
        ] {
            let error = io::Error::from_raw_os_error(code);
            assert_eq!((Cause::of(&error, false), Cause::of(&error, true)), (before, after), "{error}");
        }
    }
}
