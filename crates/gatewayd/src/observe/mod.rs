//! Observation: log, metrics, the built-in page, recorded traces.

/// Defines an enum whose variants have names in metrics and in the log.
macro_rules! named_enum {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All variants, in order.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$variant),*];

            /// Returns the name in metrics and in the log.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

pub mod bottleneck;
pub mod cause;
pub mod counters;
pub mod histogram;
pub mod http;
pub mod log;
pub mod metrics;
pub mod observer;
pub mod peers;
pub mod prometheus;
pub mod publisher;
pub mod quic_events;
pub mod record;
pub mod state;
pub mod status;
pub mod voice;
