//! A bad path: a relay on loopback with a link drawn from the seed. When the link is replaced by
//! another, datagrams come from another port, as behind a NAT that lost its mapping.

use std::{io, net::SocketAddr, time::Duration};

use farhaul_core::{rng::Rng, units::Rate};
use farhaul_emu::relay::{Relay, RelayConfig};
use farhaul_io::clock;
use farhaul_link::{Jitter, Loss, PathConfig, Reorder};

use crate::{
    program::{lasting_port, pause},
    tree::pick,
};

/// A port that was closed is free by then.
const RELEASED: Duration = Duration::from_secs(10);

/// Path between client and server.
pub(super) struct Between {
    at: SocketAddr,
    to: SocketAddr,
    relay: Option<Relay>,
}

impl Between {
    pub(super) fn new(to: SocketAddr, rng: &mut Rng) -> io::Result<Self> {
        let mut this = Self {
            at: SocketAddr::from(([127, 0, 0, 1], lasting_port()?)),
            to,
            relay: None,
        };
        this.change(rng)?;
        Ok(this)
    }

    /// Address at which the client finds the server.
    pub(super) const fn at(&self) -> SocketAddr {
        self.at
    }

    /// Dark from now on.
    pub(super) fn go_dark(&mut self) -> io::Result<()> {
        match self.relay.take() {
            Some(relay) => relay.finish().map(drop),
            None => Ok(()),
        }
    }

    /// Changes to another path, from another port.
    pub(super) fn change(&mut self, rng: &mut Rng) -> io::Result<()> {
        self.go_dark()?;
        let config = RelayConfig {
            listen: self.at,
            to: self.to,
            forward: link(rng),
            back: link(rng),
            seed: rng.next_u64(),
            memory: 64 << 20,
        };
        let until = clock::now() + RELEASED;
        let relay = loop {
            match Relay::start(&config) {
                // A child that another thread starts holds the socket just closed until it executes.
                Err(e) if e.kind() == io::ErrorKind::AddrInUse && clock::now() < until => {
                    pause(Duration::from_millis(1));
                }
                started => break started?,
            }
        };
        self.at = relay.local_addr();
        self.relay = Some(relay);
        Ok(())
    }
}

fn link(rng: &mut Rng) -> PathConfig {
    let ms = Duration::from_millis;
    let mtu = [None, None, Some(9_000), Some(1_500), Some(1_280)];
    let worst = [0.0, 0.01, 0.05, 0.3][pick(rng, 4)];
    let reorder = rng.chance(0.4).then(|| Reorder {
        share: 0.05,
        by: ms(1 + rng.below(10)),
    });
    let jitter = rng.chance(0.2).then(|| Jitter {
        spread: ms(1 + rng.below(5)),
        reorder: rng.chance(0.5),
    });
    PathConfig {
        rate: Rate::mbit([20, 100, 400][pick(rng, 3)]),
        delay: ms(rng.below(50)),
        mtu: mtu[pick(rng, mtu.len())],
        loss: Loss::Random(worst * rng.unit()),
        reorder,
        jitter,
        duplicate: if rng.chance(0.3) { 0.02 } else { 0.0 },
        corrupt: if rng.chance(0.4) { 0.01 } else { 0.0 },
        ..PathConfig::default()
    }
}
