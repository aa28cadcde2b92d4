//! The terminals behind a gateway, and which of them an address is behind. A terminal has one peer: the gateway.

use std::collections::VecDeque;
use std::net::IpAddr;

use bentpipe_spacelink::{Certificate, PeerId};

use crate::config::Prefix;

/// A peer of this end.
#[derive(Debug)]
pub struct Terminal {
    /// Its name; `None` for the only peer.
    pub name: Option<String>,
    /// Its certificate; `None` for the only peer.
    pub certificate: Option<Certificate>,
    /// Prefixes of the users behind it.
    pub clients: Vec<Prefix>,
    /// True while it is connected.
    pub up: bool,
    /// True while it has as many connections as it may have, nearly.
    pub full: bool,
    /// Name of its plan; empty without one.
    pub plan: String,
    /// Bytes of relayed connections that it has delivered.
    pub delivered: u64,
    /// Bytes released to it that the regulator has counted and the spacelink not yet.
    released: u64,
}

/// All peers of this end.
#[derive(Debug, Default)]
pub struct Terminals {
    /// By [`PeerId`].
    list: Vec<Option<Terminal>>,
    /// The only peer, to which every address leads.
    only: Option<PeerId>,
    /// First and last address of each prefix, as [`Number`]s in ascending order, and the terminal behind which they are.
    routes: Vec<(Number, Number, PeerId)>,
    /// Connected terminals that have not been reported.
    unreported: Vec<PeerId>,
    /// Certificates and names of removed terminals, the latest first.
    former: VecDeque<(Certificate, String)>,
}

/// Maximum number of removed terminals that are remembered.
const MOST_FORMER: usize = 1000;

/// An address as a number, which begins with true for IPv6: all IPv4 addresses come before.
type Number = (bool, u128);

fn number(address: IpAddr) -> Number {
    match address {
        IpAddr::V4(v4) => (false, u32::from(v4).into()),
        IpAddr::V6(v6) => (true, v6.into()),
    }
}

/// First and last address of a prefix.
fn span(prefix: &Prefix) -> (Number, Number) {
    let (is_v6, first) = number(prefix.address);
    let all = if is_v6 { u128::MAX } else { u32::MAX.into() };
    ((is_v6, first), (is_v6, first | all.checked_shr(u32::from(prefix.length)).unwrap_or(0)))
}

impl Terminals {
    /// One peer, to which every address leads.
    #[must_use]
    pub fn only(peer: PeerId) -> Self {
        let mut terminals = Self { only: Some(peer), ..Self::default() };
        terminals.insert(peer, None, Vec::new());
        terminals
    }

    /// Adds a terminal with the users' prefixes behind it, none of which another terminal has.
    ///
    /// [`Self::set_plan`] names its plan.
    pub fn insert(&mut self, peer: PeerId, known: Option<(String, Certificate)>, clients: Vec<Prefix>) {
        if self.list.len() <= peer.index() {
            self.list.resize_with(peer.index() + 1, || None);
        }
        let (name, certificate) = known.unzip();
        self.list[peer.index()] = Some(Terminal {
            name,
            certificate,
            clients,
            up: false,
            full: false,
            plan: String::new(),
            delivered: 0,
            released: 0,
        });
        self.sort_routes();
    }

    /// Notes the name of a terminal's plan.
    pub fn set_plan(&mut self, peer: PeerId, plan: Option<&str>) {
        if let Some(Some(terminal)) = self.list.get_mut(peer.index()) {
            terminal.plan = plan.unwrap_or_default().to_owned();
        }
    }

    /// Counts bytes that a terminal has delivered.
    pub fn count_delivered(&mut self, peer: PeerId, bytes: u64) {
        if let Some(Some(terminal)) = self.list.get_mut(peer.index()) {
            terminal.delivered += bytes;
        }
    }

    /// Removes a terminal.
    pub fn remove(&mut self, peer: PeerId) {
        self.unreported.retain(|other| *other != peer);
        let removed = self.list.get_mut(peer.index()).and_then(Option::take);
        if let Some(Terminal { name: Some(name), certificate: Some(certificate), .. }) = removed {
            self.former.retain(|(other, _)| *other != certificate);
            self.former.truncate(MOST_FORMER - 1);
            self.former.push_front((certificate, name));
        }
        self.sort_routes();
    }

    /// Changes the prefixes of the users behind terminals; no two have common addresses.
    pub fn set_clients(&mut self, changed: Vec<(PeerId, Vec<Prefix>)>) {
        for (peer, clients) in changed {
            if let Some(Some(terminal)) = self.list.get_mut(peer.index()) {
                terminal.clients = clients;
            }
        }
        self.sort_routes();
    }

    fn sort_routes(&mut self) {
        self.routes.clear();
        for (number, terminal) in (0..).zip(&self.list) {
            let prefixes = terminal.iter().flat_map(|terminal| &terminal.clients);
            self.routes.extend(prefixes.map(span).map(|(first, last)| (first, last, PeerId(number))));
        }
        self.routes.sort_unstable();
    }

    /// Name that a removed terminal with this certificate had.
    #[must_use]
    pub fn former(&self, certificate: &Certificate) -> Option<&str> {
        self.former.iter().find(|(other, _)| other == certificate).map(|(_, name)| name.as_str())
    }

    /// A terminal.
    #[must_use]
    pub fn get(&self, peer: PeerId) -> Option<&Terminal> {
        self.list.get(peer.index())?.as_ref()
    }

    /// Name of a terminal; empty for the only peer.
    #[must_use]
    pub fn name(&self, peer: PeerId) -> &str {
        self.get(peer).and_then(|terminal| terminal.name.as_deref()).unwrap_or_default()
    }

    /// All terminals, by number.
    pub fn iter(&self) -> impl Iterator<Item = (PeerId, &Terminal)> {
        (0..).map(PeerId).zip(&self.list).filter_map(|(peer, terminal)| Some((peer, terminal.as_ref()?)))
    }

    /// The terminal that a user's address is behind.
    #[must_use]
    pub fn of_client(&self, client: IpAddr) -> Option<PeerId> {
        if self.only.is_some() {
            return self.only;
        }
        let address = number(client.to_canonical());
        let behind = self.routes.partition_point(|(first, ..)| *first <= address);
        let (_, last, peer) = self.routes.get(behind.checked_sub(1)?)?;
        (address <= *last).then_some(*peer)
    }

    /// True while one of them is connected.
    #[must_use]
    pub fn is_one_up(&self) -> bool {
        self.iter().any(|(_, terminal)| terminal.up)
    }

    /// Notes that a terminal is connected, or not any more.
    pub fn set_up(&mut self, peer: PeerId, up: bool) {
        self.unreported.retain(|other| *other != peer);
        if let Some(Some(terminal)) = self.list.get_mut(peer.index()) {
            (terminal.up, terminal.full) = (up, false);
            if up {
                self.unreported.push(peer);
            }
        }
    }

    /// Takes the connected terminals that have not been reported.
    pub fn take_unreported(&mut self) -> Vec<PeerId> {
        std::mem::take(&mut self.unreported)
    }

    /// Notes that a terminal has `streams` connections of at most `most`. It is full from nine tenths on, and has room again below
    /// eight tenths. Returns the new state if that changes it.
    pub fn count_streams(&mut self, peer: PeerId, streams: usize, most: usize) -> Option<bool> {
        let terminal = self.list.get_mut(peer.index())?.as_mut()?;
        let full = if terminal.full { 10 * streams >= 8 * most } else { 10 * streams >= 9 * most };
        (std::mem::replace(&mut terminal.full, full) != full).then_some(full)
    }

    /// Counts bytes released to a terminal.
    pub fn count_released(&mut self, peer: PeerId, bytes: u32) {
        if let Some(Some(terminal)) = self.list.get_mut(peer.index())
            && terminal.up
        {
            terminal.released += u64::from(bytes);
        }
    }

    /// Bytes released to a terminal since the last call.
    pub fn take_released(&mut self, peer: PeerId) -> u64 {
        let terminal = self.list.get_mut(peer.index()).and_then(Option::as_mut);
        terminal.map_or(0, |terminal| std::mem::take(&mut terminal.released))
    }
}

/// Two prefixes with common addresses: the number of each one's owner, and the prefixes.
#[must_use]
pub fn overlap(prefixes: &[(usize, Prefix)]) -> Option<[(usize, Prefix); 2]> {
    let mut spans: Vec<_> = prefixes.iter().map(|&(owner, prefix)| (span(&prefix), owner, prefix)).collect();
    spans.sort_unstable_by_key(|(span, owner, _)| (*span, *owner));
    // Prefixes contain each other or have nothing in common, so the one before is the one to compare with.
    let clash = spans.windows(2).find(|pair| pair[1].0.0 <= pair[0].0.1)?;
    let mut both = [(clash[0].1, clash[0].2), (clash[1].1, clash[1].2)];
    both.sort_unstable_by_key(|(owner, _)| *owner);
    Some(both)
}

/// True if `inner` lies within `outer`.
#[must_use]
pub fn is_within(inner: &Prefix, outer: &Prefix) -> bool {
    let ((first, last), (from, to)) = (span(inner), span(outer));
    from <= first && last <= to
}

#[cfg(test)]
mod tests {
    use bentpipe_spacelink::Identity;

    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_leads_to_the_terminal_whose_prefix_has_it() {
        let mut terminals = Terminals::default();
        for (number, clients) in [
            (0, vec!["10.3.0.0/24", "fd03::/64"]),
            (2, vec!["10.3.2.0/23", "10.9.0.1/32"]),
            (1, vec!["fd03:1::/64"]),
        ] {
            let clients = clients.into_iter().map(prefix).collect();
            terminals.insert(PeerId(number), None, clients);
        }
        for (address, peer) in [
            ("10.3.0.0", Some(0)),
            ("10.3.0.255", Some(0)),
            ("10.3.1.0", None),
            ("10.3.2.0", Some(2)),
            ("10.3.3.255", Some(2)),
            ("10.3.4.0", None),
            ("10.9.0.1", Some(2)),
            ("10.9.0.2", None),
            ("0.0.0.0", None),
            ("fd03::ffff", Some(0)),
            ("fd03:0:0:1::", None),
            ("fd03:1::1", Some(1)),
            ("::ffff:10.3.0.1", Some(0)),
        ] {
            assert_eq!(terminals.of_client(address.parse().unwrap()), peer.map(PeerId), "{address}");
        }
        terminals.remove(PeerId(2));
        terminals.set_clients(vec![(PeerId(1), vec![prefix("10.3.2.0/24")])]);
        let of = |address: &str| terminals.of_client(address.parse().unwrap());
        assert_eq!([of("10.3.2.1"), of("10.3.3.1"), of("fd03:1::1")], [Some(PeerId(1)), None, None]);
        assert_eq!(Terminals::only(PeerId(0)).of_client("1.2.3.4".parse().unwrap()), Some(PeerId(0)));
    }

    #[test]
    fn a_removed_terminal_is_known_by_its_certificate() {
        let certificate = |name| Identity::generate(name).unwrap().certificate();
        let [office, other] = ["office", "other"].map(certificate);
        let mut terminals = Terminals::default();
        terminals.insert(PeerId(0), Some(("office".to_owned(), office.clone())), Vec::new());
        assert_eq!(terminals.former(&office), None);
        terminals.remove(PeerId(0));
        assert_eq!((terminals.former(&office), terminals.former(&other)), (Some("office"), None));
        // It has had two names; the latest counts, and only so many are remembered.
        terminals.insert(PeerId(0), Some(("shop".to_owned(), office.clone())), Vec::new());
        terminals.remove(PeerId(0));
        assert_eq!((terminals.former(&office), terminals.former.len()), (Some("shop"), 1));
        terminals.former.resize(2 * MOST_FORMER, (other.clone(), String::new()));
        terminals.insert(PeerId(0), Some(("last".to_owned(), other.clone())), Vec::new());
        terminals.remove(PeerId(0));
        assert_eq!((terminals.former(&other), terminals.former(&office)), (Some("last"), Some("shop")));
        assert!(terminals.former.len() <= MOST_FORMER);
    }

    #[test]
    fn a_terminal_is_full_at_nine_tenths_and_has_room_below_eight() {
        let mut terminals = Terminals::default();
        terminals.insert(PeerId(0), None, Vec::new());
        for (streams, change) in [
            (89, None),
            (90, Some(true)),
            (95, None),
            (80, None),
            (79, Some(false)),
            (89, None),
            (100, Some(true)),
        ] {
            assert_eq!(terminals.count_streams(PeerId(0), streams, 100), change, "{streams}");
        }
        terminals.set_up(PeerId(0), false);
        assert_eq!(terminals.count_streams(PeerId(0), 0, 100), None);
    }

    #[test]
    fn overlapping_prefixes_are_found() {
        let found = |list: &[&str]| {
            let all: Vec<_> = list.iter().map(|text| prefix(text)).enumerate().collect();
            overlap(&all).map(|both| both.map(|(owner, _)| owner))
        };
        assert_eq!(found(&["10.0.0.0/24", "10.0.1.0/24", "fd00::/64", "fd00:0:0:1::/64"]), None);
        assert_eq!(found(&["10.0.0.0/24", "fd00::/64", "10.0.0.128/25"]), Some([0, 2]));
        assert_eq!(found(&["10.0.0.7/32", "10.0.0.0/24"]), Some([0, 1]));
        assert_eq!(found(&["fd00::/64", "fd00::/64"]), Some([0, 1]));
        assert_eq!(found(&["10.0.0.0/24", "0.0.0.0/0"]), Some([0, 1]));
        // Prefixes of two versions have no common addresses.
        assert_eq!(found(&["0.0.0.0/0", "::/0", "::ffff:0:0/96"]), Some([1, 2]));
        assert_eq!(found(&["10.0.0.0/24", "::/0"]), None);
    }

    #[test]
    fn a_default_route_of_one_version_takes_no_addresses_of_the_other() {
        let mut terminals = Terminals::default();
        for (peer, text) in [(0, "::/0"), (1, "10.0.0.0/24")] {
            terminals.insert(PeerId(peer), None, vec![prefix(text)]);
        }
        let of = |address: &str| terminals.of_client(address.parse().unwrap()).map(|peer| peer.0);
        assert_eq!(["10.0.0.1", "10.0.1.1", "fd00::1"].map(of), [Some(1), None, Some(0)]);
    }

    #[test]
    fn prefixes_lie_within_larger_ones_of_their_version() {
        for (inner, outer, within) in [
            ("10.3.0.0/24", "10.3.0.0/16", true),
            ("10.3.0.0/16", "10.3.0.0/16", true),
            ("10.3.0.0/16", "10.3.0.0/24", false),
            ("10.4.0.0/24", "10.3.0.0/16", false),
            ("10.4.0.0/24", "::/0", false),
            ("fd03::/64", "fd03::/48", true),
        ] {
            assert_eq!(is_within(&prefix(inner), &prefix(outer)), within, "{inner} {outer}");
        }
    }
}
