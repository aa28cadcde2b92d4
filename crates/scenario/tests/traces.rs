//! Files beside a scenario: what is read from them, and what is said of those that cannot be read.

use std::path::PathBuf;

use bentpipe_scenario::{Law, Scenario, TrafficKind};

/// A folder of its own for a test, with a scenario in it.
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

    /// The scenario with this traffic, or the message; the folder's name is left out.
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
fn sizes_come_from_the_lines_of_a_file() {
    let folder = Folder::new("sizes");
    folder.write("sizes.dat", "# bytes\n100\n250.0\n");
    let scenario = folder.load(PAGES).expect("a scenario");
    let TrafficKind::Pages(pages) = &scenario.traffic[0].kind else { panic!("pages") };
    let Law::Trace(samples) = &pages.object_size else { panic!("a trace") };
    assert_eq!(*samples.values, [100, 250]);
    let shown = scenario.effective().iter().find(|e| e.key == "traffic.t.object_size").expect("the key");
    assert_eq!(shown.value, "{ trace = \"sizes.dat\" }");
}

#[test]
fn another_file_is_another_scenario_and_another_name_is_not() {
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
fn what_is_wrong_in_a_file_is_told_with_its_line() {
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

/// Results are stored under this text, so what a scenario says already must not be written in another way.
#[test]
fn the_canonical_form_of_a_constant_rate() {
    let folder = Folder::new("canonical");
    let cbr =
        "kind = \"cbr\"\nrate = \"1 Mbps\"\npacket = \"1000 B\"\nstart = { uniform = [\"0 s\", \"1 s\"] }";
    let json = folder.load(cbr).expect("a scenario").canonical_json();
    let expected = r#""kind":{"cbr":{"flows":1,"rate":1000000,"packet":1000,"start":{"uniform":{"low":0,"high":1000000000}}}}"#;
    assert!(json.contains(expected), "{json}");
}
