//! Fills in the presets of transports.

use crate::reader::source::read_toml;
use crate::reader::tree::{At, Node, Path, Step, Value};
use crate::schema::presets::{Preset, preset};

/// Fills in presets for transports that name one, and for traffic whose transport is the name of one and not of a transport of
/// the file. Returns the paths of the filled keys with their presets. Filled values are located where the preset is named.
pub fn fill(root: &mut Node) -> Vec<(Vec<Step>, &'static Preset)> {
    let key = |name: &str| Step::Key(name.to_owned());
    let named = |node: &Node| {
        let transports = node.get("transport").map(Node::entries).unwrap_or_default();
        transports.iter().map(|e| e.key.clone()).collect::<Vec<_>>()
    };
    // Overrides of a preset's keys do not define a transport of its name.
    let is_defined = |root: &Node, name: &str| {
        let entries = root.get("transport").map(Node::entries).unwrap_or_default();
        entries.iter().find(|e| e.key == name).is_some_and(|e| {
            !matches!(e.at, At::Override(_))
                || ["preset", "protocol"].iter().any(|key| e.node.get(key).is_some())
        })
    };
    for traffic in root.get("traffic").map(|t| t.entries().to_vec()).unwrap_or_default() {
        if let Some(Node { value: Value::Text(name), at }) = traffic.node.get("transport")
            && preset(name).is_some()
            && !is_defined(root, name)
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
                root.set(&path, entry.node.clone().relocated(at));
                filled.push((path, preset));
            }
        }
    }
    filled
}

#[cfg(test)]
mod tests {
    use crate::schema::presets::PRESETS;

    /// Linux has SACK and CUBIC, the RFCs' defaults have neither.
    #[test]
    fn an_override_keeps_the_other_keys_of_the_preset_that_traffic_names() {
        let text = "title = \"t\"\nrun = { duration = \"1 s\" }\nhost = { a = {}, b = {} }\n\
                    [link.l]\nbetween = [\"a\", \"b\"]\nrate = \"1 Mbps\"\nqueue = {}\n\
                    [traffic.t]\nkind = \"bulk\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"linux\"\n";
        let parsed = |text: &str, changes: &[&str]| {
            let changes: Vec<_> = changes.iter().map(|change| (*change).to_owned()).collect();
            crate::Scenario::parse(text, "preset.toml", &changes).expect("a valid scenario").canonical_json()
        };
        let table = format!("{text}[transport.linux]\npreset = \"linux\"\ninitial_window = 4\n");
        assert_eq!(parsed(text, &["transport.linux.initial_window=4"]), parsed(&table, &[]));
        // A transport of the file has the preset's name, but not its keys.
        let own = format!("{text}[transport.linux]\n");
        assert_ne!(parsed(&own, &["transport.linux.initial_window=4"]), parsed(&table, &[]));
    }

    #[test]
    fn every_preset_loads_without_warnings() {
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
