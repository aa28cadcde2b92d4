//! Warnings: permitted combinations that are probably mistakes.

use std::fmt;

/// A permitted combination that is probably a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Kind, by which a program can tell it.
    pub kind: WarningKind,
    /// Message, beginning with the key.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq<&str> for Warning {
    fn eq(&self, text: &&str) -> bool {
        self.text == *text
    }
}

/// Defines the kinds with their codes.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $code:literal,)*) => {
        /// Kind of a warning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum WarningKind {
            $($(#[$doc])* $kind,)*
        }

        impl WarningKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// Returns the code, which stays the same when the text changes.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$kind => $code,)*
                }
            }
        }
    };
}

kinds! {
    /// A watched receive queue without a rate.
    EmptyReceiveQueue = "empty_receive_queue",
    /// Packets dropped behind the PEP by an AQM.
    AqmBehindPep = "aqm_behind_pep",
    /// Packets dropped behind the PEP by a scheduler.
    SchedulerBehindPep = "scheduler_behind_pep",
    /// Ranking by sequence numbers of several connections.
    SequenceRanking = "sequence_ranking",
    /// A satellite link slower than the regulator.
    SlowSatelliteLink = "slow_satellite_link",
    /// A spacelink window below the bandwidth-delay product.
    SmallSpacelinkWindow = "small_spacelink_window",
    /// ECN marks without a transport that reads them.
    NoEcn = "no_ecn",
    /// A transport that reads ECN marks, without a queue that sets them.
    NoEcnMarks = "no_ecn_marks",
    /// Marks that cut windows, without a split connection.
    NothingSplit = "nothing_split",
    /// A ramp that ends after the warm-up.
    LateStart = "late_start",
    /// A handover after the end of the run.
    LateHandover = "late_handover",
    /// A queue shorter than a packet.
    ShortQueue = "short_queue",
    /// A setting with the name of an algorithm or preset.
    ShadowedName = "shadowed_name",
    /// A printed value of a setting that does not exist.
    UnknownPrintedSetting = "unknown_printed_setting",
    /// A preset that was published for a link of another rate.
    PresetRate = "preset_rate",
    /// Committed rates that exceed the carrier.
    CommittedRates = "committed_rates",
    /// A host or router without a link.
    Unconnected = "unconnected",
    /// An override without effect under a setting.
    UnusedOverride = "unused_override",
}
