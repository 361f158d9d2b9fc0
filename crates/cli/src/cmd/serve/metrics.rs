//! Metrics of a running server: `OpenMetrics` text over HTTP, for Prometheus. Nothing is labelled
//! by peer or file, so that there are as many lines however long it runs. Beside them is whether the server takes
//! sessions, for what watches containers.

use std::{
    fmt::{self, Debug},
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
};

use farhaul_core::stats::Why;
use farhaul_io::{Controls, Stop, service};
use farhaul_measure::http::{self, Request, Response, Site, of_this_machine};
use farhaul_transfer::Phase;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _, text::encode},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge, info::Info},
    registry::Registry,
};

use super::sessions::{Sessions, Totals};

/// Connections at a time; more wait.
const WORKERS: usize = 2;
const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Source of the metrics, asked at each request.
struct Source {
    sessions: Arc<Sessions>,
    controls: Controls,
}

impl Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}

/// One metric: a name, its help, and values by their labels.
type Rows<'a, T> = &'a [(&'a [(&'static str, &'static str)], T)];

fn counters(
    e: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: Rows<'_, f64>,
) -> fmt::Result {
    let mut metric = e.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in rows {
        let labels = labels.to_vec();
        ConstCounter::new(*value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

fn gauges(
    e: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: Rows<'_, f64>,
) -> fmt::Result {
    let mut metric = e.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in rows {
        let labels = labels.to_vec();
        ConstGauge::new(*value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "samples are floating point")]
const fn f(n: u64) -> f64 {
    n as f64
}

impl Source {
    fn moved(e: &mut DescriptorEncoder<'_>, totals: &Totals) -> fmt::Result {
        let [dir_in, dir_out] = [("dir", "in"), ("dir", "out")];
        let kind = |kind| ("kind", kind);
        counters(
            e,
            "bytes",
            "Bytes moved, as the server sees it",
            &[
                (&[dir_in, kind("payload")], f(totals.payload[0])),
                (&[dir_out, kind("payload")], f(totals.payload[1])),
                (&[dir_in, kind("wire")], f(totals.wire[0])),
                (&[dir_out, kind("wire")], f(totals.wire[1])),
                (&[dir_in, kind("feedback")], f(totals.feedback[0])),
                (&[dir_out, kind("feedback")], f(totals.feedback[1])),
                (&[dir_out, kind("retransmit")], f(totals.retransmitted)),
            ],
        )?;
        counters(
            e,
            "files",
            "Files that are over",
            &[
                (&[("result", "moved")], f(totals.files[0])),
                (&[("result", "skipped")], f(totals.files[1])),
                (&[("result", "failed")], f(totals.files[2])),
            ],
        )?;
        let lost = f(totals.lost) / f(totals.datagrams.max(1));
        gauges(
            e,
            "loss_ratio",
            "Packets lost over packets sent",
            &[(&[], lost)],
        )?;
        let mut held = Vec::new();
        for (why, time) in Why::HOLDS.iter().zip(totals.held) {
            held.push(([("stage", why.name())], time.as_secs_f64()));
        }
        let rows: Vec<_> = held.iter().map(|(labels, v)| (&labels[..], *v)).collect();
        counters(
            e,
            "stage_blocked_seconds",
            "Time that sending sessions waited, by reason",
            &rows,
        )
    }

    fn sessions(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut counts = [0_u32; 4];
        let mut goodput = 0.0;
        for view in self.sessions.all() {
            let phase = view.handle.progress().phase();
            let asked = view.facts().share.is_some();
            let index = match phase {
                _ if view.control.is_held() => 3,
                _ if !asked => 0,
                Phase::Finishing | Phase::Done => 2,
                Phase::Connecting | Phase::Waiting | Phase::Moving => 1,
            };
            counts[index] += 1;
            goodput += view.figures().rate.as_f64();
        }
        gauges(
            e,
            "sessions",
            "Sessions now",
            &[
                (&[("state", "connecting")], f64::from(counts[0])),
                (&[("state", "moving")], f64::from(counts[1])),
                (&[("state", "finishing")], f64::from(counts[2])),
                (&[("state", "paused")], f64::from(counts[3])),
            ],
        )?;
        gauges(
            e,
            "goodput_bits_per_second",
            "Content moved now, by all sessions",
            &[(&[], goodput)],
        )
    }

    fn listener(&self, e: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(stats) = self.controls.stats() else {
            return Ok(());
        };
        let help = "Sessions that came to nothing, and messages that began none";
        counters(
            e,
            "handshake_failures",
            help,
            &[
                (&[("reason", "unfinished")], f(stats.unfinished)),
                (&[("reason", "busy")], f(stats.turned_away)),
                (&[("reason", "stray")], f(stats.stray)),
                (&[("reason", "fault")], f(stats.faults)),
            ],
        )?;
        let socket = &stats.host.socket;
        let help = "Datagrams dropped because a socket's buffer was full; of sessions when they have ended";
        counters(e, "udp_socket_drops", help, &[(&[], f(socket.overflowed))])?;
        let help = "Batches sent datagram by datagram because the kernel refused segmentation";
        counters(e, "gso_fallback", help, &[(&[], f(socket.gso_refused))])
    }
}

impl Collector for Source {
    fn encode(&self, mut e: DescriptorEncoder<'_>) -> fmt::Result {
        Self::moved(&mut e, &self.sessions.totals())?;
        self.sessions(&mut e)?;
        self.listener(&mut e)
    }
}

/// Answer of the metrics server.
struct Metrics {
    registry: Registry,
    controls: Controls,
    /// True if only this machine can ask.
    local: bool,
}

impl Site for Metrics {
    fn answer(&self, request: &Request) -> Response {
        // The page of another site must not read it through a browser here.
        if self.local && !of_this_machine(&request.host) {
            return Response::text("421 Misdirected Request", "ask for localhost or 127.0.0.1");
        }
        match request.path.as_str() {
            "/metrics" => {
                let mut text = String::new();
                match encode(&mut text, &self.registry) {
                    Ok(()) => Response::new("200 OK", KIND, text),
                    Err(e) => Response::text("500 Internal Server Error", &e.to_string()),
                }
            }
            "/healthz" if self.controls.is_draining() => {
                Response::text("503 Service Unavailable", "draining")
            }
            "/healthz" if self.controls.stats().is_none() => {
                Response::text("503 Service Unavailable", "starting")
            }
            "/healthz" => Response::text("200 OK", "ok"),
            _ => Response::text("404 Not Found", "there are /metrics and /healthz"),
        }
    }
}

/// Serves them at `at` until `stop` is set; returns where.
pub(super) fn start(
    at: SocketAddr,
    sessions: &Arc<Sessions>,
    controls: &Controls,
    stop: &Stop,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(at)?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    let mut registry = Registry::with_prefix("farhaul");
    let version = vec![("version", env!("CARGO_PKG_VERSION"))];
    registry.register("build", "The program", Info::new(version));
    let help = "Round-trip times of sessions, sampled four times a second";
    registry.register("rtt_seconds", help, sessions.rtt.clone());
    registry.register_collector(Box::new(Source {
        sessions: Arc::clone(sessions),
        controls: controls.clone(),
    }));
    let site = Metrics {
        registry,
        controls: controls.clone(),
        local: bound.ip().is_loopback(),
    };
    let stop = stop.clone();
    let warn = |line: &str| super::log::note("warning", line);
    service::spawn("metrics", warn, move || {
        if let Err(e) = http::serve(&listener, &site, WORKERS, &stop) {
            warn(&format!("metrics are no longer served: {e}"));
        }
    })?;
    Ok(bound)
}
