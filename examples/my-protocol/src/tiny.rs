//! The protocol: its descriptor, and its law.

use farhaul_congestion::{Error, lookup};
use farhaul_core::{
    arq::{self, ArqMachine},
    protocol::{Descriptor, Provenance},
    shell::Endpoint,
};

use crate::wire::TinyWire;

static DESCRIPTOR: Descriptor = Descriptor {
    name: "tiny",
    summary: "variable-length numbers over the engine's skeleton",
    provenance: Provenance::Specification,
    citation: "examples/my-protocol",
    sealed: false,
    control_lane: false,
    multiplexed: false,
};

/// A tiny endpoint.
pub type Tiny = Endpoint<ArqMachine<TinyWire>>;

/// Sessions under the congestion law `law`, as `cubic:beta=0.8`, in datagrams for a path of `mtu` bytes.
pub fn tiny(law: &str, mtu: u16) -> Result<Tiny, Error> {
    let law = lookup(law)?;
    Ok(arq::endpoint(&DESCRIPTOR, move || law.make(), mtu))
}
