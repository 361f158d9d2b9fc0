use std::collections::BTreeSet;

use super::*;
use crate::{
    reference::Kind,
    scenario::{File, Variant},
};

fn every() -> Vec<(Study, Library)> {
    let names = Library::names();
    assert!(names.len() >= 3, "{names:?}");
    let read = |name| Library::find(name).unwrap_or_else(|e| panic!("{e}"));
    names.into_iter().map(read).collect()
}

#[test]
fn every_study_can_be_read_as_every_variant() {
    for (study, library) in every() {
        for name in study.scenarios(None) {
            let text = library.text("scenarios", name).unwrap();
            for backend in File::backends(name, &text).unwrap() {
                for quick in [false, true] {
                    let variant = Variant { backend, quick };
                    let file = library.scenario(&study, name, variant);
                    let file = file.unwrap_or_else(|e| panic!("{variant:?}: {e}"));
                    assert!(!file.plans.is_empty(), "{name}");
                }
            }
        }
    }
}

#[test]
fn every_printed_number_is_referred_to_or_described_as_set_up() {
    for (study, library) in every() {
        let mut used = BTreeSet::new();
        for name in study.scenarios(None) {
            let text = library.text("scenarios", name).unwrap();
            used.extend(
                study
                    .reference
                    .facts()
                    .filter(|f| text.contains(&format!("\"{}\"", f.id)))
                    .map(|f| f.id.clone()),
            );
        }
        let unused: Vec<_> = study
            .reference
            .facts()
            .filter(|f| f.kind == Kind::Printed && !used.contains(&f.id) && f.note.is_empty())
            .map(|f| f.id.as_str())
            .collect();
        assert!(
            unused.is_empty(),
            "{}: neither judged nor with a note: {unused:?}",
            study.name
        );
    }
}

#[test]
fn every_law_is_in_the_study_of_fairness() {
    let (study, library) = Library::find("rfc-9743").unwrap();
    let all = farhaul_congestion::laws().iter().map(|law| law.name);
    // The one does not react to anything, the other needs routers.
    let expected: BTreeSet<&str> = all.filter(|law| !["fixed", "xcp"].contains(law)).collect();
    for name in study.scenarios(None) {
        let file = library.scenario(&study, name, Variant::default()).unwrap();
        let laws: BTreeSet<&str> = file.plans.iter().map(|p| p.case["law"].as_str()).collect();
        assert_eq!(laws, expected, "{name}");
    }
}

/// A study of one figure with these keys.
fn figure(keys: &str) -> Result<FigurePlan, String> {
    let text = format!(
        "name = \"s\"\ntitle = \"t\"\nsource = \"s\"\nabout = \"a\"\nreference = \"s.csv\"\n\
         [[experiment]]\nid = \"A\"\ntitle = \"t\"\nscenario = \"a.toml\"\n[[experiment.figure]]\nid = \"f\"\n{keys}\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.toml");
    std::fs::write(&file, text).unwrap();
    let head = "id,place,quantity,value,low,high,unit,kind,note\n";
    std::fs::write(folder.path().join("s.csv"), head).unwrap();
    let (study, _) = Library::find(file.to_str().unwrap()).map_err(|e| e.to_string())?;
    Ok(study.experiments[0].figures[0].clone())
}

#[test]
fn bars_of_several_metrics_are_called_by_the_words_that_differ() {
    let keys = "kind = \"bars\"\nmetrics = [\"program:sender_udp_io_share\", \"program:sender_control_share\"]";
    let plan = figure(keys).unwrap();
    let groups = plan
        .terms
        .iter()
        .map(|t| plan.group(&Case::new(), &t.metric));
    assert_eq!(groups.collect::<Vec<_>>(), ["udp io", "control"]);
    let one = figure("kind = \"bars\"\nmetric = \"goodput\"\nx = \"law\"").unwrap();
    let case = Case::from([("law".into(), "reno".into())]);
    assert_eq!(one.group(&case, &one.terms[0].metric), "reno");
}

#[test]
fn figures_have_words_for_variables_and_no_data_without_runs() {
    let (study, library) = Library::find("kachan-2014").unwrap();
    let name = "kachan-2014/grid.toml";
    let file = library.scenario(&study, name, Variant::default()).unwrap();
    let world = || figures::World {
        file: &file,
        outcomes: Vec::new(),
        verdicts: &[],
        origin: crate::plot::Origin::Simulated,
    };
    let charts = |id: &str| {
        let plan = study.figures_of(name).find(|f| f.id == id).unwrap();
        plan.charts(&[world()])
    };
    let (_, lines) = charts("fig3").remove(0);
    assert_eq!(
        (lines.key.as_str(), lines.x.label.as_str()),
        ("RTT", "loss, %")
    );
    let crate::plot::Body::Lines(of) = &lines.body else {
        panic!("{lines:?}");
    };
    let names: Vec<_> = of.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(
        names,
        ["0 ms", "50 ms", "100 ms", "150 ms", "200 ms", "400 ms"]
    );
    assert!(!lines.has_ours());
    let (_, heat) = charts("heat-udt").remove(0);
    assert_eq!(
        (heat.x.label.as_str(), heat.y.label.as_str()),
        ("loss", "RTT")
    );
    let crate::plot::Body::Heat { columns, rows, .. } = &heat.body else {
        panic!("{heat:?}");
    };
    assert_eq!((rows[1].as_str(), columns[1].as_str()), ("50 ms", "0.1 %"));
    assert!(!heat.has_ours());
}

#[test]
fn figures_that_cannot_be_are_refused() {
    let metrics = "metrics = [\"goodput\", \"goodput_max\"]";
    for (keys, expected) in [
        (
            format!("kind = \"bars\"\n{metrics}\nx = \"law\""),
            "not both",
        ),
        (
            "kind = \"bars\"\nmetrics = [\"goodput\", \"rtt_p50\"]".into(),
            "rtt_p50 is in another unit",
        ),
        ("kind = \"bars\"\nmetrics = []".into(), "needs some metrics"),
        (
            "kind = \"bars\"\nmetric = \"goodput\"\npairs = \"over\"".into(),
            "only a scatter has pairs",
        ),
        (
            "kind = \"scatter\"\nmetric = \"goodput\"\npairs = \"all\"".into(),
            "pairs is \"over\"",
        ),
    ] {
        let said = figure(&keys).unwrap_err();
        assert!(said.contains(expected), "{keys}: {said}");
    }
}
