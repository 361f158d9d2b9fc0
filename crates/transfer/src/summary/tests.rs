use super::*;
use crate::wire::Tally;

#[test]
fn a_failure_is_one_valid_object_too() {
    let error = TransferError::new(Exit::NoSpace, "disk full").fix("free some");
    let summary = Summary::of_error(true, &error);
    let json: serde_json::Value =
        serde_json::from_str(&serde_json::to_string(&summary).unwrap()).unwrap();
    assert_eq!(json["schema"], "farhaul.transfer/1");
    assert_eq!(json["ok"], false);
    assert_eq!(json["exit"]["code"], 8);
    assert_eq!(json["exit"]["name"], "no_space");
    assert_eq!(json["exit"]["retryable"], false);
    assert_eq!(json["goodput_bps"], serde_json::Value::Null);
    assert!(summary.line().starts_with("sent 0 B"));
}

#[test]
fn two_sessions_of_a_copy_count_as_one() {
    let of = |bytes, resumed, files: (u64, u64), lost| {
        let tally = Tally {
            bytes,
            resumed,
            files_ok: files.0,
            files_skipped: files.1,
            ..Tally::default()
        };
        let stats = Stats {
            wire_sent: bytes + 10,
            rtt_min: Some(Duration::from_millis(lost)),
            ..Stats::default()
        };
        let sending = Sending {
            lost,
            datagrams: 100,
            ..Sending::default()
        };
        let facts = SummaryInput {
            put: true,
            verify_disk: false,
            core: &RoleCore {
                tally,
                ..RoleCore::default()
            },
            stats,
            lanes: 1,
            elapsed: Duration::from_secs(1),
            progress: &Progress::default(),
            ours: Usage {
                cpu_micros: 500_000,
                max_rss: lost,
            },
            theirs: None,
            sending: Some(sending),
            sends: true,
        };
        Summary::new(&facts, None)
    };
    // A file of 1 MB arrived whole and 0.3 MB of another; 0.05 MB of those were there before.
    let k = 10_000;
    let before = of(130 * k, 5 * k, (1, 0), 20);
    let after = of(70 * k, 135 * k, (1, 1), 40);
    assert_eq!(after.loss_ratio, None, "of less than 1 MiB");
    assert_eq!(after.sender.cpu_percent_per_gbps, None);
    assert_eq!(after.feedback_kib_per_gib, None);
    assert_eq!(before.loss_ratio, Some(0.2));
    let all = after.after(&before, Duration::from_secs(10));
    assert_eq!((all.bytes_payload, all.resumed_bytes), (200 * k, 5 * k));
    assert_eq!((all.files.sent, all.files.skipped), (2, 0));
    assert_eq!((all.bytes_wire_sent, all.elapsed_s), (200 * k + 20, 10.0));
    assert_eq!(all.goodput_bps, Some(1_600_000.0));
    assert_eq!(all.loss_ratio, Some(0.3));
    assert_eq!(all.rtt_s.min, Some(0.02));
    assert_eq!(all.sender.cpu_seconds, Some(1.0));
    assert_eq!(all.sender.max_rss_bytes, Some(40));
}

#[test]
fn near_a_rate_that_was_set_that_is_the_limit() {
    let error = TransferError::new(Exit::NoSpace, "disk full");
    for (most, word) in [
        (None, "network"),
        (Some(100), "--max-rate"),
        (Some(200), "network"),
    ] {
        let summary = Summary {
            bytes_payload: ENOUGH,
            goodput_bps: Some(95e6),
            max_rate: most.map(Rate::mbit),
            limited_by: BTreeMap::from([(Why::Pacing.name(), 0.9), ("sending", 0.1)]),
            ..Summary::of_error(true, &error)
        };
        assert_eq!(summary.limit(), Some((word, 0.9)));
        let details = summary.details();
        assert!(
            details.contains(&format!("limited by: sending 10 %, {word} 90 %"))
                || details.contains(&format!("limited by: {word} 90 %, sending 10 %")),
            "{details}"
        );
    }
}

#[test]
fn while_the_other_end_was_silent_nothing_else_limited() {
    let mut sending = Sending::default();
    let window = Why::HOLDS.iter().position(|why| *why == Why::Window);
    sending.held_micros[window.unwrap()] = 5_000_000;
    let shares = limits(&sending, Duration::from_secs(4), 10.0);
    let near = |word: &str, share: f64| (shares[word] - share).abs() < 1e-9;
    assert!(
        near("silent", 0.4) && near("window", 0.1) && near("sending", 0.5),
        "{shares:?}"
    );
    let shares = limits(&sending, Duration::ZERO, 10.0);
    assert!(!shares.contains_key("silent"), "{shares:?}");
}

#[test]
fn the_first_outcome_stands() {
    let handle = Handle::new();
    let error = TransferError::new(Exit::Locked, "first");
    let outcome = |e: &TransferError| Outcome {
        summary: Summary::of_error(true, e),
        error: Some(e.clone()),
    };
    handle.end(|| outcome(&error));
    handle.end(|| outcome(&TransferError::new(Exit::Internal, "second")));
    assert_eq!(handle.outcome().unwrap().error, Some(error));
    assert_eq!(handle.progress().phase(), Phase::Done);
}
