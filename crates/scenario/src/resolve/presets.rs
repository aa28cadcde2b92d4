//! Transports that are known by name: what they say takes the place of keys that a scenario does not give.

use crate::source::read_toml;
use crate::tree::{Node, Path, Step, Value};

/// A transport that is known by name.
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub title: &'static str,
    /// The keys of `[transport.NAME]`, with their source in a comment ahead of them.
    text: &'static str,
}

/// All there are.
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

/// The preset of that name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|p| p.name == name)
}

/// Fills in what presets say, where a transport names one or traffic names a transport that is one. Gives the paths of the
/// keys filled in, with their presets. What is filled in stands where the preset was named.
pub fn fill(root: &mut Node) -> Vec<(Vec<Step>, &'static Preset)> {
    let key = |name: &str| Step::Key(name.to_owned());
    let named = |node: &Node| {
        let transports = node.get("transport").map(Node::entries).unwrap_or_default();
        transports.iter().map(|e| e.key.clone()).collect::<Vec<_>>()
    };
    for traffic in root.get("traffic").map(|t| t.entries().to_vec()).unwrap_or_default() {
        if let Some(Node { value: Value::Text(name), at }) = traffic.node.get("transport")
            && preset(name).is_some()
            && !named(root).contains(name)
        {
            root.set(&[key("transport"), key(name), key("preset")], Node::text(name, *at));
        }
    }
    let mut filled = Vec::new();
    for name in named(root) {
        let path = [key("transport"), key(&name)];
        let Some((preset, at)) =
            root.find(&path).and_then(|t| Some((preset(t.get_text("preset")?)?, t.get("preset")?.at)))
        else {
            continue;
        };
        let Ok(keys) = read_toml(preset.text) else { continue };
        for entry in keys.entries() {
            let path = [&path as &Path, &[key(&entry.key)]].concat();
            if root.find(&path).is_none() {
                root.set(&path, entry.node.clone().moved_to(at));
                filled.push((path, preset));
            }
        }
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_one() {
        for preset in PRESETS {
            let text = format!(
                "title = \"t\"\nrun = {{ duration = \"1 s\" }}\nhost = {{ a = {{}}, b = {{}} }}\n\
                 [link.l]\nbetween = [\"a\", \"b\"]\nrate = \"1 Mbps\"\nqueue = {{}}\n\
                 [traffic.t]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\ntransport = {:?}\n",
                preset.name
            );
            let scenario = crate::Scenario::parse(&text, "preset.toml", &[]).expect(preset.name);
            assert_eq!(scenario.transports.len(), 1, "{}", preset.name);
            assert!(scenario.warnings.is_empty(), "{:?}", scenario.warnings);
        }
    }
}
