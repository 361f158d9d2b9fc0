//! The protocol: what it says of itself, and its law.

use farhaul_congestion::{Error, lookup};
use farhaul_core::{
    plain::Plain,
    protocol::{Descriptor, Provenance},
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

/// An endpoint that speaks tiny.
pub type Tiny = Plain<TinyWire>;

/// Sessions under the congestion law `law`, as `cubic:beta=0.8`, in datagrams for a path of `mtu` bytes.
pub fn tiny(law: &str, mtu: u16) -> Result<Tiny, Error> {
    let law = lookup(law)?;
    Ok(Plain::new(&DESCRIPTOR, move || law.make(), mtu))
}
