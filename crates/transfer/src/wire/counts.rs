//! Counts that the two ends tell each other: files and bytes, what a transfer cost, what its sender's session did.

use farhaul_core::{
    codec::{DecodeError, Reader, VARINT_MAX},
    stats::{Stats, Why},
};

use crate::wire::Out;

/// Counts of files and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) files_ok: u64,
    pub(crate) files_skipped: u64,
    pub(crate) files_failed: u64,
    /// Content received and placed.
    pub(crate) bytes: u64,
    /// Content found in place.
    pub(crate) resumed: u64,
    /// Files and folders that the source lacks.
    pub(crate) deleted: u64,
}

impl Tally {
    pub(crate) fn encode(&self, out: &mut Out<'_>) {
        for v in [
            self.files_ok,
            self.files_skipped,
            self.files_failed,
            self.bytes,
            self.resumed,
            self.deleted,
        ] {
            out.varint(v);
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            files_ok: r.varint()?,
            files_skipped: r.varint()?,
            files_failed: r.varint()?,
            bytes: r.varint()?,
            resumed: r.varint()?,
            deleted: r.varint()?,
        })
    }
}

/// Resources that a transfer cost one end's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Processor time during the transfer, µs.
    pub(crate) cpu_micros: u64,
    /// The most memory the process has held, bytes; 0 if unknown.
    pub(crate) max_rss: u64,
}

impl Usage {
    pub(crate) fn encode(&self, out: &mut Out<'_>) {
        out.varint(self.cpu_micros);
        out.varint(self.max_rss);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            cpu_micros: r.varint()?,
            max_rss: r.varint()?,
        })
    }
}

/// Counters of a session that only the side that sends knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sending {
    /// Time for which sending was held, µs, for each of [`Why::HOLDS`].
    pub(crate) held_micros: [u64; Why::HOLDS.len()],
    /// Bytes sent for the first time.
    pub(crate) data: u64,
    /// Bytes sent again.
    pub(crate) repaired: u64,
    pub(crate) datagrams: u64,
    /// Packets declared lost.
    pub(crate) lost: u64,
}

impl Sending {
    /// Counters as this side, the sender, sees them: `stats` of all its `lanes`, which were held so
    /// long on average.
    pub(crate) fn of(stats: &Stats, lanes: u32) -> Self {
        let mut held_micros = [0; Why::HOLDS.len()];
        for (place, (_, held)) in held_micros.iter_mut().zip(stats.held.totals()) {
            let held = held / lanes.max(1);
            *place = u64::try_from(held.as_micros()).unwrap_or(VARINT_MAX);
        }
        Self {
            held_micros,
            data: stats.data_sent,
            repaired: stats.repaired,
            datagrams: stats.datagrams_sent,
            lost: stats.packets_lost,
        }
    }

    /// Adds what another session of the same copy has counted.
    pub(crate) fn add(&mut self, other: &Self) {
        let held = self.held_micros.iter_mut().zip(other.held_micros);
        let counts = [
            (&mut self.data, other.data),
            (&mut self.repaired, other.repaired),
            (&mut self.datagrams, other.datagrams),
            (&mut self.lost, other.lost),
        ];
        for (all, more) in held.chain(counts) {
            *all = all.saturating_add(more);
        }
    }

    pub(crate) fn encode(&self, out: &mut Out<'_>) {
        let counts = [self.data, self.repaired, self.datagrams, self.lost];
        for n in self.held_micros.into_iter().chain(counts) {
            out.varint(n.min(VARINT_MAX));
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut held_micros = [0; Why::HOLDS.len()];
        for place in &mut held_micros {
            *place = r.varint()?;
        }
        Ok(Self {
            held_micros,
            data: r.varint()?,
            repaired: r.varint()?,
            datagrams: r.varint()?,
            lost: r.varint()?,
        })
    }
}
