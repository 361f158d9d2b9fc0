//! UDT between two of ours, over every trouble a script can make.

mod hostile;
mod life;
mod opening;
mod transfer;

use std::time::Duration;

use farhaul_core::protocol::Protocol;
use farhaul_protocols::udt::{Behaviour, Framing, Udt, UdtConfig};
use farhaul_testkit::Pair;

use crate::shared::ms;

const MANNERS: [Behaviour; 2] = [Behaviour::Libudt, Behaviour::Fixed];
const LAW: &str = "daimd";
const LIMIT: Duration = Duration::from_mins(5);

fn config(behaviour: Behaviour, framing: Framing) -> UdtConfig {
    UdtConfig {
        behaviour,
        framing,
        answer: Duration::from_secs(30),
        cookie_key: Some([1, 2]),
        law: LAW.into(),
        ..UdtConfig::default()
    }
}

fn ends(config: &UdtConfig) -> (Box<dyn Protocol>, Box<dyn Protocol>) {
    (
        Box::new(Udt::client(config.clone()).expect("a valid configuration")),
        Box::new(Udt::server(config.clone()).expect("a valid configuration")),
    )
}

fn pair(config: &UdtConfig, delay: Duration) -> Pair {
    let (client, server) = ends(config);
    Pair::new(client, server, delay, 1)
}
