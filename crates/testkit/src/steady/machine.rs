//! Makes a machine of sender and receiver. Feedback goes first, then data.

use std::time::Duration;

use farhaul_core::{
    codec::{DecodeError, NoRoom, Reader, Writer},
    send::Permit,
    shell::{Incoming, Machine, Packet},
    stats::{Stats, Why},
    store::{Extent, ObjectId},
    time::Instant,
};

use super::{
    Steady,
    receiver::Receiver,
    sender::Sender,
    wire::{DATA_HEADER, Data, REPORT},
};

/// Both halves of a session.
#[derive(Debug)]
pub struct SteadyMachine {
    config: Steady,
    sender: Sender,
    receiver: Receiver,
    lost: u64,
}

impl SteadyMachine {
    pub(super) fn new(config: Steady) -> Self {
        Self {
            config,
            sender: Sender::new(config),
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

impl Machine for SteadyMachine {
    const HEADER: usize = DATA_HEADER;

    fn open(&mut self, now: Instant, _datagram: u32, rtt: Duration) {
        if !rtt.is_zero() {
            self.sender.rtt = rtt;
        }
        self.sender.start(now);
    }

    fn on_datagram(
        &mut self,
        now: Instant,
        datagram: &Incoming<'_>,
        place: &mut Vec<Extent>,
    ) -> Result<(), DecodeError> {
        let mut r = Reader::new(datagram.bytes);
        match datagram.kind {
            Self::DATA => {
                let data = Data::take(&mut r)?;
                let extent = datagram.extent(DATA_HEADER, data.object, data.offset)?;
                let end = data.position.checked_add(extent.len.into());
                self.receiver
                    .on_data(now, data.position, end.ok_or(DecodeError::Truncated)?);
                place.push(extent);
                Ok(())
            }
            REPORT => self.on_report(now, &mut r),
            _ => Err(DecodeError::Malformed("type")),
        }
    }

    fn poll_datagram(&mut self, now: Instant, w: &mut Writer<'_>) -> Result<Option<u8>, NoRoom> {
        if self.receiver.due().is_none_or(|at| at > now) {
            return Ok(None);
        }
        self.receiver.report(w)?;
        Ok(Some(REPORT))
    }

    fn permit(&mut self, now: Instant) -> Permit {
        match self.sender.held(now) {
            Some(why) => Permit::Hold(why),
            None => Permit::Send { bytes: u64::MAX },
        }
    }

    fn next_packet(&mut self, _now: Instant, packet: &mut Packet<'_>) -> bool {
        let Some((data, len)) = self.sender.next(packet.room()) else {
            return false;
        };
        data.put(packet.header())
            .expect("a packet holds its header");
        packet.data(data.object, data.offset, len);
        true
    }

    fn batch_sent(&mut self, now: Instant, bytes: u64) {
        self.sender.batch_sent(now, bytes);
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

    fn is_delivered(&self) -> bool {
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
