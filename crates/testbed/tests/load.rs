//! Clients and servers with real sockets, over an emulated link.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::common::{Namespace, Testbed, address, now, plan, scenario, two};
use bentpipe_testbed::{content, sys};
use serde_json::{Value, json};

/// Time limit of a run that ends on a condition [s].
const HANGS: f64 = 280.0;

/// A plan for this traffic over a link of 20 ms, and the path of its flow records.
pub fn play(
    spaces: &[Namespace; 2],
    traffic: &str,
    entries: Value,
    seconds: f64,
    extras: Value,
) -> (Value, PathBuf) {
    let mut plan = plan(spaces, "", extras);
    let link = "[link.satellite]\nbetween = [\"server\", \"client\"]\ndelay = \"20 ms\"";
    plan["scenario"]["text"] = json!(scenario(link, traffic));
    plan["traffic"] = entries;
    plan["until_s"] = json!(seconds);
    let out =
        std::env::temp_dir().join(format!("bentpipe-testbed-flows-{}-{}.jsonl", std::process::id(), now()));
    plan["out"] = json!(out);
    (plan, out)
}

/// Runs a plan; returns the flows that `load` and `serve` recorded, and the summaries of both, that of `load` with the
/// emulator's as `emulator` and the lateness of the later of both.
pub fn run(spaces: &[Namespace; 2], plan: &mut Value, out: &PathBuf) -> (Vec<Flow>, Vec<Flow>, Value, Value) {
    run_until(spaces, plan, out, |_| false)
}

/// Runs a plan until a progress line of `load` meets the condition.
pub fn run_until(
    spaces: &[Namespace; 2],
    plan: &mut Value,
    out: &PathBuf,
    enough: impl Fn(&Value) -> bool,
) -> (Vec<Flow>, Vec<Flow>, Value, Value) {
    let (load, serve) = run_until_kept(spaces, plan, &enough);
    (flows(out), flows(&out.with_extension("serve.jsonl")), load, serve)
}

/// Runs a plan until a progress line of `load` meets the condition; returns the summaries as [`run`] does, and keeps the files.
pub fn run_until_kept(
    spaces: &[Namespace; 2],
    plan: &mut Value,
    enough: &impl Fn(&Value) -> bool,
) -> (Value, Value) {
    let emulator = Testbed::start("emulate", plan);
    address(spaces);
    plan["origin_ns"] = json!(now() + 300_000_000);
    let server = Testbed::start("serve", plan);
    let mut clients = Testbed::start("load", plan);
    let mut load = clients.line();
    while load.get("summary").is_none() {
        if enough(&load) {
            drop(clients.input.take());
        }
        load = clients.line();
    }
    let serve = server.end();
    load["summary"]["emulator"] = emulator.end()["statistics"].clone();
    load["summary"]["late_s"] = json!(lateness(&load["summary"]).max(lateness(&serve["summary"])));
    (load["summary"].clone(), serve["summary"].clone())
}

pub type Flow = BTreeMap<String, Value>;

pub fn flows(path: &PathBuf) -> Vec<Flow> {
    let Ok(text) = std::fs::read_to_string(path) else { return Vec::new() };
    std::fs::remove_file(path).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let columns = lines.next().unwrap()["columns"].as_array().unwrap().clone();
    lines
        // Records of pages and of delays are objects.
        .filter(Value::is_array)
        .map(|row| {
            let cells = row.as_array().unwrap().clone();
            columns.iter().map(|name| name.as_str().unwrap().to_owned()).zip(cells).collect()
        })
        .collect()
}

/// The records of pages in a file of flow records.
pub fn pages(path: &PathBuf) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter_map(|line| line.get("page").cloned()).collect()
}

/// True once the run has lasted this long [s].
fn lasts(load: &Value, seconds: f64) -> bool {
    load["t"].as_f64().is_some_and(|time| time >= seconds)
}

/// True once more than this number of flows have completed.
pub fn has_completed(load: &Value, flows: u64) -> bool {
    load["completed"].as_u64().is_some_and(|completed| completed > flows)
}

/// Maximum lateness of the clients or of the servers [s].
fn lateness(summary: &Value) -> f64 {
    summary["late_s"].as_f64().unwrap()
}

/// Maximum lateness of clients and servers [s].
pub fn late(load: &Value) -> f64 {
    let late = lateness(load);
    assert!(late < 2.0, "nothing can be seen on a machine that stands still for {late} s");
    late
}

pub fn number(flow: &Flow, column: &str) -> f64 {
    flow[column].as_f64().unwrap_or_else(|| panic!("{column} of {flow:?}"))
}

const PAGES: &str = r#"
[traffic.web]
kind = "pages"
from = "server"
to = "client"
sessions = 20
object_size = { uniform = ["20 KB", "60 KB"] }
objects_per_page = 3
think_time = "100 ms"
ramp = { sessions = 20, over = "500 ms" }
"#;

/// Sessions fetch pages over a link that loses, duplicates and reorders packets, with IPv4 and IPv6: every byte is correct,
/// no page completes in less than two round trips, and the next request follows after the think time.
#[test]
fn pages_arrive_intact_over_a_link_with_loss_and_reordering() {
    let Some(spaces) = two() else { return };
    for (family, per) in [(4, "page"), (6, "object")] {
        let traffic = format!("{PAGES}connection_per = \"{per}\"\n");
        let extras =
            json!({ "loss": 0.01, "duplicate": 0.02, "reorder": { "probability": 0.02, "by_s": 0.01 } });
        let (mut plan, out) = play(&spaces, &traffic, json!({ "web": { "family": family } }), HANGS, extras);
        let (flows, _, load, serve) = run_until(&spaces, &mut plan, &out, |load| has_completed(load, 150));
        assert!(flows.len() > 150, "{}", flows.len());
        let done: Vec<_> = flows.iter().filter(|flow| flow["completed"] == json!(true)).collect();
        assert!(flows.len() - done.len() <= 60, "{load}");
        for flow in &flows {
            assert!(flow["intact"] != json!(false) && flow["failed"] == json!(false), "{flow:?}");
        }
        let objects = if per == "page" { 3.0 } else { 1.0 };
        for flow in &done {
            let bytes = number(flow, "delivered");
            assert!((20e3 * objects..=60e3 * objects).contains(&bytes), "{bytes}");
            // Handshake and request; each further object is requested once the last is complete.
            assert!(number(flow, "completion_time") >= 0.04 * (1.0 + objects), "{flow:?}");
            assert!(number(flow, "connected") >= 0.04 && number(flow, "first_byte") >= 0.08);
        }
        // A user's next page follows after the think time.
        let mut own: Vec<_> = done.iter().filter(|flow| flow["session"] == json!(7)).collect();
        own.sort_by(|a, b| number(a, "opened").total_cmp(&number(b, "opened")));
        let at_once = if per == "page" { 1 } else { 3 };
        for pair in own.chunks(at_once).collect::<Vec<_>>().windows(2) {
            let done = pair[0].iter().map(|flow| number(flow, "closed")).fold(0.0, f64::max);
            let think = number(pair[1][0], "opened") - done;
            assert!((0.0999..=0.1001 + late(&load)).contains(&think), "{think} {load}");
        }
        let sum: f64 = flows.iter().map(|flow| number(flow, "delivered")).sum();
        assert_eq!(load["traffic"]["web"]["delivered_bytes"].as_f64(), Some(sum));
        assert_eq!(load["traffic"]["web"]["corrupt"], json!(0));
        assert!(serve["connections"]["accepted"].as_u64().unwrap() as usize >= done.len());
    }
}

/// Over a link with a round trip of 40 ms, the page of one session ends no earlier than its handshake, its first object and
/// the others allow, and comes with the flows that carry it. Of 13 objects over HTTP/1.1, each of six connections requests the
/// second object of the 12 that follow the first after its own handshake; over HTTP/2 all requests are sent at once.
#[test]
fn browsers_load_pages_over_the_connections_of_their_http_version() {
    let Some(spaces) = two() else { return };
    for (http, connections, round_trips) in [("1.1", 6, 5), ("2", 1, 3)] {
        let traffic = format!(
            "[traffic.web]\nkind = \"pages\"\nfrom = \"server\"\nto = \"client\"\nsessions = 1\nobjects_per_page = 13\n\
             http = \"{http}\"\nobject_size = \"2 KB\"\nthink_time = \"10 ms\"\n"
        );
        let (mut plan, out) = play(&spaces, &traffic, json!({ "web": {} }), HANGS, json!({}));
        let (load, _) = run_until_kept(&spaces, &mut plan, &|load| has_completed(load, 3 * connections));
        let (pages, flows) = (pages(&out), flows(&out));
        assert!(pages.len() >= 3, "{load}");
        for page in &pages {
            let time = |key: &str| page[key].as_f64().unwrap();
            let took = time("closed") - time("opened");
            assert!(took >= 0.04 * f64::from(round_trips), "{page}");
            assert!((0.08..=took).contains(&time("first_byte")), "{page}");
            let own: Vec<_> = flows
                .iter()
                .filter(|flow| (time("opened")..=time("closed")).contains(&number(flow, "opened")))
                .collect();
            assert_eq!(own.len() as u64, connections, "{page}");
            assert!(own.iter().all(|flow| flow["intact"] == json!(true) && flow["completed"] == json!(true)));
            assert_eq!(own.iter().map(|flow| number(flow, "delivered")).sum::<f64>(), 13.0 * 2000.0);
        }
    }
}

/// nginx in the first namespace, with an object that `load` verifies. Stops when dropped.
struct Nginx {
    child: std::process::Child,
    folder: PathBuf,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn nginx(space: &Namespace, port: u16) -> Option<Nginx> {
    let folder = std::env::temp_dir().join(format!("bentpipe-testbed-nginx-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("files")).unwrap();
    let object = folder.join("files/object");
    let testbed = env!("CARGO_BIN_EXE_bentpipe-testbed");
    assert!(Command::new(testbed).arg("object").arg(&object).arg("1000000").status().unwrap().success());
    let shown = folder.display();
    let text = format!(
        "daemon off; master_process off; pid {shown}/pid; error_log stderr crit;\n\
         events {{ worker_connections 1000; }}\n\
         http {{ access_log off; keepalive_requests 1000; client_body_temp_path {shown}; proxy_temp_path {shown};\n\
         fastcgi_temp_path {shown}; uwsgi_temp_path {shown}; scgi_temp_path {shown};\n\
         server {{ listen {port}; root {shown}/files; }} }}\n"
    );
    std::fs::write(folder.join("conf"), text).unwrap();
    let (conf, prefix) = (folder.join("conf"), folder.clone());
    let child = space.run(move || Command::new("nginx").arg("-p").arg(prefix).arg("-c").arg(conf).spawn());
    let Ok(child) = child else {
        eprintln!("not tested: there is no nginx");
        return None;
    };
    let nginx = Nginx { child, folder };
    for _ in 0..600 {
        if space.run(move || TcpStream::connect(("127.0.0.1", port)).is_ok()) {
            return Some(nginx);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("nginx does not listen");
}

/// The same pages from nginx, several objects per connection: every byte is correct.
#[test]
fn pages_from_nginx_arrive_intact() {
    let Some(spaces) = two() else { return };
    let Some(_nginx) = nginx(&spaces[0], 8080) else { return };
    let entry = json!({ "web": { "by": "nginx", "port": 8080 } });
    let traffic = format!("{PAGES}connection_per = \"page\"\n");
    let (mut plan, out) = play(&spaces, &traffic, entry, HANGS, json!({}));
    let (flows, _, load, _) = run_until(&spaces, &mut plan, &out, |load| has_completed(load, 150));
    let done: Vec<_> = flows.iter().filter(|flow| flow["completed"] == json!(true)).collect();
    assert!(done.len() > 150 && flows.len() - done.len() <= 20, "{load}");
    for flow in done {
        assert!((60e3..=180e3).contains(&number(flow, "delivered")), "{flow:?}");
        assert_eq!(flow["intact"], json!(true));
    }
}

/// Failed flows have the reason: a missing object, and one that is too short.
#[test]
fn a_wrong_response_is_recorded_with_its_reason() {
    let Some(spaces) = two() else { return };
    let Some(_nginx) = nginx(&spaces[0], 8080) else { return };
    for (path, size, expected) in
        [("/none", "1 KB", "status 404"), ("/object", "2 MB", "object of 1000000 bytes")]
    {
        let entry = json!({ "web": { "by": "nginx", "port": 8080, "path": path } });
        let traffic = format!(
            "[traffic.web]\nkind = \"pages\"\nfrom = \"server\"\nto = \"client\"\nsessions = 2\n\
             object_size = \"{size}\"\n"
        );
        let (mut plan, out) = play(&spaces, &traffic, entry, HANGS, json!({}));
        let both_failed = |load: &Value| load["failed"].as_u64() >= Some(2);
        let (flows, _, load, _) = run_until(&spaces, &mut plan, &out, both_failed);
        let failed = flows.iter().filter(|flow| flow["failed"] == json!(true));
        let errors: Vec<_> = failed.map(|flow| &flow["error"]).collect();
        assert!(errors.len() >= 2, "{load}");
        assert!(errors.iter().all(|error| **error == json!(expected)), "{flows:?}");
    }
}

/// Endless transfers with an absence from 1.5 to 2.5 s and with a lifetime of 1 s; one of 300 KB; files of 50 KB every
/// 200 ms; and uploads, which the server records.
#[test]
fn transfers_start_and_end_as_the_scenario_schedules() {
    let Some(spaces) = two() else { return };
    let traffic = |name: &str, kind: &str, from: &str, to: &str, rest: &str| {
        format!("[traffic.{name}]\nkind = \"{kind}\"\nfrom = \"{from}\"\nto = \"{to}\"\n{rest}\n")
    };
    let away = "rate_cap = \"4 Mbps\"\naway = [[\"1500 ms\", \"2500 ms\"]]";
    let text = [
        traffic("away", "bulk", "server", "client", away),
        traffic("lives", "bulk", "server", "client", "lifetime = \"1 s\"\nrate_cap = \"4 Mbps\""),
        traffic("once", "bulk", "server", "client", "bytes = \"300 KB\"\nstart = \"500 ms\""),
        traffic("files", "files", "server", "client", "sources = 1\ninterval = \"200 ms\"\nsize = \"50 KB\""),
        traffic("up", "bulk", "client", "server", "bytes = \"300 KB\""),
        traffic("upload", "bulk", "client", "server", ""),
    ]
    .concat();
    let names = ["away", "lives", "once", "files", "up", "upload"];
    let entries: Value = names.map(|name| (name.to_owned(), json!({}))).into_iter().collect();
    let (mut plan, out) = play(&spaces, &text, entries, 4.0, json!({}));
    let (flows, theirs, load, _) = run(&spaces, &mut plan, &out);
    let of = |name: &str| -> Vec<&Flow> {
        flows.iter().chain(&theirs).filter(|flow| flow["traffic"] == json!(name)).collect()
    };
    assert!(flows.iter().chain(&theirs).all(|flow| flow["failed"] == json!(false)), "{load}");
    for flow in flows.iter().chain(&theirs) {
        // The last ones may not have received anything.
        assert!(flow["intact"] == json!(true) || number(flow, "delivered") == 0.0, "{flow:?}");
    }

    // Never early, and no later than the reported lateness. A late emulator leaves less time to transfer.
    let late = late(&load);
    let delayed = late + load["emulator"]["late"]["max_s"].as_f64().unwrap();
    let close = |found: &Value, due: f64| (due - 1e-6..=due + late + 1e-6).contains(&found.as_f64().unwrap());
    let away = of("away");
    assert_eq!(away.len(), 2);
    assert!(close(&away[0]["closed"], 1.5) && close(&away[1]["opened"], 2.5), "{away:?}");
    assert!(away[1]["closed"].is_null());
    // At most 4 Mbit/s with headers for 1.46 s; less by what a stalled server does not send.
    let bytes = number(away[0], "delivered");
    assert!((100e3..720e3 + late * 500e3).contains(&bytes), "{bytes} {load}");

    let lives = of("lives");
    assert_eq!(lives.len(), 4);
    for (i, life) in (0..).zip(&lives) {
        assert!(close(&life["opened"], f64::from(i)), "{life:?}");
    }
    let once = of("once");
    assert_eq!((once.len(), number(once[0], "delivered")), (1, 300e3));
    assert!(close(&once[0]["opened"], 0.5) && once[0]["completed"] == json!(true));

    let files = of("files");
    // Starts at 0.2, 0.4 … 3.8 s. The one at 4 s may be missing, and the last ones may be incomplete.
    assert!(files.len() <= 20 && files.len() as f64 >= 18.9 - late / 0.2, "{} {load}", files.len());
    for (i, file) in (1..).zip(&files) {
        assert!(close(&file["opened"], f64::from(i) * 0.2), "{file:?} {load}");
        let is_last = f64::from(i) * 0.2 + 1.0 + delayed > 4.0;
        assert!(is_last || file["completed"] == json!(true), "{file:?} {load}");
        assert!(number(file, "delivered") == 50e3 || file["completed"] == json!(false), "{file:?}");
    }

    let up = of("up");
    assert!(!up.is_empty(), "{theirs:?} {load}");
    assert_eq!((up.len(), number(up[0], "delivered")), (1, 300e3));
    assert!(up[0]["completed"] == json!(true));
    assert_eq!(load["traffic"]["up"]["completed"], json!(1));
    let upload = of("upload");
    assert!(upload.len() == 1 && number(upload[0], "delivered") > 1e6, "{upload:?}");
}

/// Datagrams in both directions over a link that loses a tenth of them: number, size and delay are recorded.
#[test]
fn datagrams_are_recorded_with_delay_and_loss() {
    let Some(spaces) = two() else { return };
    let traffic = |name: &str, from: &str, to: &str| {
        let rate = "rate = \"160 kbps\"\npacket = \"200 B\"";
        format!("[traffic.{name}]\nkind = \"cbr\"\nfrom = \"{from}\"\nto = \"{to}\"\n{rate}\nflows = 2\n")
    };
    for family in [4, 6] {
        let text = [traffic("down", "server", "client"), traffic("up", "client", "server")].concat();
        let entries = json!({ "down": { "family": family }, "up": { "family": family } });
        let (mut plan, out) = play(&spaces, &text, entries, HANGS, json!({ "loss": 0.1 }));
        let (down, up, load, serve) = run_until(&spaces, &mut plan, &out, |load| lasts(load, 3.0));
        let due = load["seconds"].as_f64().unwrap() * 100.0 + 1.0;
        assert_eq!((down.len(), up.len()), (2, 2), "{load} {serve}");
        // A late emulator and late receivers lengthen the delays.
        let late = late(&load) + load["emulator"]["late"]["max_s"].as_f64().unwrap();
        let mut lost = 0.0;
        for flow in down.iter().chain(&up) {
            // One per 10 ms. The IPv6 header is 20 bytes longer.
            let (packets, bytes) = (number(flow, "packets"), if family == 4 { 172.0 } else { 152.0 });
            let sent = packets + number(flow, "lost");
            assert!((0.85 * due - 100.0 * late..=due).contains(&sent), "{sent} of {due} {load}");
            assert_eq!(number(flow, "delivered"), packets * bytes);
            assert!((0.02..0.03 + late).contains(&number(flow, "delay")), "{flow:?} {load}");
            assert!(number(flow, "jitter") < 0.01 + late, "{flow:?} {load}");
            lost += number(flow, "lost");
        }
        let sent = load["datagrams"]["sent"].as_f64().unwrap() + serve["datagrams"]["sent"].as_f64().unwrap();
        // Five standard errors, and the end of each flow.
        assert!((lost - 0.1 * sent).abs() < 5.0 * (0.09 * sent).sqrt() + 4.0, "{lost} of {sent}");
    }
}

/// Packets with 172 bytes of payload per 20 ms in both directions over TCP.
#[test]
fn packet_sources_can_send_over_connections() {
    let Some(spaces) = two() else { return };
    let traffic = |name: &str, from: &str, to: &str| {
        let rate = "rate = \"80 kbps\"\npacket = \"200 B\"\ntransport = \"default\"";
        format!("[traffic.{name}]\nkind = \"cbr\"\nfrom = \"{from}\"\nto = \"{to}\"\n{rate}\nflows = 1\n")
    };
    let transport = "[transport.default]\nprotocol = \"tcp\"\n";
    let text = [transport.to_owned(), traffic("down", "server", "client"), traffic("up", "client", "server")]
        .concat();
    let (mut plan, out) = play(&spaces, &text, json!({ "down": {}, "up": {} }), HANGS, json!({}));
    let (down, up, load, _) = run_until(&spaces, &mut plan, &out, |load| lasts(load, 3.0));
    assert_eq!((down.len(), up.len()), (1, 1), "{load}");
    let due = load["seconds"].as_f64().unwrap() * 50.0 + 1.0;
    let delayed = late(&load) + load["emulator"]["late"]["max_s"].as_f64().unwrap();
    for flow in down.iter().chain(&up) {
        // Those due before the handshake completes are sent at once. Late processes hold what is due meanwhile.
        let bytes = number(flow, "delivered");
        let least = 0.92 * due - 50.0 * delayed;
        assert!((least * 172.0..=due * 172.0).contains(&bytes), "{bytes} of {due} packets: {load}");
        assert_eq!(flow["intact"], json!(true));
    }
}

/// Without a server, each page fails at once, and the user waits a second before the next.
#[test]
fn failed_pages_are_recorded_and_retried_after_a_delay() {
    let Some(spaces) = two() else { return };
    let entry = json!({ "web": { "by": "nginx", "port": 81 } });
    let (mut plan, out) = play(&spaces, &format!("{PAGES}connection_per = \"page\""), entry, 3.0, json!({}));
    let (flows, _, load, _) = run(&spaces, &mut plan, &out);
    assert!((40..=60).contains(&flows.len()), "{}", flows.len());
    assert!(
        flows
            .iter()
            .all(|flow| flow["failed"] == json!(true) && flow["error"] == json!("connection refused"))
    );
    assert_eq!(load["errors"]["connection refused"].as_u64(), Some(flows.len() as u64));
}

/// A client that closes its half still receives the whole object; pipelined requests get their responses in order; uploads
/// get a response at their end; anything but HTTP gets none.
#[test]
fn the_server_handles_half_closed_pipelined_and_invalid_requests() {
    let Some(spaces) = two() else { return };
    let (mut plan, _) = play(&spaces, PAGES, json!({ "web": { "port": 8001 } }), 9.0, json!({}));
    plan.as_object_mut().unwrap().remove("out");
    let server = Testbed::start("serve", &plan);
    let ask = |request: &'static str, half: bool| {
        spaces[0].run(move || {
            let mut stream = TcpStream::connect("127.0.0.1:8001").unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            if half {
                stream.shutdown(Shutdown::Write).unwrap();
            }
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).map(|_| answer)
        })
    };
    let get = "GET /0 HTTP/1.1\r\nRange: bytes=0-2999999\r\n\r\n";
    let before = sys::monotonic();
    let answer = ask(get, true).unwrap();
    let begin = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(answer.len() - begin, 3_000_000);
    let mut written = Vec::new();
    assert!(content::BlockReader::default().read(0, &answer[begin..], true, |time| written.push(time)));
    assert_eq!(written.len() as u64, 3_000_000_u64.div_ceil(content::BLOCK));
    assert!(written.is_sorted() && written[0] >= before && written.last() <= Some(&sys::monotonic()));

    let two = "GET /0 HTTP/1.1\r\nRange: bytes=0-9\r\n\r\nGET /0 HTTP/1.1\r\nRange: bytes=0-11\r\nConnection: close\r\n\r\n";
    let answer = ask(two, false).unwrap();
    let text = String::from_utf8_lossy(&answer).into_owned();
    assert!(text.contains("Content-Length: 10\r\n") && text.contains("Content-Length: 12\r\n"), "{text}");
    assert!(answer.ends_with(&(8..12).map(content::byte).collect::<Vec<_>>()));

    assert!(ask("POST /0 HTTP/1.1\r\n\r\nabc", true).unwrap().starts_with(b"HTTP/1.1 206"));
    assert!(
        ask("POST /0 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", false).unwrap().starts_with(b"HTTP/1.1 206")
    );
    for bad in ["SSH-2.0\r\n\r\n", "PUT /0 HTTP/1.1\r\n\r\n"] {
        assert!(ask(bad, false).is_ok_and(|answer| answer.is_empty()) || ask(bad, false).is_err());
    }
    let summary = server.end();
    assert_eq!(summary["summary"]["connections"]["open"], json!(0));
    assert_eq!(summary["summary"]["traffic"]["web"]["delivered_bytes"], json!(6));
}

/// 4000 concurrent sessions with a connection of 100 kbit/s each, until all receive and 200 MB have arrived: none fails and
/// none exceeds its rate.
#[test]
fn four_thousand_sessions_stay_open_at_their_rate() {
    let Some(spaces) = two() else { return };
    // An object takes 800 s at this rate, so that none completes.
    let text = "[traffic.web]\nkind = \"pages\"\nfrom = \"server\"\nto = \"client\"\nsessions = 4000\n\
                object_size = \"10 MB\"\nrate_cap = \"100 kbps\"\nramp = { sessions = 4000, over = \"1 s\" }\n";
    let (mut plan, out) = play(&spaces, text, json!({ "web": {} }), HANGS, json!({}));
    // A lost SYN is retransmitted after 1, 3, 7 … s; until then the others may have received 200 MB.
    let enough = |load: &Value| {
        load["receiving"] == json!(4000) && load["bytes"].as_f64().is_some_and(|bytes| bytes > 200e6)
    };
    let (flows, _, load, serve) = run_until(&spaces, &mut plan, &out, enough);
    assert_eq!(flows.len(), 4000, "{load}");
    assert!(
        flows.iter().all(|flow| flow["failed"] == json!(false) && flow["intact"] == json!(true)),
        "{load}"
    );
    assert_eq!(serve["connections"]["most"], json!(4000));
    assert!(load["traffic"]["web"]["delivered_bytes"].as_f64().is_some_and(|bytes| bytes > 200e6), "{load}");
    // 12 500 bytes/s with headers; the kernel sends the first packets without pacing.
    let rated = 12.5e3 * (load["seconds"].as_f64().unwrap() + 1.0);
    let most = flows.iter().map(|flow| number(flow, "delivered")).fold(0.0, f64::max);
    assert!(most < rated, "{most} {load}");
}
