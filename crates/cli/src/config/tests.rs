use farhaul_core::units::Rate;

use super::*;
use crate::timetable::Timetable;

fn settings(text: &str) -> Result<Vec<Setting>, Failure> {
    let found = parse(text, Path::new("c"))?;
    for setting in &found {
        check(&crate::definition(), setting)?;
    }
    Ok(found)
}

#[test]
fn a_setting_becomes_the_flags_default() {
    let found =
        settings("[cp]\nmax-rate = '2Gbit'\nquiet = true\n[bench.serve]\nallow = ['any']\n");
    let definition = apply(crate::definition(), &found.unwrap(), &[]);
    let parsed = |words: &[&str]| definition.clone().try_get_matches_from(words).unwrap();
    let matches = parsed(&["farhaul", "cp", "a", "h::s"]);
    let cp = matches.subcommand().unwrap().1;
    assert!(cp.get_flag("quiet"));
    let rate = cp.get_one::<Timetable>("max_rate");
    assert_eq!(
        rate.and_then(Timetable::always).map(Rate::bps),
        Some(2_000_000_000)
    );
    // The command line is stronger.
    let matches = parsed(&["farhaul", "cp", "--max-rate", "1Gbit", "a", "h::s"]);
    let cp = matches.subcommand().unwrap().1;
    let rate = cp.get_one::<Timetable>("max_rate");
    assert_eq!(
        rate.and_then(Timetable::always).map(Rate::bps),
        Some(1_000_000_000)
    );
}

#[test]
fn a_required_flag_may_come_from_the_file() {
    let found = settings("[serve]\nshare = ['a=/tmp', 'b=/tmp:rw']\n").unwrap();
    let definition = apply(crate::definition(), &found, &[]);
    let matches = definition
        .try_get_matches_from(["farhaul", "serve"])
        .unwrap();
    let serve = matches.subcommand().unwrap().1;
    assert_eq!(serve.get_many::<OsString>("share").unwrap().len(), 2);
}

#[test]
fn a_host_is_matched_by_its_pattern() {
    for (pattern, host, fits) in [
        ("far", "far", true),
        ("far", "FAR", true),
        ("far", "farther", false),
        ("*.cern.ch", "a.b.cern.ch", true),
        ("*.cern.ch", "cern.ch", false),
        ("10.0.?.1", "10.0.7.1", true),
        ("10.0.?.1", "10.0.77.1", false),
        ("*", "", true),
        ("a*b*c", "axxbyyc", true),
        ("a*b*c", "axxbyy", false),
    ] {
        assert_eq!(matches(pattern, host), fits, "{pattern} {host}");
    }
    assert_eq!(without_port("h:5"), "h");
    assert_eq!(without_port("[::1]:5"), "::1");
    assert_eq!(without_port("::1"), "::1");
}

#[test]
fn a_section_spreads_to_the_commands_that_have_the_flag() {
    let found = settings(
        "[host.'*.org']\nmax-rate = '1Gbit'\n[host.far]\npolicy = 'low'\ntrust_any = false\n",
    );
    let why = found.unwrap_err().text;
    assert!(why.contains("c:5: host.far.trust-any"), "{why}");
    let found =
        settings("[host.'*.org']\nmax-rate = '1Gbit'\n[host.far]\npolicy = 'low'\n").unwrap();
    let spread: Vec<_> = found
        .iter()
        .flat_map(|s| s.spread(&crate::definition()))
        .map(|s| s.name())
        .collect();
    let mut sorted = spread;
    sorted.sort();
    assert_eq!(sorted, ["bench.policy", "cp.max-rate", "cp.policy"]);
    assert!(found.iter().any(|s| s.is_for("a.org")));
    for (text, expected) in [
        (
            "[host.far]\nmax-rat = '1Gbit'",
            "c:2: host.far.max-rat: no flag 'max-rat' (did you mean 'max-rate'?)",
        ),
        (
            "[host.far]\nmax-rate = '1'",
            "c:2: host.far.max-rate: invalid value '1'",
        ),
        ("[host]\nmax-rate = '1Gbit'", "write the flags below"),
        ("[host.far.cp]\nmax-rate = '1Gbit'", "write the flags below"),
    ] {
        let e = settings(text).unwrap_err();
        assert!(e.text.contains(expected), "{text}: {}", e.text);
    }
}

#[test]
fn mistakes_are_named_with_their_line() {
    for (text, expected) in [
        (
            "[cp]\n\nmax-rat = '1Gbit'",
            "c:3: cp.max-rat: no flag 'max-rat' (did you mean 'max-rate'?)",
        ),
        ("max-rate = '1Gbit'", "below its command, as in [cp]"),
        ("[cpp]\nquiet = true", "c:2: cpp.quiet: no command 'cpp'"),
        ("[cp]\nmax-rate = 100", "100Mbit or 100MB"),
        ("[cp]\nquiet = 'yes'", "write true or false"),
        ("[cp]\ntrust-any = true", "only be set on the command line"),
        ("[cp]\nmax-rate = { a = 1 }", "no command 'max-rate'"),
        ("[cp\n", "c:1: "),
        ("[cp]\nmax-rate = []", "an empty array"),
        (
            "[cp]\nmax-rate = ['1Gbit', '2Gbit']",
            "cannot be used multiple times",
        ),
    ] {
        let e = settings(text).unwrap_err();
        assert_eq!(e.exit, Exit::Config);
        assert!(e.text.contains(expected), "{text}: {}", e.text);
    }
}
