use std::fs;

use farhaul_emu::wan::WanError;

use super::*;
use crate::emulated::{Amount, Program, System};

/// Bounds for programs that hang, and long enough for those that do not.
const HASTY: Patience = Patience {
    ready: Duration::from_millis(500),
    grace: Duration::from_millis(500),
    beside: Duration::from_millis(500),
};
const CALM: Patience = Patience {
    ready: Duration::from_secs(20),
    grace: Duration::from_secs(20),
    beside: Duration::from_secs(20),
};

fn program(server: Option<&str>, client: &str) -> Program {
    Program {
        name: "p".into(),
        server: server.map(Into::into),
        client: client.into(),
        ready: Some("up".into()),
        goodput: "json:/rate".into(),
        ..Program::default()
    }
}

fn flow(server: Option<&str>, client: &str) -> Flow {
    let program = program(server, client);
    program.check().unwrap();
    Flow::new("f", System::Program(program), Duration::from_millis(100))
}

fn run(flows: &[Flow], patience: Patience) -> Option<FlowsRun> {
    run_on(flows, (None, patience))
}

#[expect(clippy::print_stdout, reason = "a skipped test says why")]
fn run_on(flows: &[Flow], how: (Option<f64>, Patience)) -> Option<FlowsRun> {
    match run_within(&WanConfig::default(), flows, Path::new("/bin/false"), how) {
        Ok(run) => Some(run),
        Err(EmulatedRunError::Wan(WanError::Setup(error))) => {
            println!("skipped: {error}");
            None
        }
        Err(EmulatedRunError::Cannot(why)) if how.0.is_some() => {
            println!("skipped: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// True if a process with this in its command line exists.
fn exists(text: &str) -> bool {
    let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mut lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).contains(text))
}

#[test]
fn every_failure_is_named() {
    let cases = [
        (None, "no-such-program-here", "not found"),
        (None, "kill -SEGV $$", "the client failed: signal: 11"),
        (None, "echo busy >&2; exit 7", "exit status: 7: busy"),
        (None, "exit 7", "exit status: 7, without a word"),
        (
            None,
            "true",
            "/rate found nothing in the client's output; it printed nothing",
        ),
        (None, "echo nonsense", "its last line was: nonsense"),
        (
            Some("exit 3"),
            "true",
            "ended before it could be reached: exit status: 3",
        ),
        (
            Some("mkfifo {dir}/f; echo up; cat {dir}/f; echo broken; exit 3"),
            "echo > {dir}/f; exec tail -f /dev/null",
            "the server failed: exit status: 3: broken",
        ),
    ];
    for (server, client, expected) in cases {
        let Some(run) = run(&[flow(server, client)], CALM) else {
            return;
        };
        let failed = run.flows[0].failed.as_deref().unwrap();
        assert!(failed.contains(expected), "{client}: {failed}");
        assert!(run.invalid().unwrap().contains(failed));
        assert!(run.flows[0].commands.last().unwrap().contains("sh -c"));
    }
}

#[test]
fn what_hangs_is_ended_with_all_that_it_started() {
    let stubborn =
        "trap '' TERM; setsid tail -f /dev/null /etc/passwd //hangs & tail -f /dev/null //hangs";
    let cases = [
        (None, stubborn, "the client did not end after its 100ms"),
        (Some(stubborn), "true", "has not printed 'up' after 500ms"),
    ];
    for (server, client, expected) in cases {
        let Some(run) = run(&[flow(server, client)], HASTY) else {
            return;
        };
        let failed = run.flows[0].failed.as_deref().unwrap();
        assert!(failed.contains(expected), "{failed}");
        assert!(!exists("//hangs"), "something was left");
    }
    let mut bytes = flow(None, "exec tail -f /dev/null");
    bytes.amount = Amount::Bytes {
        bytes: 77,
        within: Duration::from_millis(100),
    };
    let mut port = flow(Some("exec tail -f /dev/null"), "true");
    if let System::Program(program) = &mut port.system {
        program.ready = None;
    }
    let Some(run) = run(&[bytes, port], HASTY) else {
        return;
    };
    let failed = |i: usize| run.flows[i].failed.as_deref().unwrap();
    assert!(failed(0).contains("did not send its 77 bytes within 100ms"));
    assert!(
        failed(1).contains("does not listen at port 18010"),
        "{}",
        failed(1)
    );
}

#[test]
fn each_flow_has_its_own_result_and_cost() {
    let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo '{{\"rate\": 5e9}}'";
    let idle = "echo '{{\"rate\": 1e6, \"port\": {port}}}'";
    let (mut busy, mut idle) = (flow(None, busy), flow(None, idle));
    busy.amount = Amount::Time(Duration::from_secs(1));
    idle.name = "g".into();
    idle.start = Duration::from_millis(30);
    if let System::Program(program) = &mut idle.system {
        program.metrics.insert("port".into(), "json:/port".into());
    }
    let Some(run) = run(&[busy, idle, flow(None, "exit 1")], CALM) else {
        return;
    };
    let [busy, idle, failed] = &run.flows[..] else {
        panic!("{run:?}");
    };
    assert_eq!((&busy.failed, &idle.failed), (&None, &None));
    assert!(failed.failed.is_some());
    assert!(busy.sender.cpu_seconds >= 0.05, "{busy:?}");
    assert!(
        idle.sender.cpu_seconds < busy.sender.cpu_seconds,
        "{idle:?}"
    );
    assert_eq!(
        (busy.goodput_bits_per_second, busy.bytes),
        (5e9, 625_000_000)
    );
    assert_eq!((idle.name.as_str(), idle.metrics["port"]), ("g", 18_010.0));
    assert!(busy.start < idle.start && idle.start >= 0.03);
}

#[test]
fn what_is_prepared_is_there_and_what_is_not_verified_fails() {
    let made = |prepare: &str, verify: &str| {
        let mut flow = flow(None, "cat {dir}/rate");
        let System::Program(program) = &mut flow.system else {
            panic!("{flow:?}");
        };
        program.prepare = Some(prepare.into());
        program.verify = Some(verify.into());
        flow
    };
    let rate = "echo '{{\"rate\": 5e9}}' > {dir}/rate";
    let hangs = "exec tail -f /dev/null";
    let cases = [
        (rate, "test -s {dir}/rate", HASTY, None),
        (
            rate,
            "echo differs >&2; exit 3",
            CALM,
            Some("verify failed: exit status: 3: differs"),
        ),
        (rate, hangs, HASTY, Some("verify failed: it took too long")),
        (
            "echo full >&2; exit 1",
            "true",
            CALM,
            Some("prepare failed: exit status: 1: full"),
        ),
    ];
    for (prepare, verify, patience, expected) in cases {
        let Some(run) = run(&[made(prepare, verify)], patience) else {
            return;
        };
        let failed = run.flows[0].failed.as_deref();
        assert_eq!(failed.is_some(), expected.is_some(), "{failed:?}");
        assert!(
            failed
                .unwrap_or_default()
                .contains(expected.unwrap_or_default()),
            "{failed:?}"
        );
    }
}

#[test]
fn a_server_that_reports_is_waited_for() {
    let late = "mkfifo {dir}/end; echo up; cat {dir}/end > {dir}/rate; cat {dir}/rate";
    let mut flow = flow(Some(late), "echo '{{\"rate\": 4e9}}' > {dir}/end");
    if let System::Program(program) = &mut flow.system {
        program.goodput = "server:json:/rate".into();
    }
    let Some(run) = run(&[flow], CALM) else {
        return;
    };
    assert_eq!(run.flows[0].failed, None);
    assert_eq!(
        (run.flows[0].goodput_bits_per_second, run.flows[0].bytes),
        (4e9, 50_000_000)
    );
}

#[test]
fn more_flows_than_ports_are_refused() {
    let flows = vec![flow(None, "true"); 6_000];
    let refused = run_flows(&WanConfig::default(), &flows, Path::new("/bin/false"), None);
    assert!(matches!(refused, Err(EmulatedRunError::Cannot(why)) if why.contains("6000 flows")));
}

#[test]
fn the_processor_is_read_over_time_and_no_end_has_more_than_its_share() {
    let works = "timeout 1 sh -c 'while :; do :; done'; echo '{{\"rate\": 1}}'";
    let mut flow = flow(None, works);
    flow.amount = Amount::Time(Duration::from_secs(5));
    flow.interval = Duration::from_millis(100);
    let Some(ran) = run_on(std::slice::from_ref(&flow), (Some(0.2), CALM)) else {
        return;
    };
    assert_eq!(ran.flows[0].failed, None);
    let [client, server] = &ran.flows[0].processors;
    assert!(server.is_empty(), "there is none");
    let (first, last) = (client[0], *client.last().unwrap());
    let share = (last.1 - first.1) / (last.0 - first.0);
    // Beyond it only by what the last period had begun.
    assert!(share > 0.01 && share < 0.25, "{share}: {client:?}");
    assert!(client.len() > 10 && client.is_sorted(), "{client:?}");
    let own = format!("farhaul-lab-{}-", std::process::id());
    let groups = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].map(fs::read_dir);
    let mut names = groups
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(Result::ok);
    // Tests of groups themselves run beside this one.
    let left = names.find(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with(&own) && ["near", "far"].iter().any(|end| name.ends_with(end))
    });
    assert!(left.is_none(), "{left:?}");
}
