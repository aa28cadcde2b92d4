//! Data files of a scenario: content and error messages.

use std::path::PathBuf;

use bentpipe_scenario::{Distribution, Scenario, TrafficKind};

/// Temporary folder with a scenario.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("bentpipe-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        Self(folder)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.0.join(name), bytes).expect("a file for the test");
    }

    /// Scenario with this traffic, or the message without the folder's name.
    fn load(&self, traffic: &str) -> Result<Scenario, String> {
        self.write("my.toml", format!("{HEAD}[traffic.t]\nfrom = \"server\"\nto = \"client\"\n{traffic}\n"));
        Scenario::load(self.0.join("my.toml"), &[])
            .map_err(|e| e.to_string().replace(&format!("{}/", self.0.display()), ""))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const HEAD: &str = r#"title = "A test"
[run]
duration = "10 s"
[host.server]
[host.client]
[link.wire]
between = ["server", "client"]
rate = "1 Mbps"
queue = {}
"#;

const PAGES: &str = "kind = \"pages\"\nsessions = 1\nobject_size = { trace = \"sizes.dat\" }";

#[test]
fn sizes_are_read_from_a_file() {
    let folder = Folder::new("sizes");
    folder.write("sizes.dat", "# bytes\n100\n250.0\n");
    let scenario = folder.load(PAGES).expect("a scenario");
    let TrafficKind::Pages(pages) = &scenario.traffic[0].kind else { panic!("pages") };
    let Distribution::Trace(samples) = &pages.object_size else { panic!("a trace") };
    assert_eq!(*samples.values, [100, 250]);
    let shown = scenario.effective().iter().find(|e| e.key == "traffic.t.object_size").expect("the key");
    assert_eq!(shown.value, "{ trace = \"sizes.dat\" }");
}

#[test]
fn canonical_form_depends_on_file_content_not_name() {
    let folder = Folder::new("digest");
    folder.write("sizes.dat", "100\n250\n");
    let first = folder.load(PAGES).expect("a scenario").canonical_json();
    folder.write("sizes.dat", "100\n251\n");
    let changed = folder.load(PAGES).expect("a scenario").canonical_json();
    assert_ne!(first, changed);
    folder.write("other.dat", "100\n250\n");
    let renamed = folder.load(&PAGES.replace("sizes.dat", "other.dat")).expect("a scenario").canonical_json();
    assert_eq!(first, renamed);
}

#[test]
fn file_errors_name_the_line() {
    let folder = Folder::new("lines");
    for (content, expected) in [
        (
            "100\n-1\n",
            "my.toml:15:25: traffic.t.object_size.trace: sizes.dat:2: found \"-1\"; allowed: a number of bytes, which \
             makes a size above 0 and at most 1000000 GB, such as \"1400 B\"",
        ),
        (
            "",
            "my.toml:15:25: traffic.t.object_size.trace: sizes.dat: found an empty file; allowed: a text with one \
              number in each line",
        ),
    ] {
        folder.write("sizes.dat", content);
        assert_eq!(folder.load(PAGES).expect_err("a mistake"), expected);
    }
}

/// Results are stored under this text, so it must not change.
#[test]
fn cbr_canonical_form_is_stable() {
    let folder = Folder::new("canonical");
    let cbr =
        "kind = \"cbr\"\nrate = \"1 Mbps\"\npacket = \"1000 B\"\nstart = { uniform = [\"0 s\", \"1 s\"] }";
    let json = folder.load(cbr).expect("a scenario").canonical_json();
    let expected = r#""kind":{"cbr":{"flows":1,"rate":1000000,"packet":1000,"start":{"uniform":{"low":0,"high":1000000000}}}}"#;
    assert!(json.contains(expected), "{json}");
}

/// A pcap file with packets of these times [us] and lengths.
fn pcap(packets: &[(u32, u32)]) -> Vec<u8> {
    let mut words = vec![0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1];
    for (time, len) in packets {
        words.extend([0, *time, 0, *len]);
    }
    words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect()
}

#[test]
fn documented_examples_load_and_round_trip() {
    let folder = Folder::new("examples");
    folder.write("film.dat", "1200\n300\n");
    folder.write("morning.pcap", pcap(&[(0, 60), (7, 1514)]));
    let page =
        concat!(include_str!("../../../docs/traffic.md"), include_str!("../../../docs/packet-sources.md"));
    let examples: Vec<_> =
        page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 17);
    let mut kinds = Vec::new();
    for example in examples {
        let scenario = folder.load(example).unwrap_or_else(|e| panic!("{e}\n{example}"));
        let shown = scenario.effective().iter().find(|e| e.key == "traffic.t.kind").expect("a kind");
        assert!(page.contains(&format!("| `{}` |", shown.value)), "{} is in the table", shown.value);
        if !kinds.contains(&shown.value) {
            kinds.push(shown.value.clone());
        }
        // The effective values load again as the same scenario.
        let key = "traffic.t.";
        let overrides: Vec<_> = scenario
            .effective()
            .iter()
            .filter(|e| e.key.starts_with(key) && e.value != "none" && e.key != "traffic.t.kind")
            .map(|e| format!("{}={}", e.key, e.value))
            .collect();
        let again = Scenario::load(folder.0.join("my.toml"), &overrides).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(again.canonical_json(), scenario.canonical_json(), "{overrides:?}");
    }
    assert_eq!(kinds.len(), 12, "{kinds:?}");
}

#[test]
fn packet_source_mistakes_give_messages() {
    let folder = Folder::new("packets");
    folder.write("film.dat", "1200\n300\n");
    folder.write("bad.dat", "1 I 0 1200\n2 P 40\n");
    folder.write("text.pcap", "no capture\n");
    let whole = pcap(&[(0, 60), (7, 1514)]);
    folder.write("cut.pcap", &whole[..whole.len() - 1]);
    let mmpp = "kind = \"mmpp\"\npacket = \"1 KB\"\n";
    let states =
        "states = [{ rate = \"0 bps\", sojourn = \"1 s\" }, { rate = \"1 bps\", sojourn = \"1 s\" }]\n";
    for (traffic, expected) in [
        (
            "kind = \"replay\"\ncapture = \"text.pcap\"".to_owned(),
            "14:11: traffic.t.capture: text.pcap, byte 0: found 6e 6f 20 63; allowed: a capture, in pcap or pcapng",
        ),
        (
            "kind = \"replay\"\ncapture = \"cut.pcap\"".to_owned(),
            "14:11: traffic.t.capture: cut.pcap, byte 40: found the end of the file after 15 B more; allowed: a whole packet \
             or block, as the length in its header says",
        ),
        (
            "kind = \"video\"\ntrace = \"bad.dat\"".to_owned(),
            "14:9: traffic.t.trace: bad.dat:2: found 3 of the columns; allowed: index, type, time and size, and possibly more",
        ),
        (
            "kind = \"video\"\ntrace = \"film.dat\"".to_owned(),
            "10:10: traffic.t.fps: missing; allowed: a number above 0, because the trace does not give the frame rate",
        ),
        ("kind = \"video\"".to_owned(), "10:10: traffic.t: found neither; allowed: either trace or gop"),
        (
            "kind = \"video\"\ngop = { pattern = \"IBX\", rate = \"1 Mbps\" }".to_owned(),
            "14:19: traffic.t.gop.pattern: found \"IBX\"; allowed: letters I, P and B, such as IBBPBBPBBPBB",
        ),
        (
            "kind = \"video\"\ngop = { i = \"1 KB\" }".to_owned(),
            "14:1: traffic.t.gop.p: missing; required: the size of a frame of type P, or rate for all types",
        ),
        (
            "kind = \"video\"\ngop = { pattern = \"IP\", i = \"9 KB\", p = \"3 KB\", b = \"1 KB\" }"
                .to_owned(),
            "14:49: traffic.t.gop.b: allowed: only with a frame of type B in pattern, found \"IP\"",
        ),
        (
            "kind = \"video\"\ngop = { rate = \"1 Mbps\" }\npacket = \"28 B\"".to_owned(),
            "15:10: traffic.t.packet: found \"28 B\"; allowed: at least 29 B, of which 28 B are headers",
        ),
        (
            "kind = \"cbr\"\nrate = \"1 Mbps\"\npacket = \"27 B\"".to_owned(),
            "15:10: traffic.t.packet: found \"27 B\"; allowed: at least 28 B, of which 28 B are headers",
        ),
        (
            "kind = \"cbr\"\nrate = \"1 Mbps\"\npacket = \"28 B\"\ntransport = \"default\"".to_owned(),
            "15:10: traffic.t.packet: found \"28 B\"; allowed: at least 29 B, of which 28 B are headers",
        ),
        (
            "kind = \"poisson\"\nrate = \"1 Mbps\"\npacket = { uniform = [\"1 B\", \"1 KB\"] }".to_owned(),
            "15:23: traffic.t.packet.uniform[1]: found \"1 B\"; allowed: at least 28 B, of which 28 B are headers",
        ),
        (
            "kind = \"poisson\"\nrate = \"1 Mbps\"\npacket = { choice = [\"1 KB\", \"20 B\"] }".to_owned(),
            "15:30: traffic.t.packet.choice[2]: found \"20 B\"; allowed: at least 28 B, of which 28 B are headers",
        ),
        (
            "kind = \"voip\"\ninterval = \"25 ms\"".to_owned(),
            "14:12: traffic.t.interval: found \"25 ms\"; allowed: a multiple of 10 ms, at most 200 ms",
        ),
        (
            format!("{mmpp}states = [{{ rate = \"1 bps\", sojourn = \"1 s\" }}]"),
            "15:10: traffic.t.states: found 1; allowed: at least 2 states and at most 100",
        ),
        (
            format!("{mmpp}{states}transitions = [[1, 1], [1, 0]]"),
            "16:17: traffic.t.transitions[1][1]: found 1; allowed: 0 on the diagonal",
        ),
        (
            format!("{mmpp}{states}transitions = [[0, 1]]"),
            "16:15: traffic.t.transitions: found 1 rows; allowed: 2, one for each state",
        ),
        (
            "kind = \"bulk\"\naway = [[\"2 s\", \"1 s\"]]".to_owned(),
            "14:9: traffic.t.away[1]: found [\"2 s\", \"1 s\"]; allowed: times that rise, from the first pair to the last",
        ),
        (
            "kind = \"cbr\"\nrate = \"1 Mbps\"\npacket = \"1 KB\"\ntransport = \"quick\"".to_owned(),
            "16:13: traffic.t.transport: found \"quick\"; allowed: default, reno-2003, byun2007, ns2, linux; default: UDP datagrams",
        ),
    ] {
        assert_eq!(folder.load(&traffic).expect_err("a mistake"), format!("my.toml:{expected}"), "{traffic}");
    }
    for shortest in ["packet = \"28 B\"", "packet = \"29 B\"\ntransport = \"default\""] {
        assert!(folder.load(&format!("kind = \"cbr\"\nrate = \"1 Mbps\"\n{shortest}")).is_ok(), "{shortest}");
    }
}

/// Invalid capacity traces: file, line, value found and permitted values.
#[test]
fn capacity_trace_errors_name_the_line() {
    const FORMAT: &str =
        "a trace in mahimahi's format, with the time of an opportunity to send 1500 bytes in each line";
    let folder = Folder::new("capacity");
    let load = |content: &[u8]| {
        folder.write("link.down", content);
        let text = HEAD.replace("rate = \"1 Mbps\"", "capacity.trace = \"link.down\"");
        let traffic = "[traffic.t]\nkind = \"bulk\"\nfrom = \"server\"\nto = \"client\"\n";
        folder.write("my.toml", format!("{text}{traffic}"));
        Scenario::load(folder.0.join("my.toml"), &[])
            .map_err(|e| e.to_string().replace(&format!("{}/", folder.0.display()), ""))
    };
    for (content, expected) in [
        (&b""[..], format!(": found an empty file; allowed: {FORMAT}")),
        (b"\n\n", format!(": found no time; allowed: {FORMAT}")),
        (b"0\n10\n9\n", ":3: found 9 after 10; allowed: times that never fall".to_owned()),
        (b"0\nabc\n", ":2: found \"abc\"; allowed: a time in whole milliseconds".to_owned()),
        (b"0\n1.5\n", ":2: found \"1.5\"; allowed: a time in whole milliseconds".to_owned()),
        (b"-1\n", ":1: found \"-1\"; allowed: a time in whole milliseconds".to_owned()),
        (b"0\n99999999999\n", ":2: found \"99999999999\"; allowed: a time in whole milliseconds".to_owned()),
        (b"1\n\xff\n", ":2: found the byte 0xff; allowed: a text, in UTF-8".to_owned()),
        (
            b"0\n0\n",
            ": found no time above 0; allowed: a last time above 0, which is the period of the trace"
                .to_owned(),
        ),
    ] {
        let found = load(content).expect_err("a mistake");
        assert_eq!(found, format!("my.toml:8:18: link.wire.capacity.trace: link.down{expected}"));
    }
    let right = load(b"5\n10\n10\n20\n").expect("a scenario");
    // Four times 1500 bytes in 20 ms; an AQM's defaults follow from the mean.
    assert_eq!(right.links[0].forward.mean_rate(), Some(bentpipe_units::Rate::from_bps(2_400_000)));
    let other = load(b"5\n10\n10\n21\n").expect("a scenario");
    assert_ne!(right.canonical_json(), other.canonical_json());
}

#[test]
fn a_packed_scenario_loads_without_its_files() {
    let folder = Folder::new("packed");
    folder.write("sizes.dat", "100\n250\n");
    folder.load(PAGES).expect("a scenario");
    let overrides = ["run.duration=3 s".to_owned()];
    let scenario = Scenario::load(folder.0.join("my.toml"), &overrides).expect("a scenario");
    let scenario = scenario.with_setting("red 4").expect("a preset");
    let packed = scenario.packed().expect("an AQM of the registry");
    assert_eq!(packed.setting.as_deref(), Some("RED 4"));
    let files: Vec<_> = packed
        .files
        .iter()
        .map(|(path, _)| (path.clone(), scenario.file(path).expect("a file that was read")))
        .collect();
    assert_eq!(files.len(), 1);
    folder.write("sizes.dat", "1\n");
    folder.write("my.toml", "");
    let again = Scenario::unpack(&packed, files).expect("the same scenario");
    assert_eq!(again.canonical_json(), scenario.canonical_json());
    assert_eq!(again.packed().as_ref(), Some(&packed));
    // Files on disk are not read.
    let error = Scenario::unpack(&packed, []).expect_err("no file came along").to_string();
    assert!(
        error.contains("sizes.dat is not packed with the scenario; allowed: a text with one number"),
        "{error}"
    );
}
