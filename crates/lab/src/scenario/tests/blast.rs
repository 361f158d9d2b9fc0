//! The rate of a first blast as a metric, and who has it.

use super::*;

const FILE: &str = r#"
name = "blasts"
duration = "5s"
seeds = "1"
[[link]]
name = "line"
rate = "20Mbit"
rtt = "20ms"
loss = "5%"
[[flow]]
name = "one"
protocol = "{protocol}"
bytes = "{bytes}"
[vary]
protocol = ["rbudp:rate=12Mbit,payload=1460", "tcp"]
bytes = ["1kB", "10kB", "100kB", "1MB"]
[[expect]]
metric = "blast"
when = { protocol = "rbudp:rate=12Mbit,payload=1460" }
over = { when = { bytes = "1MB" } }
min = 0
"#;

#[test]
fn small_amounts_have_a_gap_less_than_packets_and_losses_do_not_count() {
    let file = read(FILE);
    let runs = Runs {
        seeds: (1, 1),
        ..runs(1)
    };
    let verdicts = summary(&file, &runs).verdicts;
    let ours = |bytes: &str| {
        let of = |v: &&Verdict| v.case.starts_with(&format!("bytes={bytes} "));
        let verdict = verdicts.iter().find(of).unwrap();
        verdict.ours.map(|x| (x * 100.0).round() / 100.0)
    };
    // 7 packets in 6 gaps; 69 in 68. One packet takes no time.
    let all = ["1kB", "10kB", "100kB", "1MB"].map(ours);
    assert_eq!(all, [None, Some(1.14), Some(1.01), Some(1.0)]);
}

#[test]
fn a_protocol_without_blasts_has_no_such_metric() {
    let wrong = |from: &str, to: &str| refused(&FILE.replacen(from, to, 1));
    let when = "when = { protocol = \"rbudp:rate=12Mbit,payload=1460\" }";
    let said = wrong(when, "when = { protocol = \"tcp\" }");
    assert!(
        said.contains("no metric 'blast' of tcp; only these have it: rbudp, "),
        "{said}"
    );
    // The other term is of the same metric.
    let said = wrong("bytes = \"1MB\" }", "protocol = \"tcp\" }");
    assert!(said.contains("no metric 'blast' of tcp"), "{said}");
}

#[test]
fn a_sender_that_spins_is_simulated_as_one_that_sleeps() {
    let spinning = FILE.replace("\"tcp\"", "\"rbudp:rate=12Mbit,payload=1460,spin=on\"");
    let file = read(&spinning);
    let cases = summary(&file, &runs(1)).cases;
    let (sleeping, spinning) = cases.split_at(4);
    let hashes = |cases: &[CaseSummary]| {
        let each = cases.iter().map(|case| case.trace_hash.clone());
        each.collect::<Vec<_>>()
    };
    assert_eq!(hashes(sleeping), hashes(spinning));
}
