//! Reads iperf3's JSON into the same [`Report`] as any other bench. Its receiver counts from its
//! own first byte, so iperf3 sees a start over a long path a little kinder than we do.

use std::time::Duration;

use serde_json::Value;

use crate::{
    bench::{Cost, Interval, Report},
    histogram::{Histogram, RttMs},
};

/// The result of `iperf3 -c HOST -J`, or what it complained of; `server_output_json` in it has what the server printed.
pub fn read(root: &Value, cc: &str) -> Result<Report, String> {
    if let Some(error) = root["error"].as_str() {
        return Err(format!("iperf3: {error}"));
    }
    let end = &root["end"];
    let received = &end["sum_received"];
    let goodput = received["bits_per_second"]
        .as_f64()
        .ok_or("iperf3: no result of the receiver")?;
    let seconds = received["seconds"].as_f64().unwrap_or(0.0);
    let cpu = |key: &str| {
        let percent = end["cpu_utilization_percent"][key].as_f64();
        Cost {
            version: root["start"]["version"].as_str().unwrap_or("iperf3").into(),
            cpu_seconds: percent.unwrap_or(0.0) / 100.0 * seconds,
            cpu_percent_per_gbps: percent.filter(|_| goodput > 0.0).map(|p| p * 1e9 / goodput),
            max_rss_bytes: None,
        }
    };
    let bytes = received["bytes"].as_u64().unwrap_or(0);
    Ok(Report {
        schema: "farhaul.bench/1".into(),
        ok: true,
        version: env!("CARGO_PKG_VERSION").into(),
        protocol: "tcp".into(),
        cc: cc.into(),
        lanes: 1,
        seconds,
        bytes,
        goodput_bits_per_second: goodput,
        sender: cpu("host_total"),
        receiver: cpu("remote_total"),
        complete: true,
        rtt_ms: rtt(root),
        intervals: intervals(root),
        ..Report::default()
    })
}

/// The least, and quantiles of the smoothed round-trip times at the ends of the sender's parts.
fn rtt(root: &Value) -> RttMs {
    // Microseconds.
    let micros = |value: &Value| {
        value
            .as_u64()
            .filter(|us| *us > 0)
            .map(Duration::from_micros)
    };
    let mut sampled = Histogram::default();
    let parts = root["intervals"].as_array();
    for part in parts.into_iter().flatten() {
        if let Some(rtt) = micros(&part["streams"][0]["rtt"]) {
            sampled.add(rtt);
        }
    }
    RttMs::new(
        micros(&root["end"]["streams"][0]["sender"]["min_rtt"]),
        &sampled,
    )
}

/// The receiver's parts of the run if it sent them (`--get-server-output`), else the sender's.
fn intervals(root: &Value) -> Vec<Interval> {
    let reported = &root["server_output_json"]["intervals"];
    let own = &root["intervals"];
    let parts = reported.as_array().or_else(|| own.as_array());
    let part = |part: &Value| {
        let sum = &part["sum"];
        Some(Interval {
            from: sum["start"].as_f64()?,
            to: sum["end"].as_f64()?,
            goodput_bits_per_second: sum["bits_per_second"].as_f64()?,
        })
    };
    parts.into_iter().flatten().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(json: &str) -> Value {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_result_and_a_complaint() {
        let json = r#"{"start":{"version":"iperf 3.18"},"end":{
            "sum_received":{"bits_per_second":5e9,"seconds":10.0,"bytes":6250000000},
            "cpu_utilization_percent":{"host_total":20.0,"remote_total":10.0}}}"#;
        let report = read(&parsed(json), "bbr").unwrap();
        assert_eq!(report.bytes, 6_250_000_000);
        assert_eq!(report.sender.cpu_percent_per_gbps, Some(4.0));
        assert_eq!(report.receiver.cpu_percent_per_gbps, Some(2.0));
        let reported = r#"{"end":{"sum_received":{"bits_per_second":1}},
            "intervals":[{"sum":{"start":0,"end":1,"bits_per_second":7e9}}],
            "server_output_json":{"intervals":[{"sum":{"start":0,"end":1,"bits_per_second":6e9}}]}}"#;
        let part = read(&parsed(reported), "bbr").unwrap().intervals[0];
        assert_eq!((part.to, part.goodput_bits_per_second), (1.0, 6e9));
        let timed = r#"{"end":{"sum_received":{"bits_per_second":1},"streams":[{"sender":{"min_rtt":50000}}]},
            "intervals":[{"streams":[{"rtt":60000}]},{"streams":[{"rtt":90000}]},{"streams":[{"rtt":61000}]}]}"#;
        let rtt = read(&parsed(timed), "bbr").unwrap().rtt_ms;
        assert_eq!(rtt.min, Some(50.0));
        assert!((rtt.p50.unwrap() / 61.0 - 1.0).abs() < 0.02, "{rtt:?}");
        assert!((rtt.p99.unwrap() / 90.0 - 1.0).abs() < 0.02, "{rtt:?}");
        let complaint = read(&parsed(r#"{"error":"unable to connect"}"#), "bbr");
        assert_eq!(complaint, Err("iperf3: unable to connect".into()));
        assert!(read(&parsed("{}"), "bbr").is_err());
    }
}
