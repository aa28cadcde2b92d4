//! Users in virtual time, compared with the simulator: with the same seed, each requests the same.

use std::collections::{BTreeMap, VecDeque};

use bentpipe_scenario::Scenario;
use bentpipe_sim::Progress;
use bentpipe_testbed::plan::Plan;
use bentpipe_testbed::users::{Task, UserId, Users};
use bentpipe_traffic::dash::{Period, Playback};
use bentpipe_units::{Duration, Instant};
use serde_json::json;

const SEED: u64 = 11;

/// Bytes and start of each connection, by session.
type Rows = BTreeMap<u32, Vec<(u64, Instant)>>;

/// Two servers and three clients over links without queues, with delays drawn per connection.
fn text(traffic: &str) -> String {
    format!(
        r#"
title = "users"
[run]
duration = "30 s"
[host.server]
count = 2
[host.client]
count = 3
[router.middle]
[link.one]
between = ["server", "middle"]
delay = {{ uniform = ["1 ms", "2 ms"], per = "connection" }}
[link.two]
between = ["middle", "client"]
delay = {{ uniform = ["1 ms", "2 ms"], per = "connection" }}
reverse = {{ delay = {{ uniform = ["3 ms", "4 ms"], per = "connection" }} }}
[router.aside]
[link.spare]
between = ["aside", "middle"]
rate = "1 Gbps"
delay = "10 s"
queue = {{ aqm = {{ algorithm = "red" }} }}
{traffic}
"#
    )
}

fn users(text: &str) -> Users {
    let addresses =
        |side: u8, count: u8| -> Vec<_> { (1..=count).map(|i| format!("10.{side}.0.{i}")).collect() };
    let plan = json!({
        "scenario": { "file": "users.toml", "text": text },
        "seed": SEED,
        "hosts": {
            "server": { "side": "servers", "addresses": addresses(1, 2) },
            "client": { "side": "clients", "addresses": addresses(3, 3) },
        },
        "traffic": { "t": {} },
    });
    Users::new(&Plan::parse(&plan.to_string(), "plan").unwrap(), |_| true)
}

/// The connections in a simulation.
fn simulated(text: &str) -> Rows {
    let scenario = Scenario::parse(text, "users.toml", &[]).unwrap();
    let results = bentpipe_sim::run(&scenario, SEED, &Progress::default()).unwrap();
    let mut found: Rows = BTreeMap::new();
    for flow in &results.flows {
        found
            .entry(flow.session)
            .or_default()
            .push((if flow.completed { flow.delivered } else { 0 }, flow.opened));
    }
    found
}

/// The connections of the users, each of which takes `took`.
fn played(text: &str, took: Duration) -> Rows {
    let mut users = users(text);
    let mut found: Rows = BTreeMap::new();
    // Open connections: end, user, objects left, index in the rows of the session.
    let mut open: Vec<(Instant, UserId, u32, usize)> = Vec::new();
    let end = Instant::ZERO + Duration::from_secs(30);
    loop {
        let next = open.iter().map(|conn| conn.0).chain(users.due()).min();
        let Some(now) = next.filter(|next| *next < end) else {
            // Incomplete connections count 0 bytes, as in the simulation.
            for (_, user, _, row) in open {
                found.get_mut(&users.workload(user).1).unwrap()[row].0 = 0;
            }
            return found;
        };
        let mut tasks = VecDeque::new();
        users.advance(now, &mut tasks);
        for task in tasks {
            let Task::Open(task) = task else { continue };
            let (_, number) = users.workload(task.user);
            let rows = found.entry(number).or_default();
            rows.push((task.bytes.unwrap_or(0), now));
            open.push((now + took, task.user, task.objects, rows.len() - 1));
        }
        let (done, rest) = open.into_iter().partition(|conn| conn.0 <= now);
        open = rest;
        for (_, user, objects, row) in done {
            let (_, number) = users.workload(user);
            let sizes = users.next_objects(user, objects - 1, now);
            if !sizes.is_empty() {
                found.get_mut(&number).unwrap()[row].0 += sizes.iter().sum::<u64>();
                open.push((now + took, user, objects.max(2) - 1, row));
            } else {
                users.done(user, false, now);
            }
        }
    }
}

/// Compares the bytes of the connections that completed in the simulation, for every session.
fn compare(traffic: &str, at_least: usize) -> (Rows, Rows) {
    let text = text(traffic);
    let (theirs, ours) = (simulated(&text), played(&text, Duration::from_millis(20)));
    assert_eq!(theirs.len(), ours.len());
    for (session, theirs) in &theirs {
        let ours = &ours[session];
        let both: Vec<_> =
            theirs.iter().zip(ours).filter(|(theirs, ours)| theirs.0 > 0 && ours.0 > 0).collect();
        assert!(both.len() >= at_least, "{session}: {}", both.len());
        assert!(both.iter().all(|(theirs, ours)| theirs.0 == ours.0), "{session}: {both:?}");
    }
    (theirs, ours)
}

#[test]
fn sessions_request_the_same_objects_as_in_the_simulation() {
    compare(
        "[traffic.t]\nkind = \"pages\"\nfrom = \"server\"\nto = \"client\"\nsessions = 5\nobjects_per_page = 3\n\
         object_size = { uniform = [\"1 KB\", \"9 KB\"] }\nthink_time = { exponential = \"500 ms\" }",
        10,
    );
}

/// Over HTTP/2, and over HTTP/1.1 with at most six objects, a connection's objects do not depend on the network.
#[test]
fn browsers_request_the_same_objects_as_in_the_simulation() {
    for (http, objects) in [("2", 9), ("1.1", 7), ("1.1", 1)] {
        compare(
            &format!(
                "[traffic.t]\nkind = \"pages\"\nfrom = \"server\"\nto = \"client\"\nsessions = 5\n\
                 objects_per_page = {objects}\nhttp = \"{http}\"\nobject_size = {{ uniform = [\"1 KB\", \"9 KB\"] }}\n\
                 think_time = {{ exponential = \"500 ms\" }}"
            ),
            10,
        );
    }
}

/// Start times match to the nanosecond, since nothing that happens in the network changes them.
#[test]
fn files_have_the_sizes_and_start_times_of_the_simulation() {
    let (theirs, ours) = compare(
        "[traffic.t]\nkind = \"files\"\nfrom = \"server\"\nto = \"client\"\nsources = 4\ninterval = { exponential = \"1 s\" }\n\
         size = { pareto = { shape = 1.5, mean = \"10 KB\" } }\naway = [[\"5 s\", \"8 s\"]]",
        10,
    );
    for (session, theirs) in &theirs {
        let times = |rows: &[(u64, Instant)]| rows.iter().map(|row| row.1).collect::<Vec<_>>();
        assert_eq!(times(theirs), times(&ours[session]), "{session}");
    }
}

/// A source with a number of transfers starts that many, at the times of the simulation.
#[test]
fn sources_end_after_their_number_of_transfers() {
    let (theirs, ours) = compare(
        "[traffic.t]\nkind = \"files\"\nfrom = \"server\"\nto = \"client\"\nsources = 4\ninterval = { exponential = \"1 s\" }\n\
         size = \"10 KB\"\ntransfers = 7",
        7,
    );
    assert!(theirs.values().chain(ours.values()).all(|rows| rows.len() == 7));
}

/// A profile thins transfers out as in the simulation: with a day of 20 s, some sources start half as many as at its peak.
#[test]
fn transfers_follow_the_profile_of_the_simulation() {
    let files = |profile: &str| {
        text(&format!(
            "[traffic.t]\nkind = \"files\"\nfrom = \"server\"\nto = \"client\"\nsources = 4\n\
             interval = {{ exponential = \"200 ms\" }}\nsize = \"1 KB\"\n{profile}"
        ))
    };
    let halved = files("profile = { points = [[\"0 h\", 0.2], [\"12 h\", 0.8]], day = \"20 s\" }");
    let number = |rows: &Rows| rows.values().map(Vec::len).sum::<usize>();
    let end = Duration::from_secs(30);
    let (theirs, ours) = (simulated(&halved), played(&halved, end));
    for (session, theirs) in &theirs {
        let times = |rows: &[(u64, Instant)]| rows.iter().map(|row| row.1).collect::<Vec<_>>();
        assert!(ours[session].len() >= theirs.len());
        assert_eq!(times(theirs), times(&ours[session][..theirs.len()]), "{session}");
    }
    // The share is 0.5 on average, 600 transfers are expected at the peak's rate; five standard deviations.
    let expected = 300.0;
    assert!((number(&ours) as f64 - expected).abs() < 5.0 * f64::sqrt(expected), "{}", number(&ours));
    assert!(number(&played(&files(""), end)) as f64 > 1.5 * expected);
}

/// After its drawn lifetime a transfer is followed by the next at the same time as in the simulation.
#[test]
fn transfers_with_a_lifetime_start_when_those_of_the_simulation_do() {
    let text = text(
        "[traffic.t]\nkind = \"bulk\"\nfrom = \"server\"\nto = \"client\"\nflows = 4\nrate_cap = \"100 kbps\"\n\
         lifetime = { exponential = \"2 s\" }\nstart = { uniform = [\"0 s\", \"1 s\"] }\n\
         ramp = { sessions = 2, over = \"1 s\", pause = \"1 s\" }\naway = [[\"10 s\", \"12 s\"]]",
    );
    let (theirs, ours) = (simulated(&text), played(&text, Duration::from_secs(1000)));
    for (session, theirs) in &theirs {
        let times = |rows: &[(u64, Instant)]| rows.iter().map(|row| row.1).collect::<Vec<_>>();
        assert!(theirs.len() > 5);
        assert_eq!(times(theirs), times(&ours[session]), "{session}");
    }
}

/// The same number of packets with the same total length.
#[test]
fn packet_sources_send_as_much_as_in_the_simulation() {
    let text = text(
        "[traffic.t]\nkind = \"poisson\"\nfrom = \"server\"\nto = \"client\"\nflows = 3\nrate = \"80 kbps\"\n\
         packet = { uniform = [\"100 B\", \"1000 B\"] }\nstart = { uniform = [\"0 s\", \"1 s\"] }",
    );
    let scenario = Scenario::parse(&text, "users.toml", &[]).unwrap();
    let results = bentpipe_sim::run(&scenario, SEED, &Progress::default()).unwrap();
    let mut users = users(&text);
    let mut ours: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut tasks = VecDeque::new();
    // Packets sent in the last milliseconds do not arrive before the end.
    users.advance(Instant::ZERO + Duration::from_secs(30), &mut tasks);
    for task in tasks {
        if let Task::Packet { user, len } = task {
            let (packets, bytes) = ours.entry(users.workload(user).1).or_default();
            (*packets, *bytes) = (*packets + 1, *bytes + u64::from(len) - 28);
        }
    }
    for flow in &results.flows {
        let (packets, bytes) = ours[&flow.session];
        assert!(
            packets > 300 && packets - u64::from(flow.received_packets) <= 2,
            "{packets} {}",
            flow.received_packets
        );
        assert!(bytes - flow.delivered <= 2 * 972, "{bytes} {}", flow.delivered);
    }
}

/// Begin, rungs played with their times [ms] and bytes of a viewing.
type Seen = (Instant, Vec<(u8, u64)>, u64);

/// Rungs that were played, with their times [ms].
fn rungs<'a>(periods: impl Iterator<Item = &'a Period>) -> Vec<(u8, u64)> {
    let mut found: Vec<(u8, u64)> = Vec::new();
    for period in periods {
        let Playback::Playing(rung) = period.playback else { continue };
        let ms = period.duration().as_nanos() / 1_000_000;
        match found.last_mut() {
            Some(last) if last.0 == rung.0 => last.1 += ms,
            _ => found.push((rung.0, ms)),
        }
    }
    found
}

/// Viewers over a fast network, in which each segment takes some round trips, begin the same viewings and choose the same rungs as
/// in the simulation, and their segments have the same sizes.
#[test]
fn viewers_choose_the_same_rungs_as_in_the_simulation() {
    let text = text(
        "[traffic.t]\nkind = \"dash\"\nfrom = \"server\"\nto = \"client\"\nflows = 4\ncontroller = \"bba\"\n\
         ladder = [\"300 kbps\", \"750 kbps\", \"1500 kbps\"]\nsegment = \"2 s\"\nbuffer = \"12 s\"\n\
         size_variation = { uniform = [\"80 %\", \"120 %\"] }\nwatch = { uniform = [\"9 s\", \"13 s\"] }\n\
         think_time = { exponential = \"1 s\" }\nstart = { uniform = [\"0 s\", \"1 s\"] }",
    );
    let scenario = Scenario::parse(&text, "users.toml", &[]).unwrap();
    let results = bentpipe_sim::run(&scenario, SEED, &Progress::default()).unwrap();
    let mut theirs: BTreeMap<u32, Vec<Seen>> = BTreeMap::new();
    for flow in &results.flows {
        let viewing = results.viewing(flow).unwrap();
        let seen = (flow.opened, rungs(viewing.periods().iter()), flow.delivered);
        theirs.entry(flow.session).or_default().push(seen);
    }
    let ours = watched(&text, Duration::from_millis(40));
    assert_eq!(theirs.len(), 4);
    for (number, theirs) in &theirs {
        let ours = &ours[number];
        assert_eq!(theirs.len(), ours.len());
        assert!(theirs.len() >= 2, "{theirs:?}");
        // The last is cut off by the end of the run.
        for (theirs, ours) in theirs.iter().zip(ours).take(theirs.len() - 1) {
            let of = |seen: &Seen| (seen.0, seen.1.iter().map(|(rung, _)| *rung).collect::<Vec<_>>(), seen.2);
            assert_eq!(of(theirs), of(ours), "{number}");
            // Playback begins with the first segment, whose time in the simulation has slow start.
            assert!(
                theirs.1.iter().zip(&ours.1).all(|(a, b)| a.1.abs_diff(b.1) < 100),
                "{theirs:?} {ours:?}"
            );
            assert!(theirs.1.len() >= 2, "{theirs:?}");
        }
    }
}

/// The viewings of the users, of which each segment takes `took`.
fn watched(text: &str, took: Duration) -> BTreeMap<u32, Vec<Seen>> {
    let mut users = users(text);
    let mut found: BTreeMap<u32, Vec<Seen>> = BTreeMap::new();
    let mut open: BTreeMap<UserId, (Vec<Period>, Instant, u64)> = BTreeMap::new();
    // Segments that are due: arrival, user, size.
    let mut segments: Vec<(Instant, UserId, u64)> = Vec::new();
    let end = Instant::ZERO + Duration::from_secs(30);
    loop {
        let next = segments.iter().map(|segment| segment.0).chain(users.due()).min();
        let now = next.map_or(end, |next| next.min(end));
        let mut tasks = VecDeque::new();
        if now < end {
            users.advance(now, &mut tasks);
        } else {
            tasks.extend(users.ids().map(Task::Leave));
        }
        for task in tasks {
            match task {
                Task::Open(task) => {
                    open.insert(task.user, (Vec::new(), now, 0));
                    segments.extend(
                        users.request_segment(task.user, now).map(|bytes| (now + took, task.user, bytes)),
                    );
                }
                Task::Segment { user, at } => {
                    assert_eq!(at, now);
                    segments.extend(users.request_segment(user, now).map(|bytes| (now + took, user, bytes)));
                }
                Task::Leave(user) => {
                    let Some((mut periods, begin, bytes)) = open.remove(&user) else { continue };
                    segments.retain(|segment| segment.1 != user);
                    users.end_viewing(user, now, |period| periods.push(period));
                    found.entry(users.workload(user).1).or_default().push((
                        begin,
                        rungs(periods.iter()),
                        bytes,
                    ));
                }
                Task::Packet { .. } => {}
            }
        }
        if now == end {
            return found;
        }
        let (arrived, rest) = segments.into_iter().partition(|segment| segment.0 <= now);
        segments = rest;
        for (_, user, bytes) in arrived {
            let (periods, _, total) = open.get_mut(&user).unwrap();
            *total += bytes;
            let next = users.receive_segment(user, bytes, now, |period| periods.push(period));
            segments.extend(next.map(|bytes| (now + took, user, bytes)));
        }
    }
}
