//! Writes a session's events in the shape of qlog 0.3 (draft-ietf-quic-qlog-main-schema-02 and
//! -quic-events-01), serialised as JSON-SEQ (RFC 7464), so that qlog's tools read them. Names that
//! qlog has are used as qlog means them; events that qlog lacks are in the category `farhaul`.

use std::io::{self, Write};

use farhaul_core::{stats::Stats, time::Instant};
use serde_json::{Value, json};

use crate::{
    observe::{Moment, Observer, Side},
    report::millis,
};

/// Begins every record.
const RECORD: &[u8] = b"\x1e";

/// Writes the events of one session.
#[derive(Debug)]
pub struct Qlog<W> {
    out: W,
    flow: usize,
    side: Side,
    last: Stats,
    failed: Option<io::Error>,
}

impl<W: Write> Qlog<W> {
    /// Writes the session at `side` of flow number `flow`, which the file calls `title`.
    pub fn new(out: W, flow: usize, side: Side, title: &str) -> io::Result<Self> {
        let mut qlog = Self {
            out,
            flow,
            side,
            last: Stats::default(),
            failed: None,
        };
        let point = match side {
            Side::Client => "client",
            Side::Server => "server",
        };
        qlog.record(&json!({
            "qlog_version": "0.3",
            "qlog_format": "JSON-SEQ",
            "title": title,
            "trace": {
                "vantage_point": { "type": point },
                "common_fields": { "time_format": "relative", "reference_time": 0.0 },
            },
        }))?;
        Ok(qlog)
    }

    /// Ends the file; the first error of any event, if there was one.
    pub fn finish(mut self) -> io::Result<W> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn record(&mut self, value: &Value) -> io::Result<()> {
        self.out.write_all(RECORD)?;
        serde_json::to_writer(&mut self.out, value)?;
        self.out.write_all(b"\n")
    }

    fn event(&mut self, at: Instant, name: &str, data: &Value) -> io::Result<()> {
        let time = millis(at.since(Instant::EPOCH));
        self.record(&json!({ "time": time, "name": name, "data": data }))
    }

    fn turn(&mut self, at: Instant, now: &Stats) -> io::Result<()> {
        let last = self.last;
        self.last = *now;
        if now.phase != last.phase {
            let data = json!({ "old": last.phase, "new": now.phase });
            self.event(at, "recovery:congestion_state_updated", &data)?;
        }
        if now.timeouts > last.timeouts {
            let data = json!({ "timer_type": "pto", "event_type": "expired" });
            self.event(at, "recovery:loss_timer_updated", &data)?;
        }
        let grown = [
            ("packets_lost", last.packets_lost, now.packets_lost),
            ("packets_retransmitted", last.retransmits, now.retransmits),
            (
                "packets_spurious",
                last.packets_spurious,
                now.packets_spurious,
            ),
            ("duplicate_acks", last.duplicate_acks, now.duplicate_acks),
        ];
        for (what, before, after) in grown {
            if after > before {
                let data = json!({ "packets": after - before, "in_all": after });
                self.event(at, &format!("farhaul:{what}"), &data)?;
            }
        }
        if now.episodes != last.episodes || now.ssthresh != last.ssthresh {
            self.metrics(at, now)?;
        }
        Ok(())
    }

    fn metrics(&mut self, at: Instant, stats: &Stats) -> io::Result<()> {
        let data = json!({
            "congestion_window": stats.window,
            "bytes_in_flight": stats.in_flight,
            "ssthresh": stats.ssthresh,
            "smoothed_rtt": stats.rtt_smoothed.map(millis),
            "min_rtt": stats.rtt_min.map(millis),
            "pacing_rate": stats.pacing_rate.bps(),
        });
        self.event(at, "recovery:metrics_updated", &data)
    }

    fn note(&mut self, at: Instant, moment: Moment<'_>) -> io::Result<()> {
        match moment {
            Moment::Started => self.event(at, "connectivity:connection_started", &json!({})),
            Moment::Connected => {
                let data = json!({ "new": "handshake_complete" });
                self.event(at, "connectivity:connection_state_updated", &data)
            }
            Moment::Delivered => self.event(at, "farhaul:delivered", &json!({})),
            Moment::Closed(reason) => {
                let data = json!({ "reason": reason });
                self.event(at, "connectivity:connection_closed", &data)
            }
            Moment::Turn(stats) => self.turn(at, stats),
            Moment::Sample(stats) => self.metrics(at, stats),
        }
    }
}

impl<W: Write> Observer for Qlog<W> {
    fn on_session(&mut self, at: Instant, flow: usize, side: Side, moment: Moment<'_>) {
        if (flow, side) == (self.flow, self.side)
            && self.failed.is_none()
            && let Err(error) = self.note(at, moment)
        {
            self.failed = Some(error);
        }
    }
}
