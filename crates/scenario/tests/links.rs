//! Examples of docs/links.md.

use bentpipe_scenario::{Access, Scenario};

const PAGE: &str = include_str!("../../../docs/links.md");

/// Scenario with these keys of a link.
fn load(keys: &str, overrides: &[String], folder: &std::path::Path) -> Scenario {
    let text = format!(
        "title = \"A test\"\nrun = {{ duration = \"10 s\", subject = \"last\" }}\n\
         host = {{ server = {{}}, client = {{ count = 3 }} }}\nrouter.r = {{}}\n\
         [link.last]\nbetween = [\"r\", \"client\"]\nrate = \"1 Mbps\"\nqueue = {{}}\n\
         [traffic.t]\nkind = \"bulk\"\nfrom = \"server\"\nto = \"client\"\n\
         [link.wire]\nbetween = [\"server\", \"r\"]\n{keys}"
    );
    let file = folder.join("my.toml").display().to_string();
    Scenario::parse(&text, &file, overrides).unwrap_or_else(|e| panic!("{e}\n{keys}"))
}

#[test]
fn documented_examples_load_and_round_trip() {
    let folder = std::env::temp_dir().join(format!("bentpipe-pages-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    std::fs::write(folder.join("drive.down"), "5\n10\n10\n20\n").expect("a file for the test");
    let examples: Vec<_> =
        PAGE.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 16);
    for example in examples {
        let scenario = load(example, &[], &folder);
        assert_eq!(scenario.warnings, [""; 0], "{example}");
        // The effective values load again as the same scenario.
        let shown = scenario.effective().iter().filter(|e| e.key.starts_with("link.wire."));
        let overrides: Vec<_> = shown
            .filter(|e| e.value != "none" && !e.key.ends_with(".between"))
            .map(|e| format!("{}={}", e.key, e.value))
            .collect();
        let again = load(example, &overrides, &folder);
        assert_eq!(again.canonical_json(), scenario.canonical_json(), "{overrides:?}");
    }
    std::fs::remove_dir_all(&folder).expect("the test's own folder");
}

/// The table of docs/links.md matches the defaults.
#[test]
fn documented_access_link_table_matches() {
    let kinds = ["wifi", "wimax", "umts"];
    let links = kinds.map(|kind| {
        let folder = std::path::Path::new("");
        load(&format!("access = {kind:?}"), &[], folder).links[1].forward.clone()
    });
    let row = |key: &str, value: &dyn Fn(&Access) -> String| {
        let cells = links.clone().map(|l| l.access.map(|a| value(&a)).unwrap_or_default());
        let row = format!("| `{key}` | {} |", cells.join(" | "));
        assert!(PAGE.contains(&row), "{row}");
    };
    let time = |t: bentpipe_units::Duration| {
        if t.is_zero() { "–".to_owned() } else { format!("`\"{t}\"`") }
    };
    row("overhead", &|a| match a.overhead {
        (_, high) if high.is_zero() => "–".to_owned(),
        (low, high) => format!("`[\"{low}\", \"{high}\"]`"),
    });
    row("header", &|a| if a.header == 0 { "–".to_owned() } else { format!("`\"{} B\"`", a.header) });
    row("frame_loss", &|a| a.frame_loss.to_string());
    row("tries", &|a| a.tries.to_string());
    row("try_delay", &|a| time(a.try_delay));
    row("frame", &|a| time(a.frame));
    let rates: Vec<_> = links.iter().map(|l| l.rate.map_or(0, |r| r.as_bps())).collect();
    assert_eq!(rates, [54_000_000, 12_670_000, 384_000]);
}

/// A reverse direction without a kind has the keys of the forward direction, and its own ones.
#[test]
fn reverse_access_without_a_kind_inherits_the_forward_direction() {
    let reverse = |keys: &str| {
        let wire = &load(keys, &[], std::path::Path::new("")).links[1];
        wire.reverse.access.as_ref().map(|a| (a.header, a.tries, a.frame_loss))
    };
    let wifi = reverse("access = \"wifi\"");
    assert_eq!(reverse("access = \"wifi\"\nreverse.access = {}"), wifi);
    let (header, _, frame_loss) = wifi.expect("an access link");
    assert_eq!(reverse("access = \"wifi\"\nreverse.access.tries = 2"), Some((header, 2, frame_loss)));
    let own = "access = { kind = \"wifi\", tries = 3 }\nreverse.access = ";
    assert_eq!(reverse(&format!("{own}{{ frame_loss = 0.5 }}")), Some((header, 3, 0.5)));
    assert_eq!(reverse(&format!("{own}{{ kind = \"wifi\" }}")), wifi);
}

/// All ways to write a lossless channel are equal; a lossy one differs.
#[test]
fn equal_lossless_channels_have_one_canonical_form() {
    let canonical = |loss: &str| load(loss, &[], std::path::Path::new("")).canonical_json();
    let none = canonical("");
    for same in [
        "loss = 0",
        "loss = { nth = [] }",
        "loss = { probability = 0, of = \"data\" }",
        "loss = { bit_error_rate = 0, at = \"before_queue\" }",
        "loss = { gilbert_elliott = { p = 0.1, r = 0.5, loss_bad = 0 } }",
    ] {
        assert_eq!(canonical(same), none, "{same}");
    }
    let some = canonical("loss = { probability = 0.1, at = \"before_queue\" }");
    assert_ne!(some, none);
    assert_ne!(some, canonical("loss = 0.1"));
}

/// A link with a carrier of DVB-S2 is the same as one with its symbol rate; DVB-S2X has 256APSK 3/4 at 20 dB, 5.900855
/// bit/symbol.
#[test]
fn links_take_symbol_rate_and_modcods_from_their_carrier() {
    let fade = "fade = { clear_sky = 21, median = 1.5, sigma = 1.1 }";
    let with = |carrier: &str| {
        let keys = format!("capacity = {{ carrier = \"down\", {fade} }}\n[carrier.down]\n{carrier}");
        load(&keys, &[], std::path::Path::new(""))
    };
    let own =
        load(&format!("capacity = {{ symbol_rate = \"10 Mbaud\", {fade} }}"), &[], std::path::Path::new(""));
    let named = with("symbol_rate = \"10 Mbaud\"");
    assert_eq!(named.canonical_json(), own.canonical_json());
    let rate = |scenario: &Scenario| scenario.links[1].forward.mean_rate().map(|rate| rate.as_bps());
    assert_eq!(rate(&own), Some(44_530_270));
    assert_eq!(rate(&with("symbol_rate = \"10 Mbaud\"\nmodcods = \"dvb-s2x\"")), Some(59_008_550));
}

#[test]
fn mistakes_in_carriers_are_explained() {
    let message = |capacity: &str, carrier: &str| {
        let text = format!(
            "title = \"A test\"\nrun = {{ duration = \"1 s\", subject = \"wire\" }}\nhost = {{ server = {{}}, client = {{}} }}\n\
             [traffic.t]\nkind = \"bulk\"\nfrom = \"server\"\nto = \"client\"\n\
             [link.wire]\nbetween = [\"server\", \"client\"]\nqueue = {{}}\n\
             capacity = {{ {capacity} }}\n[carrier.down]\nsymbol_rate = \"10 Mbaud\"\n{carrier}"
        );
        match Scenario::parse(&text, "my.toml", &[]) {
            Ok(_) => "no mistake".to_owned(),
            Err(error) => error.to_string(),
        }
    };
    let found = [
        ("carrier = \"down\", modcod = [\"8PSK 3/4\"]", ""),
        ("carrier = \"up\", modcod = [\"8PSK 3/4\"]", ""),
        ("carrier = \"down\", symbol_rate = \"1 Mbaud\", modcod = [\"8PSK 3/4\"]", ""),
        ("carrier = \"down\", modcod = [\"256APSK 3/4\"]", "modcods = \"dvb-s2x\""),
        ("carrier = \"down\", modcod = [\"8PSK 3/4\"]", "modcods = \"dvb-s3\""),
        ("symbol_rate = \"1 Mbaud\", modcod = [\"8PSK 3/4\"]", ""),
    ]
    .map(|(capacity, carrier)| message(capacity, carrier));
    assert_eq!(
        found,
        [
            "no mistake",
            "my.toml:11:24: link.wire.capacity.carrier: found \"up\"; allowed: down",
            "my.toml:11:1: link.wire.capacity: found symbol_rate, carrier; allowed: one of trace, steps, uniform, symbol_rate, \
             carrier",
            "no mistake",
            "my.toml:14:11: carrier.down.modcods: found \"dvb-s3\"; did you mean \"dvb-s2\"? allowed: dvb-s2, dvb-s2x",
            "my.toml:12:10: carrier.down: no link uses it; allowed: carriers that a link names in capacity, such as capacity = { \
             carrier = \"NAME\", modcod = [\"8PSK 3/4\"] }",
        ]
    );
}
