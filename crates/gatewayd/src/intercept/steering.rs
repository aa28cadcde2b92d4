//! Steering of packets to the daemon: the installed rules, the bypass, and whether the peer is reachable.

use std::io;

use crate::config::Prefix;
use crate::intercept::rules::{Rules, Setup, has_ipv6};
use crate::intercept::terminal_routes::{RouteTarget, TerminalRoutes};

/// The rules of this end.
#[derive(Debug)]
pub struct Steering {
    /// Setup of the rules.
    pub setup: Setup,
    rules: Option<Rules>,
    /// The routes of many terminals' users.
    routes: Option<TerminalRoutes>,
    /// True while the peer is reachable and packets are led to it.
    pub up: bool,
    /// True until the change to `up` is reported, which happens once the rules are in place.
    pub report_up: bool,
}

impl Steering {
    /// Nothing installed.
    pub fn new(setup: Setup) -> Self {
        Self { setup, rules: None, routes: None, up: false, report_up: false }
    }

    /// Installs the rules.
    pub fn install(&mut self) -> io::Result<()> {
        self.rules = Some(Rules::install(self.setup.clone())?);
        if let Some(tunnel) = self.setup.tunnel.as_ref().filter(|_| self.setup.terminals) {
            self.routes = Some(TerminalRoutes::open(self.setup.table + 1, tunnel)?);
        }
        Ok(())
    }

    /// Removes the rules.
    pub fn remove(&mut self) -> io::Result<()> {
        self.rules.take().map_or(Ok(()), Rules::remove)
    }

    /// Leads packets for users behind one of many terminals, once the rules are installed.
    pub fn set_routes(&self, clients: &[Prefix], target: RouteTarget) -> io::Result<()> {
        let Some(routes) = &self.routes else { return Ok(()) };
        if has_ipv6() {
            return routes.set_routes(clients, target);
        }
        let clients: Vec<_> = clients.iter().filter(|prefix| prefix.address.is_ipv4()).copied().collect();
        routes.set_routes(&clients, target)
    }

    /// True once no command that changes the rules is running.
    pub fn is_settled(&mut self) -> io::Result<bool> {
        self.rules.as_mut().map_or(Ok(true), Rules::settle)
    }

    /// Starts to bypass the PEP for new connections, or ends it.
    pub fn bypass(&mut self, on: bool) -> io::Result<()> {
        self.rules.as_mut().map_or(Ok(()), |rules| rules.bypass(on))
    }

    /// True if new connections bypass the PEP, or will once the running commands have ended.
    #[must_use]
    pub fn is_bypassing(&self) -> bool {
        self.rules.as_ref().is_some_and(Rules::bypassing)
    }
}
