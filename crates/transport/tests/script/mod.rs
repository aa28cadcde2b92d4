//! Runs traces in the style of packetdrill against one endpoint of a transport.

use bentpipe_units::Instant;

/// An endpoint under test.
pub trait Endpoint: Sized {
    type Config;
    type Sent;

    fn open(cfg: &Self::Config, now: Instant, passive: bool) -> Self;
    fn poll_timeout(&self) -> Option<Instant>;
    fn handle_timeout(&mut self, cfg: &Self::Config, now: Instant);
    /// Carries out an event. Returns false if there is no such event.
    fn on_event(&mut self, cfg: &Self::Config, now: Instant, event: &[&str]) -> bool;
    fn poll(&mut self, cfg: &Self::Config, now: Instant) -> Option<Self::Sent>;
    fn words(sent: &Self::Sent) -> Vec<String>;
    /// Returns true if the words of a packet match the expected ones.
    fn matches(sent: &[String], expected: &[&str]) -> bool;
    /// Returns the state `key`; `None` if there is no such state.
    fn state(&self, key: &str) -> Option<String>;
}

/// Runs a trace. Panics at the first line where the endpoint differs.
pub fn run<E: Endpoint>(cfg: &E::Config, trace: &str) -> E {
    let mut run = Run { cfg, end: None::<E>, now: Instant::ZERO, sent: Vec::new(), at: String::new() };
    for (number, line) in trace.lines().enumerate() {
        let text = line.split('#').next().unwrap_or_default().trim();
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.split_first() {
            None => continue,
            Some((&">", expected)) => run.expect(expected, &format!("{}: {text}", number + 1)),
            Some((&"=", [key, value])) => run.state(key, value, &format!("{}: {text}", number + 1)),
            Some((time, event)) => {
                run.nothing_left();
                run.at = format!("{}: {text}", number + 1);
                run.event(millis(time), event);
            }
        }
    }
    run.nothing_left();
    run.end.expect("a trace begins with connect or listen")
}

struct Run<'a, E: Endpoint> {
    cfg: &'a E::Config,
    end: Option<E>,
    now: Instant,
    sent: Vec<E::Sent>,
    at: String,
}

impl<E: Endpoint> Run<'_, E> {
    fn event(&mut self, at: Instant, event: &[&str]) {
        assert!(at >= self.now, "line {}: time runs backwards", self.at);
        self.now = at;
        let (cfg, now) = (self.cfg, at);
        let opens = matches!(event, ["connect" | "listen"]);
        if opens {
            self.end = Some(E::open(cfg, now, event == ["listen"]));
        }
        let end = self.end.as_mut().expect("a trace begins with connect or listen");
        if event == ["timer"] {
            assert_eq!(end.poll_timeout(), Some(now), "line {}: the timer", self.at);
            end.handle_timeout(cfg, now);
        } else {
            let due = end.poll_timeout().is_some_and(|timer| timer <= now);
            assert!(!due, "line {}: a timer expired at {:?}", self.at, end.poll_timeout());
            assert!(opens || end.on_event(cfg, now, event), "line {}: no such event", self.at);
        }
        while let Some(sent) = end.poll(cfg, now) {
            self.sent.push(sent);
            assert!(self.sent.len() < 10_000, "line {}: too many packets", self.at);
        }
        self.sent.reverse();
    }

    fn expect(&mut self, expected: &[&str], line: &str) {
        let Some(sent) = self.sent.pop() else { panic!("line {line}: nothing more was sent at {}", self.at) };
        let sent = E::words(&sent);
        assert!(E::matches(&sent, expected), "line {line}: sent {}", sent.join(" "));
    }

    fn nothing_left(&self) {
        let left: Vec<String> = self.sent.iter().rev().map(|sent| E::words(sent).join(" ")).collect();
        assert!(left.is_empty(), "after line {}: also sent {left:?}", self.at);
    }

    fn state(&self, key: &str, value: &str, line: &str) {
        let end = self.end.as_ref().expect("a trace begins with connect or listen");
        let found = end.state(key).unwrap_or_else(|| panic!("line {line}: no such state"));
        assert_eq!(found, value, "line {line}, after {}", self.at);
    }
}

pub fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("no number: {word}"))
}

fn millis(word: &str) -> Instant {
    let ms: f64 = word.parse().unwrap_or_else(|_| panic!("no time: {word}"));
    Instant::from_nanos((ms * 1e6).round() as u64)
}

/// Formats a time [ms]; "none" without one.
pub fn ms(at: Option<Instant>) -> String {
    at.map_or_else(|| "none".into(), |at| format!("{}", at.as_nanos() as f64 / 1e6))
}
