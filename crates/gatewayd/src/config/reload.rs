//! Changes made by a reload.

use bentpipe_scenario::Origin;

use super::{Config, Role};

/// Beginning of the keys of the queues at a terminal.
const RETURN: &str = "gateway.return.";

/// Changes that a running daemon can make, and keys that need a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The AQM or its parameters.
    pub aqm: bool,
    /// The regulator's rate.
    pub rate: bool,
    /// The limits.
    pub limits: bool,
    /// The log's level or format.
    pub log: bool,
    /// Terminals or plans.
    pub terminals: bool,
    /// Keys that need a restart.
    pub fixed: Vec<String>,
}

/// True for a key of a terminal or a plan.
fn is_of_terminals(key: &str) -> bool {
    key.starts_with("terminal.") || key.starts_with("plan.")
}

/// True for a key of the other end's queues, which `[gateway]` has if both ends share it.
fn is_of_other_end(role: Role, key: &str) -> bool {
    match role {
        Role::Gateway => key.starts_with(RETURN),
        Role::Terminal => key.starts_with("gateway.aqm.") || key == "gateway.regulator.rate",
    }
}

impl Changes {
    /// Differences of `new` from `old`.
    ///
    /// The AQM is tuned together with the rest of the gateway, so it stays if any of that needs a restart; but for windows of
    /// the spacelink that follow from the rate, which are no change of the file.
    #[must_use]
    pub fn between(old: &Config, new: &Config) -> Self {
        let value = |config: &Config, key: &str| {
            config.effective.iter().find(|row| row.key == key).map(|row| row.value.clone())
        };
        let keys =
            old.effective.iter().chain(new.effective.iter().filter(|row| value(old, &row.key).is_none()));
        let mut changes = Self::default();
        let is_default = |config: &Config, key: &str| {
            config.effective.iter().any(|row| row.key == key && row.origin == Origin::Default)
        };
        let own = old.own_keys();
        let (mut aqm, mut aqm_stays) = (Vec::new(), false);
        for row in keys.filter(|row| value(old, &row.key) != value(new, &row.key)) {
            let key = row.key.as_str();
            if key.strip_prefix(own).is_some_and(|key| key.starts_with("aqm.")) {
                aqm.push(key.to_owned());
            } else if is_of_other_end(old.role, key) {
                // Nothing changes here.
            } else if key.strip_prefix(own) == Some("regulator.rate") || key == "satellite.rate" {
                // The resulting rate is compared below.
            } else if key.starts_with("limits.") {
                changes.limits = true;
            } else if is_of_terminals(key) {
                changes.terminals = true;
            } else if key.starts_with("log.") {
                changes.log = true;
            } else if !key.starts_with("scenario.") {
                let follows_rate =
                    key.starts_with("gateway.spacelink.") && is_default(old, key) && is_default(new, key);
                aqm_stays |= key.starts_with("gateway.") && !follows_rate;
                changes.fixed.push(key.to_owned());
            }
        }
        changes.rate = old.rate() != new.rate();
        if aqm_stays {
            changes.fixed.append(&mut aqm);
        }
        changes.aqm = !aqm.is_empty();
        // Where the terminals are decides about them.
        changes.terminals &= !changes.fixed.iter().any(|key| key.starts_with("terminals."));
        changes
    }

    /// True without differences.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Config {
    /// Beginning of the keys of this end's queues.
    fn own_keys(&self) -> &'static str {
        match self.role {
            Role::Gateway => "gateway.",
            Role::Terminal => RETURN,
        }
    }

    /// Takes over the changes that a running daemon can make.
    pub fn take(&mut self, new: Self, changes: &Changes) {
        for row in &mut self.effective {
            if !changes.fixed.contains(&row.key)
                && let Some(other) = new.effective.iter().find(|other| other.key == row.key)
            {
                *row = other.clone();
            }
        }
        if changes.aqm {
            // Another algorithm has other parameters.
            let own = self.own_keys();
            let is_aqm = |key: &str| key.strip_prefix(own).is_some_and(|key| key.starts_with("aqm."));
            let at = self.effective.iter().position(|row| is_aqm(&row.key)).unwrap_or(0);
            self.effective.retain(|row| !is_aqm(&row.key));
            let rows: Vec<_> = new.effective.iter().filter(|row| is_aqm(&row.key)).cloned().collect();
            self.effective.splice(at..at, rows);
            match (&mut self.gateway.back, new.gateway.back.as_ref()) {
                (Some(back), Some(other)) if self.role == Role::Terminal => back.aqm = other.aqm.clone(),
                _ => self.gateway.aqm = new.gateway.aqm,
            }
        }
        if let (Some(back), Some(other)) = (&mut self.gateway.back, &new.gateway.back) {
            back.regulator.rate = other.regulator.rate;
            back.regulator.follows_link = other.regulator.follows_link;
        }
        if changes.terminals {
            self.effective.retain(|row| !is_of_terminals(&row.key));
            self.effective.extend(new.effective.iter().filter(|row| is_of_terminals(&row.key)).cloned());
        }
        if !changes.fixed.iter().any(|key| key.starts_with("terminals.")) {
            self.terminals = new.terminals;
        }
        self.gateway.regulator.rate = new.gateway.regulator.rate;
        self.gateway.regulator.follows_link = new.gateway.regulator.follows_link;
        self.satellite.rate = new.satellite.rate;
        self.limits = new.limits;
        self.log = new.log;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(change: (&str, &str)) -> Config {
        let text = "role = \"gateway\"\n\
            [gateway]\naqm = { algorithm = \"red\", max_p = 0.1 }\nregulator = { rate = \"20 Mbps\" }\n\
            [satellite]\nlocal = \"10.2.0.1:4400\"\npeer = \"10.2.0.2:4400\"\nkeys = \"keys\"\n\
            [internet]\ndevice = \"in0\"\nclients = [\"10.3.0.0/24\"]\n";
        assert!(text.contains(change.0));
        Config::parse(&text.replace(change.0, change.1), "g.toml").unwrap()
    }

    /// A terminal's queues are those of the return direction, which the gateway does not have.
    #[test]
    fn aqms_of_the_return_direction_change_at_the_terminal_alone() {
        let with = |role: &str, outside: &str, max_p: &str| {
            let text = format!(
                "role = \"{role}\"\n[gateway]\naqm = {{ algorithm = \"avq\" }}\nregulator = {{ rate = \"20 Mbps\" }}\n\
                 return = {{ aqm = {{ algorithm = \"red\", max_p = {max_p} }}, regulator.rate = \"2 Mbps\" }}\n\
                 [satellite]\nlocal = \"10.2.0.1:4400\"\npeer = \"10.2.0.2:4400\"\nkeys = \"keys\"\n\
                 [{outside}]\ndevice = \"in0\"\nclients = [\"10.3.0.0/24\"]\n"
            );
            Config::parse(&text, "g.toml").unwrap()
        };
        let (mut now, new) = (with("terminal", "users", "0.1"), with("terminal", "users", "0.2"));
        let changes = Changes::between(&now, &new);
        assert_eq!(changes, Changes { aqm: true, ..Changes::default() });
        now.take(new.clone(), &changes);
        assert!(Changes::between(&now, &new).is_empty());
        let of = |max_p| with("gateway", "internet", max_p);
        assert!(Changes::between(&of("0.1"), &of("0.2")).is_empty());
        let text = |aqm, rate: &str| {
            let ends = "role = \"terminal\"\n[satellite]\nlocal = \"10.2.0.2:4400\"\npeer = \"10.2.0.1:4400\"\nkeys = \"keys\"\n\
                          [users]\ndevice = \"in0\"\nclients = [\"10.3.0.0/24\"]\n[gateway]\n";
            let text = format!(
                "{ends}aqm.algorithm = \"{aqm}\"\nregulator.rate = \"{rate}\"\nspacelink.stream_window = \"2 MB\"\n\
                 spacelink.window = \"9 MB\"\ntransmit_queue.limit = \"100 packets\"\n"
            );
            Config::parse(&text, "t.toml").unwrap()
        };
        let changes = Changes::between(&text("avq", "20 Mbps"), &text("blue", "10 Mbps"));
        assert!(changes.is_empty(), "{changes:?}");
    }

    const WINDOW: &str = "gateway.spacelink.stream_window";

    /// Changeable keys change, others are listed, and an applied change is not listed again.
    #[test]
    fn changeable_keys_change_and_others_are_listed() {
        let old = || config(("", ""));
        for (change, expected, left) in [
            (("max_p = 0.1", "max_p = 0.2"), Changes { aqm: true, ..Changes::default() }, 0),
            (("\"red\", max_p = 0.1", "\"avq\""), Changes { aqm: true, ..Changes::default() }, 0),
            // Its parameters depend on the rate, and so does a window, 1.7 MB and 1 MB.
            (
                ("20 Mbps", "10 Mbps"),
                Changes { aqm: true, rate: true, fixed: vec![WINDOW.to_owned()], ..Changes::default() },
                1,
            ),
            (
                ("\"20 Mbps\" }", "\"10 Mbps\" }\nspacelink = { stream_window = \"2 MB\" }"),
                Changes {
                    rate: true,
                    fixed: [WINDOW, "gateway.aqm.min_th", "gateway.aqm.max_th"].map(str::to_owned).to_vec(),
                    ..Changes::default()
                },
                3,
            ),
            (
                ("[internet]", "[limits]\nconnections = 9\n[internet]"),
                Changes { limits: true, ..Changes::default() },
                0,
            ),
            (
                ("[internet]", "[log]\nlevel = \"debug\"\n[internet]"),
                Changes { log: true, ..Changes::default() },
                0,
            ),
            (("in0", "in1"), Changes { fixed: vec!["internet.device".to_owned()], ..Changes::default() }, 1),
            (("", ""), Changes::default(), 0),
        ] {
            let (mut now, new) = (old(), config(change));
            let changes = Changes::between(&now, &new);
            assert_eq!(changes, expected, "{change:?}");
            now.take(new.clone(), &changes);
            assert_eq!(Changes::between(&now, &new).fixed.len(), left);
            assert_eq!(Changes::between(&now, &new), Changes { fixed: expected.fixed, ..Changes::default() });
        }
        // A regulator that follows the satellite has its rate, from a modem or not; another has its own.
        let follows = |rate: &str| {
            let text = format!("\"link\" }}\n[satellite]\nrate = \"{rate}\"\n");
            config(("\"20 Mbps\" }\n[satellite]\n", &text))
        };
        let mut now = follows("20 Mbps");
        assert_eq!(Changes::between(&old(), &now).fixed, Vec::<String>::new());
        assert!(!Changes::between(&old(), &now).rate);
        let new = follows("5 Mbps");
        let changes = Changes::between(&now, &new);
        assert!(changes.rate && changes.fixed == [WINDOW], "{changes:?}");
        now.take(new.clone(), &changes);
        assert_eq!(now.rate().map(|rate| rate.as_bps()), Some(5_000_000));
        let left = Changes { fixed: vec![WINDOW.to_owned()], ..Changes::default() };
        assert_eq!(Changes::between(&now, &new), left);

        let changes =
            Changes::between(&old(), &config(("max_p = 0.1 }", "max_p = 0.2 }\nmark = \"transmit\"")));
        assert_eq!(changes.fixed, ["gateway.mark", "gateway.aqm.max_p"]);
        assert!(!changes.aqm);
    }
}
