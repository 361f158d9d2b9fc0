use super::*;
use crate::run_store::RunStore;

mod blast;
mod papers;

const TWO: &str = r#"start_spread = "20ms"
name = "two"
duration = "2s"
seeds = "1..2"
[[link]]
name = "bottleneck"
rate = "20Mbit"
delay = "10ms"
queue = "1BDP"
[[flow]]
name = "first"
law = "cubic"
[[flow]]
name = "second"
law = "reno"
start = "500ms"
"#;

fn read(text: &str) -> File {
    File::read("two.toml", text).unwrap_or_else(|problem| panic!("{problem}"))
}

fn refused(text: &str) -> String {
    File::read("f.toml", text).expect_err(text).to_string()
}

pub(super) fn runs(jobs: usize) -> Runs<'static> {
    Runs {
        seeds: (1, 2),
        jobs,
        output: None,
        store: None,
        any_build: false,
        stop: None,
        abort: None,
        onlooker: None,
        program: std::path::Path::new(""),
    }
}

fn results(file: &File, runs: &Runs<'_>) -> Results {
    file.run(runs, &mut |_| {}).unwrap()
}

fn summary(file: &File, runs: &Runs<'_>) -> Summary {
    file.summary(&results(file, runs))
}

#[test]
fn a_file_becomes_a_scenario() {
    let file = read(TWO);
    assert_eq!((file.name.as_str(), file.seeds), ("two", (1, 2)));
    let plan = &file.plans[0];
    assert_eq!(plan.links, ["bottleneck", "bottleneck:back"]);
    let scenario = plan.scenario(7);
    assert_eq!(scenario.seed, 7);
    // 20 Mbit/s over 20 ms there and back.
    let bdp = farhaul_core::units::Size::from_bytes(50_000);
    assert_eq!(scenario.forward.queue, farhaul_link::QueueLimit::Bytes(bdp));
    let start = scenario.flows[1].start;
    assert!((500..520).contains(&start.as_millis()), "{start:?}");
    assert_ne!(plan.scenario(8).flows[1].start, start);
    assert_eq!(plan.drivers[1].law(), Some("reno"));
}

#[test]
fn invalid_values_are_refused_with_their_position() {
    let with = |from: &str, to: &str| refused(&TWO.replacen(from, to, 1));
    let cases = [
        (
            with("delay =", "dealy ="),
            "f.toml:8:1: no key of [[link]] 'dealy' (did you mean 'delay'?)",
        ),
        (
            with("\"10ms\"", "\"-10ms\""),
            "f.toml:8:9: delay: '-10ms' is out of range: it must not be negative",
        ),
        (
            with("delay =", "loss = \"130%\"\ndelay ="),
            "f.toml:8:8: loss: '130%' is out of range: 0% to 100%",
        ),
        (
            with("\"1BDP\"", "\"0BDP\""),
            "f.toml:9:9: queue: a queue of 0BDP holds no packet",
        ),
        (with("\"1BDP\"", "0"), "f.toml:9:9: queue: "),
        (
            with("\"1BDP\"", "\"600B\""),
            "f.toml:9:9: the queue of 600 B cannot hold one packet",
        ),
        (
            with("\"cubic\"", "\"cubik\""),
            "no congestion law 'cubik' (did you mean 'cubic'?)",
        ),
        (
            with("\"cubic\"", "\"cubic:bta=1\""),
            "cubic has no parameter 'bta' (did you mean 'beta'?)",
        ),
        (
            with("law = \"cubic\"", "protocol = \"hual\""),
            "f.toml:12:12: no protocol 'hual' (did you mean 'haul'?)",
        ),
        (
            with("1..2", "2..1"),
            "f.toml:4:9: seeds: '2..1' runs backwards: write 1..2",
        ),
        (with("\"20Mbit\"", "20"), "f.toml:7:8: rate: "),
        (
            with("\"2s\"", "\"0s\""),
            "f.toml:3:12: duration: it must be more than zero",
        ),
        (
            with("\"2s\"", "\"2s\"\nsample = \"1us\""),
            "f.toml:4:10: more than 1000000 samples: sample less often",
        ),
    ];
    said(&cases);
}

#[test]
fn names_that_are_not_there_and_parts_that_are_missing_are_refused() {
    let with = |from: &str, to: &str| refused(&TWO.replacen(from, to, 1));
    let cases = [
        (
            with("start = \"500ms\"", "path = [\"botleneck\"]"),
            "no link 'botleneck' (did you mean 'bottleneck'?); there are: bottleneck",
        ),
        (
            with("start = \"500ms\"", "from = \"here\""),
            "f.toml:16:8: no host 'here'; there are: none",
        ),
        (
            with("start = \"500ms\"", "start = \"3s\"\nstop = \"1s\""),
            "f.toml:17:8: it stops before it starts",
        ),
        (
            with("\"second\"", "\"first\""),
            "f.toml:14:8: there are two [[flow]] called 'first'",
        ),
        (with("[[link]]", "[link]"), "write each link as [[link]]"),
        (with("name = \"two\"", ""), "needs name"),
        (with("duration = \"2s\"", ""), "needs a duration"),
        (
            with("\"second\"", "\"{rtt}\""),
            "no variable 'rtt'; there are: none",
        ),
        (with("[[link]]", "[[link"), "f.toml:5:"),
        (
            refused("name = \"x\"\nduration = \"1s\"\n"),
            "at least one [[link]]",
        ),
    ];
    said(&cases);
}

fn said(cases: &[(String, &str)]) {
    for (message, expected) in cases {
        assert!(
            message.contains(expected),
            "{message}\n  wanted: {expected}"
        );
    }
}

#[test]
fn expectations_are_checked_too() {
    let with = |expect: &str| refused(&format!("{TWO}[[expect]]\n{expect}\n"));
    let cases = [
        (
            "metric = \"godput\"\nmin = \"1Mbit\"",
            "no metric 'godput' (did you mean 'goodput'?)",
        ),
        ("metric = \"goodput\"", "needs min or max"),
        ("metric = \"goodput\"\nmin = 5", "unit"),
        (
            "metric = \"goodput\"\nmin = \"2Mbit\"\nmax = \"1Mbit\"",
            "max is below min",
        ),
        (
            "metric = \"goodput\"\nflow = \"frist\"\nmin = \"1Mbit\"",
            "did you mean 'first'?",
        ),
        (
            "metric = \"goodput\"\nlink = \"bottleneck\"\nmin = \"1Mbit\"",
            "goodput has no link",
        ),
        (
            "metric = \"drops\"\nduring = \"1s..2s\"\nmin = 1",
            "of the whole run only",
        ),
        (
            "metric = \"goodput\"\nduring = \"2s..1s\"\nmin = \"1Mbit\"",
            "ends before it begins",
        ),
        (
            "metric = \"goodput\"\nspread = \"rtt\"\nmax = 2",
            "no variable 'rtt'",
        ),
        (
            "metric = \"goodput\"\nwhen = { law = \"x\" }\nmax = \"2Mbit\"",
            "no variable 'law'",
        ),
    ];
    for (expect, expected) in cases {
        let message = with(expect);
        assert!(
            message.contains(expected),
            "{message}\n  wanted: {expected}"
        );
        assert!(
            message.starts_with("f.toml:1") || message.starts_with("f.toml:2"),
            "{message}"
        );
    }
}

#[test]
fn seeds_repeat_and_jobs_do_not_matter() {
    let file = read(TWO);
    let one = summary(&file, &runs(1));
    let two = summary(&file, &runs(2));
    assert_eq!(one, two);
    let hashes = &one.cases[0].trace_hash;
    assert_eq!(hashes.len(), 2);
    assert_eq!(hashes.values().collect::<BTreeSet<_>>().len(), 2);
    let flows = &one.cases[0].flows;
    let sum: f64 = flows.iter().map(|f| f.goodput_bits_per_second.mean).sum();
    assert!((10e6..40e6).contains(&sum), "{sum}");
    let link = &one.cases[0].links[0];
    assert!(
        link.utilisation > 0.7 && link.mean_queue_bytes > 0.0,
        "{link:?}"
    );
}

const VARIED: &str = r#"
name = "varied"
duration = "3s"
queue_sample = "10ms"
[vary]
rtt = ["10ms", "40ms"]
pair = [{ a = "cubic", b = "reno" }, { a = "reno", b = "reno" }]
[[link]]
name = "line"
rate = "10Mbit"
rtt = "{rtt}"
[[host]]
name = "near"
nic = "20Mbit"
nic_jitter = "100us"
[[flow]]
name = "a"
law = "{pair.a}"
from = "near"
[[flow]]
name = "b"
law = "{pair.b}"
from = "near"
[[cross]]
name = "udp"
rate = "2Mbit"
start = "1s"
stop = "2s"
[[expect]]
metric = "goodput"
min = "5Mbit"
max = "10Mbit"
paper = "9Mbit"
source = "made up"
[[expect]]
metric = "goodput"
flow = "a"
during = "1s..2s"
when = { rtt = "10ms" }
over = { during = "2s..3s" }
max = 100
[[expect]]
metric = "goodput"
spread = "rtt"
max = 1
[[expect]]
metric = "loss"
cross = "udp"
share = "50%"
max = "50%"
[[expect]]
metric = "utilisation"
link = "line"
when = { rtt = "40ms" }
paper = "50%"
[[expect]]
metric = "log2_error"
max = 1
"#;

#[test]
fn cases_multiply_and_every_expectation_has_its_verdicts() {
    let file = read(VARIED);
    assert_eq!(file.plans.len(), 4);
    assert_eq!(file.plans[1].case["pair.a"], "reno");
    let summary = summary(&file, &runs(2));
    let of = |what: &str| -> Vec<&Verdict> {
        summary
            .verdicts
            .iter()
            .filter(|v| v.what.contains(what))
            .collect()
    };
    let totals: Vec<_> = summary
        .verdicts
        .iter()
        .filter(|v| v.what == "goodput")
        .collect();
    assert_eq!(totals.len(), 4);
    assert!(totals.iter().all(|v| v.holds == Some(true)), "{totals:?}");
    assert_eq!(of(" / goodput of a 2..3 s").len(), 2);
    let spread = of("over rtt");
    assert_eq!(spread.len(), 2, "one per pair");
    assert!(
        spread
            .iter()
            .all(|v| v.ours.unwrap() > 1.0 && v.holds == Some(false))
    );
    assert!(spread.iter().all(|v| v.fails()));
    // Of two seeds a share says nothing.
    let shares = of("loss of udp");
    assert!(
        shares
            .iter()
            .all(|v| v.share.is_none() && v.holds.is_none())
    );
    let compared = of("utilisation of line");
    assert!(
        compared
            .iter()
            .all(|v| v.ours > Some(0.5) && v.holds.is_none())
    );
    let error = of("log2_error")[0];
    let ours: Vec<f64> = totals
        .iter()
        .map(|v| (v.ours.unwrap() / 9e6).log2().abs())
        .collect();
    let ours = ours.into_iter().chain([1.0]).collect::<Vec<_>>();
    assert!(error.ours.unwrap() <= ours.iter().copied().fold(0.0, f64::max));
    let only = file
        .only(&Case::from([("rtt".into(), "40ms".into())]))
        .unwrap();
    assert_eq!(only.plans.len(), 2);
    for (name, value, says) in [
        ("rtt", "1ms", "rtt is never '1ms'; it is one of: 40ms"),
        ("rt", "40ms", "no variable is called 'rt'; there are: "),
    ] {
        let when = Case::from([(name.into(), value.into())]);
        let why = only.clone().only(&when).unwrap_err();
        assert!(why.contains(says), "{why}");
    }
}

#[test]
fn series_traces_and_events_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let output = Output {
        dir: Some(dir.path().into()),
        traces: vec!["line".into()],
        events: true,
        plot: Some(Plot::Below(dir.path().into())),
    };
    let file = read(VARIED);
    let when = Case::from([
        ("rtt".into(), "10ms".into()),
        ("pair.a".into(), "cubic".into()),
    ]);
    let file = file.only(&when).unwrap();
    let seeds = Runs {
        seeds: (3, 3),
        jobs: 1,
        output: Some(output),
        ..runs(1)
    };
    results(&file, &seeds);
    let run = dir.path().join("pair.a=cubic_pair.b=reno_rtt=10ms/seed-3");
    let csv = std::fs::read_to_string(run.join("a.csv")).unwrap();
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    assert_eq!(header[0], "at");
    for name in [
        "window",
        "ssthresh",
        "retransmits",
        "duplicate_acks",
        "timeouts",
        "snd_nxt",
        "rtt_ms",
    ] {
        assert!(header.contains(&name), "{name} is missing");
    }
    let rows: Vec<Vec<&str>> = lines.map(|l| l.split(',').collect()).collect();
    assert_eq!(rows.len(), 30, "a point per 100 ms");
    assert!(rows.iter().all(|r| r.len() == header.len()));
    let column = header.iter().position(|h| *h == "delivered").unwrap();
    let delivered: Vec<u64> = rows.iter().map(|r| r[column].parse().unwrap()).collect();
    assert!(delivered.is_sorted() && delivered[29] > 100_000);
    for name in [
        "cross-udp.csv",
        "b.sqlog",
        "report.json",
        "line.pcapng",
        "series.svg",
    ] {
        let size = std::fs::metadata(run.join(name)).unwrap().len();
        assert!(size > 200, "{name}: {size}");
    }
}

#[test]
fn stored_runs_are_not_repeated_and_give_the_same_results() {
    let dir = tempfile::tempdir().unwrap();
    let store = RunStore::at(dir.path().into());
    let keeping = Runs {
        store: Some(&store),
        ..runs(2)
    };
    let file = read(VARIED);
    let when = Case::from([("rtt".into(), "10ms".into())]);
    let some = file.clone().only(&when).unwrap();
    let made = |file: &File| {
        let mut made = 0;
        let results = file.run(&keeping, &mut |_| made += 1).unwrap();
        (results, made)
    };
    let (first, before) = made(&some);
    assert_eq!((first.kept, before), (0, 2 * some.plans.len()));
    // The rest is made, and what was there is taken.
    let (all, made) = made(&file);
    let rest = 2 * (file.plans.len() - some.plans.len());
    assert_eq!((all.kept, all.open(), made), (before, 0, rest));
    let all = file.summary(&all);
    let plain = summary(&file, &runs(2));
    for (kept, made) in all.cases.iter().zip(&plain.cases) {
        assert_eq!(
            (&kept.case, &kept.trace_hash, kept.packets),
            (&made.case, &made.trace_hash, made.packets)
        );
        assert_eq!(kept.links.len(), made.links.len());
    }
    assert_eq!(all.verdicts.len(), plain.verdicts.len());
    for (kept, made) in all.verdicts.iter().zip(&plain.verdicts) {
        assert_eq!((&kept.what, kept.holds), (&made.what, made.holds));
        // A number that was written down may come back with another last digit.
        let same = kept
            .ours
            .zip(made.ours)
            .is_some_and(|(a, b)| (a - b).abs() <= b.abs() * 1e-12);
        assert!(same, "{kept:?} {made:?}");
    }
    // Another link is another run, though it has the same name.
    let other = read(&VARIED.replacen("20Mbit", "21Mbit", 1));
    assert_eq!(results(&other, &keeping).kept, 0);
}

#[test]
fn a_share_of_a_core_is_for_the_emulator() {
    let emu = Variant {
        backend: Backend::Emu,
        quick: false,
    };
    let as_emu = |text: &str| File::read_as("f.toml", text, emu, &Reference::default());
    let text = |cpu: &str| format!("{TWO}[emu]\ncpu = \"{cpu}\"\n").replace("law", "#law");
    let plan = |text: &str| as_emu(text).unwrap().plans.remove(0);
    let slow = plan(&text("10%"));
    assert_eq!(slow.cpu, Some(0.1));
    assert_ne!(slow.fingerprint(), plan(&text("20%")).fingerprint());
    assert_eq!(read(&text("10%")).plans[0].cpu, None);
    for (text, expected) in [
        (text("150%"), "cpu:"),
        (text("1%"), "less than 5%"),
        (text("many"), "cpu:"),
        (
            text("10%").replace("[emu]", "[emu.quick]"),
            "no key of [emu.quick] 'cpu'",
        ),
    ] {
        let said = as_emu(&text).unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
    let said = refused(&format!("cpu = \"10%\"\n{TWO}"));
    assert!(said.contains("write it under [emu]"), "{said}");
}

#[test]
fn a_variant_replaces_keys_and_leaves_expectations_about_other_cases() {
    let text = format!(
        "{VARIED}\n[quick]\nduration = \"2s\"\nvary = {{ rtt = [\"20ms\"] }}\n\
         [emu]\nseeds = \"1..3\"\n[emu.quick]\nduration = \"1s\"\n"
    );
    let variant = |backend, quick| Variant { backend, quick };
    let as_quick =
        |text: &str, variant| File::read_as("v.toml", text, variant, &Reference::default());
    let quick = as_quick(&text, variant(Backend::Sim, true)).unwrap();
    assert_eq!(quick.plans.len(), 2);
    assert_eq!(quick.plans[0].scenario(1).duration.as_secs(), 2);
    let verdicts = summary(&quick, &runs(2)).verdicts;
    assert!(verdicts.iter().all(|v| !v.what.contains("goodput of a")));
    assert_eq!(read(&text).plans.len(), 4, "the file itself is as before");
    for (bad, part) in [
        ("[quick]\nlink = 1", "no key of [quick] 'link'"),
        ("[quick]\nquick = 1", "no key of [quick] 'quick'"),
        ("[emu.quick]\nname = \"x\"", "no key of [emu.quick] 'name'"),
    ] {
        let error = refused(&format!("{VARIED}\n{bad}\n"));
        assert!(error.contains(part), "{bad}: {error}");
    }
    let error = as_quick(&text, variant(Backend::Emu, false)).unwrap_err();
    assert!(
        error.message.contains("one link between two hosts"),
        "{error}"
    );
}

#[test]
fn published_numbers_are_referred_to_by_their_row() {
    let csv = "id,place,quantity,value,low,high,unit,kind,note\n\
               sum,Fig. 1,both,9e6,,,bit/s,printed,\n\
               most,Fig. 2,both,,,8e6,bit/s,derived,\n\
               rtt,Fig. 3,rtt,10,,,ms,printed,\n";
    let reference = Reference::read("r.csv", csv).unwrap();
    let read = |expect: &str| {
        let text = format!("{TWO}\n[[expect]]\nmetric = \"goodput\"\n{expect}\n");
        File::read_as("f.toml", &text, Variant::default(), &reference)
    };
    let bounds = |expect: &str| {
        let file = read(expect).unwrap();
        let verdict = file.summary(&Results::default()).verdicts.remove(0);
        (verdict.min, verdict.max, verdict.source.clone())
    };
    let (min, max, place) = bounds("reference = \"sum\"\nwithin = \"50%\"");
    assert_eq!(
        (min, max, place.as_str()),
        (Some(4.5e6), Some(13.5e6), "Fig. 1")
    );
    assert_eq!(bounds("reference = \"most\"").1, Some(8e6));
    assert_eq!(
        bounds("reference = \"most\"\nwithin = \"25%\"").1,
        Some(10e6)
    );
    assert_eq!(bounds("reference = \"sum\"\nmin = \"1Mbit\"").0, Some(1e6));
    for (bad, part) in [
        ("reference = \"sun\"", "no row 'sun' (did you mean 'sum'?)"),
        ("reference = \"rtt\"", "counted in 'ms'"),
        (
            "within = \"10%\"\nmin = \"1Mbit\"",
            "within needs a reference",
        ),
    ] {
        let error = read(bad).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_session_that_gives_up_is_a_result_and_is_told() {
    let lossy = TWO.replacen("\"2s\"", "\"120s\"", 1);
    let lossy = lossy.replacen("delay =", "loss = \"100%\"\ndelay =", 1);
    let results = results(&read(&lossy), &runs(2));
    let runs: Vec<_> = results.outcomes().collect();
    assert!(!runs.is_empty());
    for run in runs {
        assert_eq!(run.invalid, None);
        assert_eq!(run.ended.len(), run.flows.len(), "{:?}", run.ended);
        assert!(
            run.ended[0].starts_with("the session of "),
            "{:?}",
            run.ended
        );
    }
}

#[test]
fn every_scenario_of_no_study_can_be_read() {
    let mut read = 0;
    for entry in std::fs::read_dir("../../lab/scenarios").unwrap() {
        let path = entry.unwrap().path();
        let text = match path.extension() {
            Some(e) if e == "toml" => std::fs::read_to_string(&path).unwrap(),
            _ => continue,
        };
        if !text.contains("[[experiment]]") {
            let file = File::read(&path.display().to_string(), &text);
            let file = file.unwrap_or_else(|problem| panic!("{problem}"));
            assert!(!file.expectations.is_empty(), "{}", file.name);
            read += 1;
        }
    }
    assert!(read >= 4, "{read}");
}

proptest::proptest! {
    #[test]
    fn a_damaged_file_is_refused_with_a_place_in_it_or_read(
        at in 0..VARIED.len(),
        gone in 0..12_usize,
        put in "[-a-z0-9{}\"=.\\[\\]\n %é]{0,6}",
    ) {
        // The file is ASCII, so every index is a boundary.
        let end = (at + gone).min(VARIED.len());
        let text = format!("{}{put}{}", &VARIED[..at], &VARIED[end..]);
        if let Err(problem) = File::read("f.toml", &text) {
            proptest::prop_assert!((1..=text.lines().count() + 1).contains(&problem.line));
            proptest::prop_assert!(problem.column >= 1 && !problem.message.is_empty());
        }
    }
}

#[derive(Debug, Default)]
struct Looker(std::sync::Mutex<Vec<(usize, u64, usize)>>);

impl Onlooker for Looker {
    fn ended(&self, run: &Simulated<'_>) {
        let points = run.report.flows[0].series.len();
        self.0.lock().unwrap().push((run.number, run.seed, points));
    }
}

#[test]
fn an_onlooker_is_given_every_run_and_an_aborted_one_has_no_result() {
    let (file, looker) = (read(TWO), Looker::default());
    let abort = std::sync::atomic::AtomicBool::new(false);
    let looked_at = Runs {
        abort: Some(&abort),
        onlooker: Some(&looker),
        ..runs(1)
    };
    results(&file, &looked_at);
    let seen = looker.0.lock().unwrap().clone();
    assert!(matches!(seen[..], [(0, 1, 10..), (0, 2, 10..)]), "{seen:?}");
    abort.store(true, std::sync::atomic::Ordering::Relaxed);
    let error = file.run(&looked_at, &mut |_| {}).unwrap_err();
    assert!(
        matches!(error, RunError::Interrupted { stored: 0, runs: 2 }),
        "{error}"
    );
}
