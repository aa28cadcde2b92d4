//! Named presets of transports.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::json;

/// A named preset of a transport.
pub struct Preset {
    /// Name.
    pub name: &'static str,
    /// Title, one line.
    pub title: &'static str,
    /// Keys of `[transport.NAME]`, with their source in a comment.
    pub text: &'static str,
}

/// All presets.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "reno-2003",
        title: "Reno of about 2003: no SACK, timeouts of a second at least",
        text: include_str!("../presets/reno-2003.toml"),
    },
    Preset {
        name: "byun2007",
        title: "the terrestrial TCP of [B07] chapter 4",
        text: include_str!("../presets/byun2007.toml"),
    },
    Preset {
        name: "ns2",
        title: "NewReno of ns-2.35 with its defaults",
        text: include_str!("../presets/ns2.toml"),
    },
    Preset {
        name: "linux",
        title: "TCP as Linux has it by default",
        text: include_str!("../presets/linux.toml"),
    },
];

/// Finds a preset by name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|p| p.name == name)
}

/// Returns the schema of the key `preset`.
pub fn transport_preset(_: &mut SchemaGenerator) -> Schema {
    let named = |p: &Preset| json!({ "type": "string", "const": p.name, "description": p.title });
    json_schema!({ "oneOf": PRESETS.iter().map(named).collect::<Vec<_>>() })
}
