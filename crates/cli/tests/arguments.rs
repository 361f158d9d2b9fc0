//! What happens on bad input? One message with cause and fix, the documented exit code, and with
//! `--json` one valid object all the same.

use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

fn farhaul(args: &[&str]) -> Output {
    Command::cargo_bin("farhaul")
        .expect("cargo builds the binary first")
        .args(args)
        .output()
        .expect("the binary can be started")
}

fn complaint(args: &[&str], code: i32) -> String {
    let output = farhaul(args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    assert!(output.stdout.is_empty(), "{args:?} wrote to stdout");
    text
}

fn object(args: &[&str], code: i32) -> Value {
    let output = farhaul(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}");
    serde_json::from_slice(&output.stdout).expect("stdout is one object")
}

#[test]
fn invalid_values_are_refused_with_the_correct_form() {
    let cases: [(&[&str], &str); 18] = [
        (&[], "Usage"),
        (&["bnech"], "similar"),
        (&["bench"], "name a host"),
        (
            &["bench", "h", "-t", "5", "-n", "1GB"],
            "cannot be used with",
        ),
        (&["bench", "h", "--prot", "haul"], "--protocol"),
        (&["bench", "h", "--protocol", "hual"], "did you mean 'haul'"),
        (&["bench", "h", "--protocol", "ftp"], "there are: haul"),
        (
            &["bench", "127.0.0.1", "--cc", "cubik"],
            "did you mean 'cubic'",
        ),
        (&["bench", "h", "--rate", "100"], "write 100Mbit or 100MB"),
        (
            &["bench", "h", "--rate", "1.5G"],
            "could mean bits or bytes",
        ),
        (&["bench", "h", "-P", "0"], "1..=64"),
        (&["bench", "h", "-n", "0"], "at least one byte"),
        (&["bench", "h", "-t", "2", "-O", "2"], "shorter than -t"),
        (&["sim", "--rtt", "100"], "unit"),
        (&["bench", "h", "--plot", "a.pdf"], "give svg or png"),
        (&["sim", "--plot", "a.pdf"], "give svg or png"),
        (&["sim", "--plot", "a"], "as a.svg or a.png"),
        (
            &["sim", "--plot", "a.svg", "--interval", "0s"],
            "nothing to --plot",
        ),
    ];
    for (args, expected) in cases {
        let text = complaint(args, 2);
        assert!(text.contains(expected), "{args:?}: {text}");
    }
    let text = complaint(&["bench", "nowhere.invalid", "-t", "1"], 11);
    assert!(text.contains("nowhere.invalid"), "{text}");
}

#[test]
fn a_failure_is_one_valid_object_too() {
    for (args, code, name) in [
        (&["bench", "h", "--json", "--protocol", "x"][..], 2, "usage"),
        (&["bench", "h", "--json", "--nonsense"], 2, "usage"),
        (&["bench", "a.invalid", "--json"], 11, "net_setup"),
        (&["sim", "--json", "--loss", "300%"], 2, "usage"),
    ] {
        let object = object(args, code);
        assert_eq!(object["ok"], false, "{args:?}");
        assert_eq!(object["exit"]["code"], code);
        assert_eq!(object["exit"]["name"], name);
        assert!(object["error"].as_str().is_some_and(|e| !e.is_empty()));
    }
}

#[test]
fn the_informing_commands_inform() {
    let protocols = object(&["protocols", "--json"], 0);
    assert_eq!(protocols["protocols"][0]["name"], "haul");
    assert_eq!(protocols["protocols"][0]["sealed"], true);
    let doctor = object(&["doctor", "--json"], 0);
    assert!(doctor["host"]["cores"].as_u64().is_some_and(|n| n > 0));
    let listing = farhaul(&["protocols"]);
    assert!(String::from_utf8_lossy(&listing.stdout).contains("known from: "));
    for shell in ["bash", "zsh", "fish"] {
        let script = farhaul(&["completions", shell]);
        assert!(String::from_utf8_lossy(&script.stdout).contains("farhaul"));
    }
}
