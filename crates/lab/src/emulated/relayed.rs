//! Runs flows where two hosts cannot be built. Then a server runs on this host, and a UDP relay in
//! front of it is the network: nothing but loopback is needed.

use std::{
    cell::RefCell,
    io::{self, BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    thread,
};

use farhaul_emu::{
    WanReport,
    relay::{Relay, RelayConfig},
    wan::WanConfig,
};

use farhaul_udp::netns;

use super::{EmulatedRunError, single::words};

/// A network that exists while something is served on it.
pub(super) struct Relayed {
    network: WanConfig,
    last: RefCell<Option<WanReport>>,
}

impl Relayed {
    pub(super) fn new(network: &WanConfig) -> Self {
        Self {
            network: network.clone(),
            last: RefCell::new(None),
        }
    }

    /// Starts a server and a relay before it.
    pub(super) fn serve(&self, mut command: Command) -> Result<RelayPath<'_>, EmulatedRunError> {
        let words = words(&command);
        let failed = |e| EmulatedRunError::Start(words.clone(), e);
        command
            .args(["--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut path = RelayPath {
            relayed: self,
            server: netns::die_with_this_thread(&mut command)
                .spawn()
                .map_err(failed)?,
            relay: None,
            address: String::new(),
        };
        let to = whereabouts(&mut path.server).map_err(failed)?;
        let [mut forward, mut back] =
            [&self.network.near_to_far, &self.network.far_to_near].map(Clone::clone);
        for path in [&mut forward, &mut back] {
            path.mtu = Some(self.network.mtu);
        }
        let relay = Relay::start(&RelayConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            to,
            forward,
            back,
            seed: self.network.seed,
            memory: self.network.memory,
        })
        .map_err(failed)?;
        path.address = relay.local_addr().to_string();
        path.relay = Some(relay);
        Ok(path)
    }

    /// Report of the last run's network.
    pub(super) fn finish(self) -> Result<WanReport, EmulatedRunError> {
        let nothing = || io::Error::other("nothing has crossed it");
        let last = self.last.into_inner();
        last.ok_or_else(|| EmulatedRunError::Start("the relay".into(), nothing()))
    }
}

/// A server behind a relay; both end when dropped.
pub(super) struct RelayPath<'a> {
    relayed: &'a Relayed,
    server: Child,
    relay: Option<Relay>,
    address: String,
}

impl RelayPath<'_> {
    /// Address at which clients reach the relay.
    pub(super) fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for RelayPath<'_> {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.server.kill();
        let _ = self.server.wait();
        if let Some(Ok(report)) = self.relay.take().map(Relay::finish) {
            *self.relayed.last.borrow_mut() = Some(report);
        }
    }
}

/// Waits until the server has printed its address; later output is dropped.
fn whereabouts(server: &mut Child) -> io::Result<SocketAddr> {
    let stderr = server.stderr.take();
    let mut said = BufReader::new(stderr.ok_or_else(|| io::Error::other("no stderr"))?);
    let mut line = String::new();
    while said.read_line(&mut line)? > 0 {
        if let Some(address) = address_in(&line) {
            thread::Builder::new()
                .name("server-says".into())
                .spawn(move || io::copy(&mut said, &mut io::sink()))?;
            return Ok(address);
        }
        line.clear();
    }
    Err(io::Error::other("the server ended before it listened"))
}

/// The loopback address in a line such as `listening on 127.0.0.1:5000/udp, key ...`.
fn address_in(line: &str) -> Option<SocketAddr> {
    let from = &line[line.find("127.0.0.1:")?..];
    let end = from
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':'))
        .unwrap_or(from.len());
    from[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_prints_its_address() {
        let expected = "127.0.0.1:5000".parse().ok();
        assert_eq!(
            address_in("listening on 127.0.0.1:5000/udp, key x\n"),
            expected
        );
        assert_eq!(
            address_in("bench server at 127.0.0.1:5000 with haul"),
            expected
        );
        assert_eq!(address_in("share 'x'"), None);
    }

    #[test]
    fn a_server_that_ends_is_not_waited_for() {
        let mut child = Command::new("true").stderr(Stdio::piped()).spawn().unwrap();
        assert!(whereabouts(&mut child).is_err());
        child.wait().unwrap();
    }
}
