//! What is the wire format? After type and id (five bytes), numbers in one, two, four or eight
//! bytes:
//!
//! - data: packet number (4, low half), object (4), offset (8), then the payload to the end
//! - report: newest packet, µs it waited, receiver's clock in µs, bytes received, marks, and runs of
//!   arrived and missing packets in turn, downwards from the newest, to the end
//! - state: first undecided packet, µs between reports, and one more than the packet from which on
//!   nothing is known, or 0

use std::time::Duration;

use farhaul_core::{
    arq::{DataHead, Report, SenderState, Wire},
    codec::{DecodeError, NoRoom, Reader, VARINT_MAX, Writer},
};

/// The format.
#[derive(Clone, Copy, Debug)]
pub struct TinyWire;

impl Wire for TinyWire {
    const DATA_HEAD: usize = 16;

    fn put_data(w: &mut Writer<'_>, data: &DataHead) -> Result<(), NoRoom> {
        // 2^32 packets are 35 TB and more: enough for one session of an example.
        w.u32(u32::try_from(data.number).map_err(|_| NoRoom)?)?;
        w.u32(data.object)?;
        w.u64(data.offset)
    }

    fn take_data(r: &mut Reader<'_>) -> Result<DataHead, DecodeError> {
        Ok(DataHead {
            number: r.u32()?.into(),
            object: r.u32()?,
            offset: r.u64()?,
        })
    }

    fn put_report(w: &mut Writer<'_>, report: &Report) -> Result<(), NoRoom> {
        let delay = report.delay_us.min(VARINT_MAX);
        for number in [
            report.largest,
            delay,
            report.arrived_us,
            report.bytes,
            report.ce,
        ] {
            w.varint(number)?;
        }
        report.runs.iter().try_for_each(|run| w.varint(*run))
    }

    fn take_report(r: &mut Reader<'_>, into: &mut Report) -> Result<(), DecodeError> {
        const BAD: DecodeError = DecodeError::Malformed("runs");
        into.largest = r.varint()?;
        into.delay_us = r.varint()?;
        into.arrived_us = r.varint()?;
        into.bytes = r.varint()?;
        into.ce = r.varint()?;
        into.from = into.largest + 1;
        while !r.is_empty() {
            let run = r.varint()?;
            into.from = into.from.checked_sub(run).ok_or(BAD)?;
            into.runs.push(run);
        }
        Ok(())
    }

    fn put_state(w: &mut Writer<'_>, state: &SenderState) -> Result<(), NoRoom> {
        w.varint(state.settled)?;
        w.varint(u64::try_from(state.interval.as_micros()).unwrap_or(VARINT_MAX))?;
        w.varint(state.want.map_or(0, |from| from + 1))
    }

    fn take_state(r: &mut Reader<'_>) -> Result<SenderState, DecodeError> {
        Ok(SenderState {
            settled: r.varint()?,
            interval: Duration::from_micros(r.varint()?),
            want: r.varint()?.checked_sub(1),
        })
    }
}
