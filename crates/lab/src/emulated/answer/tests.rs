use super::*;

fn ended(stdout: &str) -> Ended {
    Ended {
        stdout: stdout.into(),
        stderr: String::new(),
        started: Instant::EPOCH + Duration::from_secs(3),
        took: Duration::from_secs(2),
        cpu: Duration::from_millis(500),
        sampled: Vec::new(),
        asked: false,
        failed: None,
    }
}

fn played(server: &str, client: &str) -> Played {
    Played {
        begun: Instant::EPOCH + Duration::from_secs(1),
        commands: Vec::new(),
        driver: None,
        bytes: Some(1 << 20),
        server: Some(ended(server)),
        client: Some(ended(client)),
        trouble: None,
    }
}

fn flow(system: &str, programs: &[Program]) -> Flow {
    let system = System::parse(system, None, programs).unwrap();
    Flow {
        interval: Duration::from_secs(1),
        ..Flow::new("f", system, Duration::from_secs(2))
    }
}

fn counts() -> Counts {
    Counts {
        forth: Count {
            packets: 1_000,
            bytes: 2 << 20,
        },
        back: Count {
            packets: 100,
            bytes: 4_000,
        },
        dropped: 5,
    }
}

#[test]
fn feedback_is_whole_frames_and_headers_are_part_of_what_was_sent() {
    let program = Program {
        name: "p".into(),
        client: "c".into(),
        goodput: "bytes".into(),
        metrics: [("x".to_string(), "server:json:/x".to_string())].into(),
        ..Program::default()
    };
    let flow = flow("program:p", &[program]);
    let found = result(&flow, &played("{\"x\": 7}", ""), counts());
    assert_eq!((found.failed.as_ref(), found.bytes), (None, 1 << 20));
    assert_eq!((found.start, found.seconds), (2.0, 2.0));
    assert!((found.goodput_bits_per_second - f64::from(1 << 22)).abs() < 1e-3);
    assert_eq!(found.ip_over_goodput, Some(2.0));
    // 100 packets of 40 bytes, each in a frame of 54, for a MiB.
    assert_eq!(found.feedback_kib_per_gib, Some(5_400.0));
    assert_eq!(
        (found.metrics["x"], found.metrics["network_drops"]),
        (7.0, 5.0)
    );
    let bits = f64::from(1 << 23);
    assert_eq!(found.sender.cpu_percent_per_gbps, Some(0.5 * 1e11 / bits));
}

#[test]
fn libudt_is_measured_at_the_receiver_from_the_first_packet_of_the_handshake() {
    let client =
        "{\"bytes\": 9, \"connect_seconds\": 0.2, \"retransmits\": 3, \"rtt_ms\": {\"min\": 50.5}}";
    let server = "18000\n{\"bytes\": 10000000, \"seconds\": 1.85, \"cpu_seconds\": 0.1, \"intervals\": [\
        {\"from\": 0, \"to\": 1, \"goodput_bits_per_second\": 5e7}, {\"from\": 1, \"to\": 1.01, \"goodput_bits_per_second\": 9e9}]}";
    let found = result(&flow("libudt", &[]), &played(server, client), counts());
    assert_eq!(found.failed, None);
    assert!(
        (found.goodput_bits_per_second / 4e7 - 1.0).abs() < 1e-9,
        "{found:?}"
    );
    assert_eq!((found.retransmits, found.rtt_ms.min), (Some(3), Some(50.5)));
    let [part] = found.intervals[..] else {
        panic!("the second is too short to be a rate: {found:?}");
    };
    assert!((part.from - 2.15).abs() < 1e-9, "{part:?}");
    let nothing = result(
        &flow("libudt", &[]),
        &played("{\"bytes\": 0}", client),
        counts(),
    );
    assert_eq!(nothing.failed.as_deref(), Some("nothing arrived"));
}

#[test]
fn datagrams_are_lost_in_shares() {
    let client = "{\"packets\": 1000, \"bytes\": 972000, \"seconds\": 2}";
    let server = "{\"packets\": 900, \"bytes\": 874800, \"seconds\": 1.9, \"intervals\": []}";
    let found = result(
        &flow("udp:rate=4Mbit", &[]),
        &played(server, client),
        counts(),
    );
    assert!((found.metrics["loss"] - 0.1).abs() < 1e-9);
    assert!((found.goodput_bits_per_second - 874_800.0 * 4.0).abs() < 1e-3);
    assert_eq!(found.ip_over_goodput, None, "less than a MiB");
}

#[test]
fn of_a_search_the_rate_that_was_found_is_the_goodput() {
    let client = "{\"packets\": 1000, \"bytes\": 972000, \"seconds\": 2, \"found\": \
        {\"goodput_bits_per_second\": 5e6, \"loss\": 0.0005, \"trains\": 9}}";
    let server = "{\"packets\": 900, \"bytes\": 874800, \"seconds\": 1.9, \"intervals\": []}";
    let flow = flow("udp:rate=9Mbit,loss=0.001", &[]);
    let found = result(&flow, &played(server, client), counts());
    assert!((found.goodput_bits_per_second - 5e6).abs() < 1e-3);
    assert!((found.metrics["loss"] - 0.0005).abs() < 1e-12);
    assert_eq!(found.bytes, 874_800, "of all trains, as the processor time");
}

#[test]
fn a_delay_is_a_metric_and_without_answers_there_is_no_result() {
    let of = |client: &str| {
        let flow = flow("delay:transport=udp", &[]);
        result(&flow, &played("", client), counts())
    };
    let found = of(
        "{\"packets\": 90, \"lost\": 10, \"bytes\": 132480, \"seconds\": 0.1, \
         \"mean_us\": 20.5, \"p50_us\": 19.5}",
    );
    assert_eq!(found.metrics["delay_us"].to_bits(), 20.5_f64.to_bits());
    assert!((found.metrics["loss"] - 0.1).abs() < 1e-12);
    let none = of(
        "{\"packets\": 0, \"lost\": 100, \"bytes\": 0, \"seconds\": 0.1, \"mean_us\": 0, \"p50_us\": 0}",
    );
    let why = none.failed.unwrap();
    assert_eq!(why, "none of the 100 packets came back");
}

#[test]
fn the_first_blast_of_a_bench_is_a_metric_where_it_has_one() {
    for blast in [None, Some(12e6)] {
        let report = Report {
            first_blast_bits_per_second: blast,
            ..Report::default()
        };
        let client = serde_json::to_string(&report).unwrap();
        let found = result(&flow("rbudp", &[]), &played("", &client), counts());
        assert_eq!(found.metrics.get(FIRST_BLAST).copied(), blast);
    }
}

#[test]
fn what_is_no_result_is_quoted() {
    let found = result(&flow("haul", &[]), &played("", "oops\nnot json"), counts());
    let failed = found.failed.unwrap();
    assert!(
        failed.starts_with("farhaul bench printed something unexpected"),
        "{failed}"
    );
    assert!(failed.ends_with("not json"), "{failed}");
}
