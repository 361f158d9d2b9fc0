//! Runs raw streams against other implementations. [`Blast`] sends for a time or an amount,
//! [`Sink`] receives until its peer closes; neither sends anything else on the stream, as
//! `appclient` and `appserver` of libudt. Bytes sent are delivered when the session reports them.

use std::{sync::mpsc, time::Duration};

use farhaul_core::{
    protocol::{CloseReason, Event, Session},
    store::{Extent, Store, StoreError},
    time::Instant,
};
use farhaul_io::{App, cpu};
use serde::Serialize;

use crate::bench::{
    payload::{self, OBJECT},
    percent_per_gbps,
};

/// One stream that has ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// `farhaul.stream/1`.
    pub schema: &'static str,
    /// True if the stream ended as it should.
    pub ok: bool,
    /// Bytes delivered or taken.
    pub bytes: u64,
    /// Time from the connection to the last of them, s.
    pub seconds: f64,
    /// Goodput, from bytes and seconds.
    pub goodput_bits_per_second: f64,
    /// Processor time of this process meanwhile, s.
    pub cpu_seconds: f64,
    /// Processor time per bit, per cent of a core per Gbit/s.
    pub cpu_percent_per_gbps: Option<f64>,
    /// Bytes sent again.
    pub repaired_bytes: u64,
}

/// The result of an end.
pub type Ended = (Measured, CloseReason);

/// The account of a stream.
struct Account {
    since: Instant,
    last: Instant,
    cpu: Duration,
    bytes: u64,
}

impl Account {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            last: now,
            cpu: cpu::process_time(),
            bytes: 0,
        }
    }

    fn reach(&mut self, now: Instant, bytes: u64) {
        if bytes > self.bytes {
            (self.bytes, self.last) = (bytes, now);
        }
    }

    fn end(&self, ok: bool, repaired_bytes: u64) -> Measured {
        let seconds = self.last.since(self.since).as_secs_f64();
        let cpu = cpu::process_time().saturating_sub(self.cpu);
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let bits = self.bytes as f64 * 8.0;
        Measured {
            schema: "farhaul.stream/1",
            ok,
            bytes: self.bytes,
            seconds,
            goodput_bits_per_second: if seconds > 0.0 { bits / seconds } else { 0.0 },
            cpu_seconds: cpu.as_secs_f64(),
            cpu_percent_per_gbps: percent_per_gbps(cpu, bits),
            repaired_bytes,
        }
    }
}

/// Sends.
pub struct Blast {
    bytes: u64,
    lasts: Option<Duration>,
    until: Option<Instant>,
    account: Option<Account>,
    ended: mpsc::Sender<Ended>,
}

impl Blast {
    /// Will send `bytes`, or for `lasts` if that is shorter; sends its result on `ended`.
    pub fn new(bytes: u64, lasts: Option<Duration>, ended: mpsc::Sender<Ended>) -> Self {
        payload::prepare();
        Self {
            bytes,
            lasts,
            until: None,
            account: None,
            ended,
        }
    }
}

impl Store for Blast {
    fn fill(&mut self, extents: &[Extent], batch: &mut [u8]) -> Result<(), StoreError> {
        payload::fill(extents, batch);
        Ok(())
    }

    fn place(&mut self, _: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        Err(StoreError("a stream places nothing".into()))
    }
}

impl App for Blast {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        match event {
            Event::Connected { .. } => {
                self.account = Some(Account::new(now));
                self.until = self.lasts.map(|lasts| now + lasts);
                session.send(OBJECT, 0, self.bytes);
            }
            Event::Delivered => {
                if let Some(account) = &mut self.account {
                    account.reach(now, session.stats().data_acked);
                }
                session.close(now, 0, "done");
            }
            Event::Closed(reason) => {
                let stats = session.stats();
                let account = self.account.get_or_insert_with(|| Account::new(now));
                account.reach(now, stats.data_acked);
                let ok = matches!(reason, CloseReason::Local { code: 0, .. });
                // The receiver may be closed.
                let _ = self.ended.send((account.end(ok, stats.repaired), reason));
            }
            Event::Readable => {
                session.close(now, 1, "nothing was asked of the peer");
            }
        }
    }

    fn poll(&mut self, now: Instant, session: &mut dyn Session) {
        if self.until.is_some_and(|until| until <= now) {
            self.until = None;
            session.cancel_unsent();
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        self.until
    }
}

/// Takes.
pub struct Sink {
    inbox: Vec<u8>,
    account: Option<Account>,
    ended: mpsc::Sender<Ended>,
}

impl Sink {
    /// A sink that sends on `ended` what it received.
    pub const fn new(ended: mpsc::Sender<Ended>) -> Self {
        Self {
            inbox: Vec::new(),
            account: None,
            ended,
        }
    }
}

impl Store for Sink {
    fn fill(&mut self, _: &[Extent], _: &mut [u8]) -> Result<(), StoreError> {
        Err(StoreError("it sends nothing".into()))
    }

    fn place(&mut self, _: &[Extent], _: &[u8]) -> Result<(), StoreError> {
        Err(StoreError("a stream places nothing".into()))
    }
}

impl App for Sink {
    fn on_event(&mut self, now: Instant, event: Event, session: &mut dyn Session) {
        let account = self.account.get_or_insert_with(|| Account::new(now));
        match event {
            Event::Readable => {
                session.read(&mut self.inbox);
                let bytes = account.bytes + self.inbox.len() as u64;
                account.reach(now, bytes);
                self.inbox.clear();
            }
            Event::Closed(reason) => {
                let ok = matches!(reason, CloseReason::Peer { code: 0, .. });
                // The receiver may be closed.
                let _ = self.ended.send((account.end(ok, 0), reason));
            }
            Event::Connected { .. } | Event::Delivered => {}
        }
    }

    fn poll(&mut self, _: Instant, _: &mut dyn Session) {}
}
