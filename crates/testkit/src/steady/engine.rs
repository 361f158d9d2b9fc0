//! How do sender and receiver make an engine? Feedback goes first, then data.

use std::time::Duration;

use farhaul_core::{
    codec::{DecodeError, Reader},
    datagram::TxBuf,
    stats::{Stats, Why},
    store::{Extent, ObjectId},
    time::Instant,
};

use super::{
    Steady,
    receiver::Receiver,
    sender::Sender,
    wire::{DATA, DATA_HEADER, Data, MAX_REPORT, REPORT},
};
use farhaul_core::plain::{Arrived, Engine, Wrote};

#[derive(Debug)]
pub(super) struct SteadyEngine {
    config: Steady,
    sender: Sender,
    receiver: Receiver,
    lost: u64,
}

impl SteadyEngine {
    pub(super) fn new(config: Steady, now: Instant) -> Self {
        Self {
            config,
            sender: Sender::new(config, now),
            receiver: Receiver::default(),
            lost: 0,
        }
    }

    fn on_report(&mut self, now: Instant, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        let (prefix, _newest) = (r.u64()?, r.u64()?);
        let mut gaps = Vec::new();
        while !r.is_empty() {
            let (start, len) = (r.u64()?, r.u64()?);
            gaps.push(start..start.saturating_add(len));
        }
        self.lost += gaps.len() as u64;
        self.sender.on_report(now, prefix, &gaps);
        Ok(())
    }
}

impl Engine for SteadyEngine {
    fn open(&mut self, _now: Instant, rtt: Duration) {
        self.sender.rtt = rtt;
    }

    fn hear(
        &mut self,
        now: Instant,
        kind: u8,
        r: &mut Reader<'_>,
        arrived: Arrived,
        extents: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        match kind {
            DATA => {
                let data = Data::take(r)?;
                let payload = arrived.len - DATA_HEADER;
                let end = data.position.checked_add(payload as u64);
                self.receiver
                    .on_data(now, data.position, end.ok_or(DecodeError::Truncated)?);
                extents.push(Extent {
                    object: data.object,
                    offset: data.offset,
                    len: u32::try_from(payload).unwrap_or(u32::MAX),
                    at: u32::try_from(arrived.at + DATA_HEADER).unwrap_or(u32::MAX),
                });
                Ok(())
            }
            REPORT => self.on_report(now, r),
            _ => Err(DecodeError::Malformed("type")),
        }
    }

    fn write(
        &mut self,
        now: Instant,
        id: u64,
        out: &mut TxBuf,
        extents: &mut Vec<Extent>,
    ) -> Wrote {
        if self.receiver.due().is_some_and(|at| at <= now) {
            out.begin(MAX_REPORT);
            if let Some(len) = self.receiver.report(now, id, out.next_segment()) {
                out.commit(len, len);
                return Wrote::Control {
                    feedback: len as u64,
                };
            }
        }
        if self.sender.write(now, id, out, extents) {
            Wrote::Data
        } else {
            Wrote::Nothing
        }
    }

    fn on_timer(&mut self, now: Instant) {
        self.sender.on_timer(now);
    }

    fn deadline(&self) -> Option<(Instant, Why)> {
        let sending = self.sender.deadline().map(|at| (at, Why::Pacing));
        let feedback = self.receiver.due().map(|at| (at, Why::Feedback));
        match (sending, feedback) {
            (Some(a), Some(b)) if b.0 < a.0 => Some(b),
            (a, b) => a.or(b),
        }
    }

    fn send(&mut self, object: ObjectId, offset: u64, len: u64) {
        self.sender.queue(object, offset, len);
    }

    fn unsent(&self) -> u64 {
        self.sender.unsent()
    }

    fn cancel_unsent(&mut self) {
        self.sender.cancel_unsent();
    }

    fn is_idle(&self) -> bool {
        self.sender.is_idle()
    }

    fn fill_stats(&self, stats: &mut Stats) {
        stats.data_sent = self.sender.data_sent;
        stats.repaired = self.sender.repaired;
        stats.data_acked = self.sender.acked;
        stats.packets_lost = self.lost;
        stats.in_flight = self.sender.data_sent.saturating_sub(self.sender.acked);
        stats.rtt_min = Some(self.sender.rtt);
        stats.rtt_smoothed = Some(self.sender.rtt);
        stats.datagram_size = u32::from(self.config.datagram);
        stats.pacing_rate = self.config.rate;
        stats.window = u64::MAX;
    }
}
