//! Runs a congestion law by itself. [`Bare`] puts the engine's own skeleton, with any law, behind
//! the plainest of wire formats: nothing is sealed, nothing negotiated. A law behaves here as in
//! every protocol built on that skeleton.
//!
//! Behind the head: data is number u64, object u32, offset u64, payload. The sender's state is
//! settled u64, interval in µs u64, the number asked from u64 (all ones: none). A report is its six
//! numbers as u64 and its runs as variable-length integers.

use std::time::Duration;

use farhaul_core::{
    arq::{self, ArqMachine, DataHead, Report, SenderState, Wire},
    codec::{DecodeError, NoRoom, Reader, Writer},
    congestion::CongestionController,
    protocol::{Descriptor, Provenance},
    shell::Endpoint,
};

/// No number is asked from.
const NOTHING: u64 = u64::MAX;

static DESCRIPTOR: Descriptor = Descriptor {
    name: "bare",
    summary: "the engine's skeleton with any law, for studying laws",
    provenance: Provenance::Specification,
    citation: "this module",
    sealed: false,
    control_lane: false,
    multiplexed: false,
};

/// The skeleton with a law and next to nothing else.
pub type Bare = Endpoint<ArqMachine<BareWire>>;

/// Sessions governed by what `law` makes, in datagrams for a path of `mtu` bytes.
pub fn bare(
    law: impl Fn() -> Box<dyn CongestionController> + Send + Sync + 'static,
    mtu: u16,
) -> Bare {
    arq::endpoint(&DESCRIPTOR, law, mtu)
}

/// The format.
#[derive(Clone, Copy, Debug)]
pub struct BareWire;

impl Wire for BareWire {
    const DATA_HEAD: usize = 20;

    fn put_data(w: &mut Writer<'_>, data: &DataHead) -> Result<(), NoRoom> {
        w.u64(data.number)?;
        w.u32(data.object)?;
        w.u64(data.offset)
    }

    fn take_data(r: &mut Reader<'_>) -> Result<DataHead, DecodeError> {
        Ok(DataHead {
            number: r.u64()?,
            object: r.u32()?,
            offset: r.u64()?,
        })
    }

    fn put_report(w: &mut Writer<'_>, report: &Report) -> Result<(), NoRoom> {
        w.u64(report.from)?;
        w.u64(report.largest)?;
        w.u64(report.delay_us)?;
        w.u64(report.arrived_us)?;
        w.u64(report.bytes)?;
        w.u64(report.ce)?;
        report.runs.iter().try_for_each(|run| w.varint(*run))
    }

    fn take_report(r: &mut Reader<'_>, into: &mut Report) -> Result<(), DecodeError> {
        into.from = r.u64()?;
        into.largest = r.u64()?;
        into.delay_us = r.u64()?;
        into.arrived_us = r.u64()?;
        into.bytes = r.u64()?;
        into.ce = r.u64()?;
        while !r.is_empty() {
            into.runs.push(r.varint()?);
        }
        Ok(())
    }

    fn put_state(w: &mut Writer<'_>, state: &SenderState) -> Result<(), NoRoom> {
        w.u64(state.settled)?;
        w.u64(u64::try_from(state.interval.as_micros()).unwrap_or(u64::MAX))?;
        w.u64(state.want.unwrap_or(NOTHING))
    }

    fn take_state(r: &mut Reader<'_>) -> Result<SenderState, DecodeError> {
        Ok(SenderState {
            settled: r.u64()?,
            interval: Duration::from_micros(r.u64()?),
            want: Some(r.u64()?).filter(|from| *from != NOTHING),
        })
    }
}
