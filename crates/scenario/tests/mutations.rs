//! Mutated scenario texts yield a scenario or a message, never a panic.

use bentpipe_scenario::Scenario;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const TEXTS: [&str; 7] = [
    include_str!("../../../scenarios/byun-generic.toml"),
    include_str!("../../../scenarios/byun2007-gateway.toml"),
    include_str!("../../../scenarios/red-dumbbell.toml"),
    include_str!("../../../scenarios/small-gateway.toml"),
    include_str!("../../../scenarios/two-gateways.toml"),
    include_str!("../../../scenarios/unsplit-udp.toml"),
    include_str!("all-kinds.toml"),
];

/// Replacements for words: bounds of all ranges, and values of other keys.
const WORDS: [&str; 32] = [
    "0",
    "1",
    "-1",
    "nan",
    "inf",
    "1e308",
    "9223372036854775807",
    "true",
    "\"\"",
    "\"0 s\"",
    "\"1 ns\"",
    "\"1000000000 s\"",
    "\"0 Mbps\"",
    "\"1 bps\"",
    "\"1000000 Gbps\"",
    "\"1 B\"",
    "\"65535 B\"",
    "\"1000000 GB\"",
    "\"4000000000 segments\"",
    "\"4000000000 packets\"",
    "[]",
    "{}",
    "2026-01-01",
    "\"red\"",
    "\"codel\"",
    "\"AVQRED\"",
    "\"gateway\"",
    "\"terminal\"",
    "\"server\"",
    "\"transmit\"",
    "\"ecn\"",
    "\"\u{1F6F0}\"",
];

#[derive(Clone, Debug)]
enum Mutation {
    /// Remove a line.
    Cut(usize),
    /// Duplicate a line.
    Double(usize),
    /// Swap two lines.
    Swap(usize, usize),
    /// Replace a line's value by a word.
    Value(usize, usize),
    /// Replace a line's value by another line's.
    Take(usize, usize),
    /// Replace a character.
    Character(usize, char),
    /// Truncate the text.
    End(usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let n = 0..10_000usize;
    prop_oneof![
        1 => n.clone().prop_map(Mutation::Cut),
        1 => n.clone().prop_map(Mutation::Double),
        1 => (n.clone(), n.clone()).prop_map(|(a, b)| Mutation::Swap(a, b)),
        4 => (n.clone(), n.clone()).prop_map(|(a, b)| Mutation::Value(a, b)),
        4 => (n.clone(), n.clone()).prop_map(|(a, b)| Mutation::Take(a, b)),
        2 => (n.clone(), any::<char>()).prop_map(|(a, c)| Mutation::Character(a, c)),
        1 => n.prop_map(Mutation::End),
    ]
}

fn mutate(text: &str, mutation: &Mutation) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let count = lines.len().max(1);
    let value = |line: &str| line.split_once('=').map(|(_, v)| v.to_owned());
    let with_value = |line: &str, v: &str| line.split_once('=').map(|(key, _)| format!("{key}= {v}"));
    match *mutation {
        _ if lines.is_empty() => {}
        Mutation::Cut(i) => {
            lines.remove(i % count);
        }
        Mutation::Double(i) => lines.insert(i % count, lines[i % count].clone()),
        Mutation::Swap(i, j) => lines.swap(i % count, j % count),
        Mutation::Value(i, word) => {
            if let Some(line) = with_value(&lines[i % count], WORDS[word % WORDS.len()]) {
                lines[i % count] = line;
            }
        }
        Mutation::Take(i, j) => {
            if let Some(line) = value(&lines[j % count]).and_then(|v| with_value(&lines[i % count], &v)) {
                lines[i % count] = line;
            }
        }
        Mutation::Character(i, c) => {
            let mut characters: Vec<char> = text.chars().collect();
            let place = i % characters.len();
            characters[place] = c;
            return characters.into_iter().collect();
        }
        Mutation::End(i) => return text.chars().take(i).collect(),
    }
    lines.join("\n")
}

/// Reads a scenario and calls every function that an engine may call.
fn use_it(text: &str, overrides: &[String]) {
    match Scenario::parse(text, "mutated.toml", overrides) {
        Ok(scenario) => {
            assert!(!scenario.canonical_json().is_empty());
            assert!(scenario.effective().iter().all(|e| !e.key.is_empty()));
            for name in ["RED 4", "avq", "codel", "no such"] {
                let _ = scenario.with_setting(name).map_err(|e| e.to_string());
            }
        }
        Err(e) => assert!(!e.problem.is_empty() && !e.to_string().contains('\n'), "{e}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn mutated_scenarios_never_panic(which in 0..TEXTS.len(), mutations in prop::collection::vec(mutation(), 1..5)) {
        let text = mutations.iter().fold(TEXTS[which].to_owned(), |text, m| mutate(&text, m));
        use_it(&text, &[]);
    }

    #[test]
    fn overrides_of_any_key_with_any_word_never_panic(
        which in 0..TEXTS.len(), key in 0..10_000usize, word in 0..WORDS.len(), bare in any::<bool>(),
    ) {
        let scenario = Scenario::parse(TEXTS[which], "x", &[]).expect("right");
        let keys = scenario.effective();
        let word = if bare { WORDS[word].trim_matches('"') } else { WORDS[word] };
        use_it(TEXTS[which], &[format!("{}={word}", keys[key % keys.len()].key)]);
    }

    #[test]
    fn any_text_never_panics(text in any::<String>(), change in any::<String>()) {
        use_it(&text, std::slice::from_ref(&change));
        use_it(TEXTS[2], &[change]);
    }
}
