//! Helpers that the tests share.

use std::{cell::RefCell, rc::Rc, time::Duration};

use farhaul_core::{
    protocol::{Event, Protocol},
    rng::Rng,
    time::Instant,
};
use farhaul_protocols::ttp::{
    Config, client, server,
    wire::{BlockHeader, Kind, Parameters},
};
use farhaul_testkit::{Datagram, Fate, Pair, Side};

pub(crate) use crate::shared::ms;

/// Bytes of a block over an MTU of 1,500.
pub(crate) const BLOCK: u64 = 1_466;

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Both want blocks at `rate` bit/s.
pub(crate) fn config(rate: u32) -> Config {
    let config = Config::default();
    Config {
        wanted: Parameters {
            rate,
            ..config.wanted
        },
        ..config
    }
}

pub(crate) fn ends(config: &Config) -> (Box<dyn Protocol>, Box<dyn Protocol>) {
    (
        Box::new(client(config).expect("a valid configuration")),
        Box::new(server(config).expect("a valid configuration")),
    )
}

pub(crate) fn pair(config: &Config, delay: Duration) -> Pair {
    let (client, server) = ends(config);
    Pair::new(client, server, delay, 7)
}

/// A pair that is open.
pub(crate) fn opened(config: &Config, delay: Duration) -> Pair {
    let mut pair = pair(config, delay);
    pair.connect(Some(9_000));
    let both = |p: &mut Pair| !p.client.events.is_empty() && !p.server.events.is_empty();
    assert!(pair.run(secs(4), both), "{pair:#?}");
    for side in [Side::Client, Side::Server] {
        let first = &pair.node(side).events[0];
        assert_eq!(*first, Event::Connected { peer_key: None });
    }
    pair
}

/// A block that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) at: Instant,
    pub(crate) block: u32,
    pub(crate) kind: Kind,
    pub(crate) len: usize,
}

/// Blocks as they leave `from`.
#[derive(Clone, Default)]
pub(crate) struct Log(Rc<RefCell<Vec<Left>>>);

impl Log {
    /// Notes `datagram`, if it is a block that `from` sends.
    pub(crate) fn note(&self, from: Side, datagram: &Datagram<'_>) -> Option<Left> {
        let header = BlockHeader::decode(datagram.bytes).ok()?;
        let left = Left {
            at: datagram.at,
            block: header.block,
            kind: header.kind,
            len: datagram.bytes.len(),
        };
        (datagram.from == from).then(|| self.0.borrow_mut().push(left))?;
        Some(left)
    }

    /// Takes the noted blocks.
    pub(crate) fn take(&self) -> Vec<Left> {
        self.0.take()
    }
}

/// Loses a share of all blocks.
pub(crate) fn losing(share: f64) -> impl FnMut(&Datagram<'_>) -> Fate {
    let mut rng = Rng::new(11);
    move |d| Fate::drop_if(d.bytes.len() > 100 && rng.chance(share))
}
