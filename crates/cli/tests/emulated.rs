//! Several flows of different systems at once on the emulated network, each measured by itself.
//! Needs root (or user namespaces) and `/dev/net/tun`; says so and passes where they are missing.
//!
//! The assertions hold on a machine of any load: bytes and packets that were carried, counted and
//! reported, and upper bounds that the link sets. None is that something was fast.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests; a skipped one says why"
)]

mod environment;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use farhaul_core::units::Rate;
use farhaul_emu::wan::{WanConfig, WanError};
use farhaul_lab::emulated::{
    Amount, EmulatedRunError, Flow, FlowResult, FlowsRun, Program, System, run_flows,
};
use farhaul_link::PathConfig;

const SECOND: Duration = Duration::from_secs(1);

/// 100 Mbit/s and 20 ms there and back.
fn network() -> WanConfig {
    WanConfig {
        mtu: 1_500,
        ..WanConfig::symmetric(PathConfig {
            rate: Rate::mbit(100),
            delay: Duration::from_millis(10),
            ..PathConfig::default()
        })
    }
}

/// The program with the environment of a test. A shell makes it: a file that this process writes to
/// may be open in a child of its own. No program can be started that is open so.
fn program(place: &Path) -> PathBuf {
    let program = place.join("farhaul");
    let make = format!(
        "printf '#!/bin/sh\\nexec env -i PATH=\"$PATH\" HOME={home} {program} \"$@\"\\n' >farhaul; chmod 755 farhaul",
        home = place.join("home").display(),
        program = env!("CARGO_BIN_EXE_farhaul"),
    );
    let made = environment::command("sh", place)
        .args(["-c", &make])
        .status();
    assert!(made.unwrap().success());
    program
}

/// The run, or `None` with a word why there is none.
fn run(flows: &[Flow]) -> Option<FlowsRun> {
    for flow in flows {
        if let Some(why) = flow.system.missing() {
            println!("skipped: {why}");
            return None;
        }
    }
    let place = tempfile::tempdir().unwrap();
    match run_flows(&network(), flows, &program(place.path()), None) {
        Ok(run) => Some(run),
        Err(EmulatedRunError::Wan(WanError::Setup(error))) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn flow(name: &str, system: &str) -> Flow {
    Flow {
        interval: Duration::from_millis(500),
        ..Flow::new(
            name,
            System::parse(system, None, &[iperf3()]).unwrap(),
            2 * SECOND,
        )
    }
}

/// The built-in system's program, by template.
fn iperf3() -> Program {
    let text = r#"
        name = "iperf3"
        server = "iperf3 -s -1 -p {port}"
        client = "iperf3 -c {host} -p {port} -t {seconds} -C cubic -J"
        goodput = "json:/end/sum_received/bits_per_second"
        [metrics]
        retransmits = "json:/end/sum_sent/retransmits"
        port = "server:regex:Server listening on ([0-9]+)"
    "#;
    toml::from_str(text).unwrap()
}

/// Checks that the flow carried something, no more than the link can, at some cost, and says how.
fn sound(flow: &FlowResult) {
    assert_eq!(flow.failed, None, "{flow:?}");
    assert!(flow.bytes > 100_000 && flow.seconds > 1.0, "{flow:?}");
    let goodput = flow.goodput_bits_per_second;
    assert!((1e5..1e8).contains(&goodput), "{flow:?}");
    assert!(flow.ip_over_goodput.unwrap() > 1.0, "{flow:?}");
    assert!(!flow.intervals.is_empty(), "{flow:?}");
    assert_eq!(flow.commands.len(), 2);
}

#[test]
fn haul_and_the_kernels_tcp_share_a_link() {
    let mut later = flow("cubic", "kernel:cubic");
    later.start = SECOND;
    later.reverse = true;
    let Some(run) = run(&[flow("haul", "haul"), later]) else {
        return;
    };
    let [haul, cubic] = &run.flows[..] else {
        panic!("{run:?}");
    };
    for one in [haul, cubic] {
        sound(one);
        assert!(one.sender.cpu_seconds > 0.0 && one.receiver.cpu_seconds > 0.0);
        assert!(one.feedback_kib_per_gib.unwrap() > 0.0);
        assert!(one.rtt_ms.min.unwrap() > 19.0, "{one:?}");
    }
    assert!(haul.commands[0].contains("bench serve") && haul.commands[0].contains("10.99.0.2"));
    assert!(cubic.commands[1].contains("10.99.0.1"), "{cubic:?}");
    assert!(haul.start < 1.0 && cubic.start >= 1.0);
    assert!(cubic.intervals[0].from >= 1.0);
    // Each has its own ports, and together they are all there was.
    let [there, back] = [&run.wan.near_to_far, &run.wan.far_to_near];
    for way in [there, back] {
        let counted: u64 = way.ports.iter().map(|count| count.packets).sum();
        assert!(counted > 0 && counted <= way.offered_packets, "{way:?}");
    }
}

#[test]
fn a_rate_is_looked_for_and_a_delay_is_that_of_the_path() {
    let longer = |name, system| Flow {
        amount: Amount::Time(60 * SECOND),
        ..flow(name, system)
    };
    let flows = [
        flow("rate", "udp:rate=10Mbit,packet=1000,loss=0.4"),
        longer("udp", "delay:transport=udp,count=20"),
        longer("tcp", "delay:transport=tcp,count=20"),
    ];
    let Some(run) = run(&flows) else {
        return;
    };
    let [rate, udp, tcp] = &run.flows[..] else {
        panic!("{run:?}");
    };
    assert_eq!(rate.failed, None, "{rate:?}");
    let goodput = rate.goodput_bits_per_second;
    assert!(goodput > 0.0 && goodput < 1.05e7, "{rate:?}");
    assert!(rate.metrics["loss"] < 0.4, "{rate:?}");
    for delay in [udp, tcp] {
        assert_eq!(delay.failed, None, "{delay:?}");
        assert!(delay.metrics["delay_us"] > 9_900.0, "{delay:?}");
    }
    assert_eq!(tcp.bytes, 20 * 1_448);
}

#[test]
fn datagrams_beside_haul_keep_their_rate_where_there_is_room() {
    let udp = flow("cross", "udp:rate=20Mbit,packet=1000");
    let Some(run) = run(&[flow("haul", "haul"), udp]) else {
        return;
    };
    let [haul, cross] = &run.flows[..] else {
        panic!("{run:?}");
    };
    sound(haul);
    sound(cross);
    assert_eq!(cross.feedback_kib_per_gib, Some(0.0));
    assert!(cross.goodput_bits_per_second < 20.1e6, "{cross:?}");
    let loss = cross.metrics["loss"];
    assert!((0.0..1.0).contains(&loss), "{cross:?}");
    let over = cross.ip_over_goodput.unwrap() * (1.0 - loss);
    assert!((over / (1_000.0 / 972.0) - 1.0).abs() < 0.05, "{cross:?}");
}

#[test]
fn a_program_by_template_measures_what_the_built_in_system_does() {
    let systems = ["kernel:cubic,driver=iperf3", "program:iperf3"];
    let mut found = Vec::new();
    for system in systems {
        let Some(run) = run(&[flow("one", system)]) else {
            return;
        };
        let [one] = &run.flows[..] else {
            panic!("{run:?}");
        };
        assert_eq!(one.failed, None);
        if run.wan.health.valid {
            found.push(one.goodput_bits_per_second);
        }
        if system.starts_with("program") {
            assert_eq!(one.metrics["port"].to_string(), "18000");
            assert!(one.metrics.contains_key("retransmits"));
            assert!(one.sender.cpu_seconds > 0.0, "{one:?}");
            assert!(one.commands[1].contains("iperf3 -c 10.99.0.2 -p 18000 -t 2"));
        }
    }
    match found[..] {
        [built_in, template] => {
            assert!((built_in / template - 1.0).abs() < 0.2, "{found:?}");
        }
        _ => println!("not compared: the emulator was late"),
    }
}

#[test]
fn every_built_in_system_sends_for_a_time_and_a_number_of_bytes() {
    for system in [
        "kernel:reno,driver=blaster,mtu=1000",
        "kernel:cubic",
        "libudt:buffer=8MB",
        "udt4",
    ] {
        let mut some = flow("some", system);
        some.amount = Amount::Bytes {
            bytes: 2_000_000,
            within: 30 * SECOND,
        };
        some.reverse = true;
        let Some(run) = run(&[flow("timed", system), some]) else {
            continue;
        };
        let [timed, some] = &run.flows[..] else {
            panic!("{run:?}");
        };
        sound(timed);
        assert_eq!(some.failed, None);
        assert!(some.bytes >= 2_000_000, "{some:?}");
        assert!(timed.feedback_kib_per_gib.unwrap() > 0.0, "{timed:?}");
    }
}
