use super::*;

/// The report of shard `index` of `count` with so many bytes of 60.
fn report(index: u32, count: u32, bytes: u64) -> Value {
    json!({
        "schema": SCHEMA,
        "ok": true,
        "exit": { "code": 0, "name": "ok", "retryable": false },
        "shard": {
            "index": index,
            "count": count,
            "listing": "ab",
            "own": { "files": 1, "bytes": bytes },
            "whole": { "files": 3, "bytes": 60 },
            "divided": 0,
            "stripes": [],
            "sources": ["/data/run7"],
            "destination": "far::s/",
        },
    })
}

/// Object of a shard that failed before everything was listed.
fn failed(index: u32, count: u32) -> Value {
    let mut report = report(index, count, 0);
    report["ok"] = false.into();
    report["exit"] = json!({ "code": 17, "name": "connection_lost" });
    for unknown in ["listing", "own", "whole", "divided", "stripes"] {
        report["shard"][unknown] = Value::Null;
    }
    report
}

fn merged(reports: &[Value]) -> Result<(String, Value), Failure> {
    let texts: Vec<_> = reports.iter().map(Value::to_string).collect();
    merged_texts(&texts)
}

fn merged_texts(texts: &[String]) -> Result<(String, Value), Failure> {
    let mut merged = Merged::default();
    for (i, text) in texts.iter().enumerate() {
        merged.take(format!("{i}.json"), text)?;
    }
    merged.compare()?;
    let line = merged.verdict();
    let object = merged.object(line.is_ok());
    line.map(|line| (line, object.clone()))
        .map_err(|failure| failure.with_object(object))
}

/// Runs a merge that fails, and returns its object.
fn refused(reports: &[Value], exit: Exit, hints: &[&str]) -> Value {
    let failure = merged(reports).unwrap_err();
    assert_eq!(failure.exit, exit, "{failure}");
    for hint in hints {
        assert!(failure.text.contains(hint), "{failure}");
    }
    failure.object()
}

#[test]
fn all_shards_are_the_whole() {
    let all = [report(2, 3, 20), report(3, 3, 10), report(1, 3, 30)];
    let (line, object) = merged(&all).unwrap();
    assert_eq!(line, "complete: 3 shards, 3 files, 60 B");
    assert_eq!((&object["ok"], &object["count"]), (&json!(true), &json!(3)));
    assert_eq!(object["whole"], json!({ "files": 3, "bytes": 60 }));
    assert_eq!(object["run_again"], json!([]));
    assert_eq!(object["shards"][1]["report"], "0.json");
    // What failed and was run again counts once.
    let again = [&all[..], &[failed(2, 3)]].concat();
    assert_eq!(merged(&again).unwrap().1["shards"][1]["ok"], true);
}

#[test]
fn what_is_missing_or_failed_is_to_be_run_again() {
    let object = refused(
        &[report(1, 3, 30), failed(3, 3)],
        Exit::Partial,
        &[
            "2 of 3 shards",
            "2 (no report)",
            "3 (1.json: 17 connection_lost)",
        ],
    );
    assert_eq!(object["run_again"], json!([2, 3]));
    assert_eq!(object["exit"]["retryable"], true);
    assert_eq!(object["done"]["bytes"], 30);
    // A run that was killed leaves an empty file, one that was not understood has no shard.
    let refusal = json!({ "schema": "farhaul.failure/1", "ok": false }).to_string();
    let texts = [report(1, 2, 60).to_string(), String::new(), refusal];
    let failure = merged_texts(&texts).unwrap_err();
    assert_eq!(failure.exit, Exit::Partial);
    assert!(failure.text.contains("1.json and 1 more"), "{failure}");
}

#[test]
fn reports_of_other_copies_are_refused() {
    let mut elsewhere = report(2, 2, 30);
    elsewhere["shard"]["destination"] = "far::t/".into();
    let mut other = report(2, 2, 30);
    other["shard"]["sources"] = json!(["/data/run8"]);
    let one = || report(1, 2, 30);
    refused(&[one(), report(2, 3, 30)], Exit::Usage, &["one of 3"]);
    refused(&[one(), elsewhere], Exit::Usage, &["far::t/"]);
    refused(&[one(), other], Exit::Usage, &["sources differ"]);
    refused(&[one(), one()], Exit::Usage, &["both of shard 1"]);
    let mut changed = report(2, 2, 30);
    changed["shard"]["listing"] = "cd".into();
    let object = refused(&[one(), changed], Exit::SourceChanged, &["differently"]);
    assert_eq!(object["run_again"], json!([1, 2]));
    refused(&[one(), report(2, 2, 31)], Exit::Usage, &["together"]);
}

#[test]
fn what_is_no_report_is_refused() {
    let mut whole = report(1, 1, 60);
    whole["shard"] = Value::Null;
    let mut dry = report(1, 1, 60);
    dry["dry_run"] = true.into();
    let mut bench = report(1, 1, 60);
    bench["schema"] = "farhaul.bench/1".into();
    let mut unlisted = report(1, 1, 60);
    unlisted["shard"]["listing"] = Value::Null;
    let mut long = report(1, 1, 60);
    long["shard"]["destination"] = "x".repeat(MOST_PLACE + 1).into();
    for (bad, hint) in [
        (whole, "not divided"),
        (dry, "dry run"),
        (bench, "schema"),
        (unlisted, "listed"),
        (long, "too long"),
        (report(0, 4, 1), "no shard 0/4"),
        (report(1, 0, 1), "no shard 1/0"),
        (json!([1]), "not a report"),
        (json!({ "ok": "yes" }), "not a report"),
    ] {
        refused(&[bad], Exit::Usage, &[hint]);
    }
    for bad in ["{", "x", "{}{}", "\0"] {
        let failure = merged_texts(&[bad.into()]).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage, "{bad}");
    }
    let failure = merged_texts(&[String::new()]).unwrap_err();
    assert!(failure.text.contains("no report says"), "{failure}");
    assert_eq!(failure.exit, Exit::Partial, "each was killed");
}

#[test]
fn a_divided_file_that_no_shard_put_together_is_missing() {
    let divided = |index, stripes: &[(&str, &str, bool)]| {
        let mut report = report(index, 2, 30);
        let stripe = |&(path, generation, whole): &(&str, &str, bool)| json!({ "path": path, "generation": generation, "whole": whole });
        report["shard"]["divided"] = 5.into();
        report["shard"]["stripes"] = stripes.iter().map(stripe).collect();
        report["shard"]["own"]["files"] = index.into();
        report
    };
    // Others were found in place by both.
    let all = [
        divided(1, &[("a", "1", true), ("b", "2", false)]),
        divided(2, &[("a", "1", false), ("b", "2", true)]),
    ];
    assert!(merged(&all).is_ok());
    // One is not whole, and one is in two files; the last begun of them is not.
    let some = [
        divided(1, &[("a", "1", true), ("b", "2", true), ("c", "3", false)]),
        divided(2, &[("a", "1", false), ("b", "4", false)]),
    ];
    let object = refused(&some, Exit::Partial, &["2 files", "b, c"]);
    assert_eq!(object["run_again"], json!([1, 2]));
    assert_eq!(object["incomplete"], json!(["b", "c"]));
    let mut other = report(2, 2, 30);
    other["shard"]["listing"] = "cd".into();
    refused(
        &[divided(1, &[]), other],
        Exit::SourceChanged,
        &["listed the sources differently"],
    );
}
