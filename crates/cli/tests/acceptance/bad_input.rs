//! Answers of each command to invalid arguments. Every flag that takes a number is tried with
//! values that are malformed, out of range or without their unit. Every name is tried with an
//! unknown one. With `--json` all of it is one valid object.

use std::{fs, process::Command, thread};

use crate::{
    kit::Fixture,
    place::{code, port, printed},
};

type Case<'a> = (&'a [&'a str], i32, &'a str);

fn refused(cases: &[Case<'_>]) {
    let fixture = Fixture::new();
    for (args, code, words) in cases {
        fixture.refuses(args, *code, &[words]);
    }
}

/// Checks refusals of commands without `--json`.
fn refused_in_text(cases: &[Case<'_>]) {
    let fixture = Fixture::new();
    for (args, code, words) in cases {
        fixture.refuses_in_text(args, *code, &[words]);
    }
}

#[test]
fn programs_of_libudt() {
    const FILE: [&str; 4] = ["compat", "udt4", "recvfile", "127.0.0.1:1"];
    let recvfile = |more: &[&'static str]| [&FILE[..], more].concat();
    let sendfile = |more: &[&'static str]| [&["compat", "udt4", "sendfile"], more].concat();
    let client = |more: &[&'static str]| [&["compat", "udt4", "client"], more].concat();
    let cases = [
        (sendfile(&[]), 2, "--share"),
        (sendfile(&["--share", "/tmp"]), 2, "NAME=PATH"),
        (
            sendfile(&["--share", "x=/nonexistent"]),
            10,
            "must be a directory",
        ),
        (sendfile(&["--share", "x=/tmp:wo"]), 2, "only fetches"),
        (
            sendfile(&["--share", "x=/tmp", "--share", "x=/"]),
            2,
            "two shares",
        ),
        (
            sendfile(&["--share", "x=/tmp", "--listen", "9000"]),
            2,
            "ADDRESS:PORT",
        ),
        (
            sendfile(&["--share", "x=/tmp", "--protocol", "haul"]),
            2,
            "udt4-tuned",
        ),
        (
            sendfile(&["--share", "x=/tmp", "--protocol", "utd4"]),
            2,
            "udt4",
        ),
        (
            recvfile(&["f", "g", "--protocol", "udt4:mss=10"]),
            2,
            "mss is from 76",
        ),
        (recvfile(&["f", "g", "--cc", "cubik"]), 2, "cubic"),
        (recvfile(&["f"]), 2, "<LOCAL>"),
        (recvfile(&["", "g"]), 2, "1 to 1023 bytes"),
        (recvfile(&["f", "/"]), 4, "no file name"),
        (recvfile(&["f", "/nonexistent/g"]), 4, "/nonexistent/g"),
        (client(&["127.0.0.1:0"]), 2, "no host"),
        (client(&["a.invalid"]), 11, "cannot find"),
        (client(&["h", "-t", "-1"]), 2, "seconds"),
        (client(&["h", "-n", "0"]), 2, "one byte"),
        (
            client(&["h", "-n", "1MB", "-t", "5"]),
            2,
            "cannot be used with",
        ),
    ];
    let cases: Vec<Case<'_>> = cases.iter().map(|(a, c, t)| (&a[..], *c, *t)).collect();
    refused_in_text(&cases);
}

#[test]
fn programs_of_rbudp() {
    let recvfile =
        |more: &[&'static str]| [&["compat", "rbudp", "recvfile", "127.0.0.1:1"], more].concat();
    let sendfile = |more: &[&'static str]| {
        [&["compat", "rbudp", "sendfile", "--rate", "1Gbit"], more].concat()
    };
    let cases = [
        (
            vec!["compat", "rbudp", "sendfile", "--share", "x=/tmp"],
            2,
            "--rate",
        ),
        (sendfile(&[]), 2, "--share"),
        (
            sendfile(&["--share", "x=/nonexistent"]),
            10,
            "must be a directory",
        ),
        (
            sendfile(&["--share", "x=/tmp", "--payload", "0"]),
            2,
            "1..=65000",
        ),
        (recvfile(&["f"]), 2, "<LOCAL>"),
        (recvfile(&["", "g"]), 2, "1 to 255 bytes"),
        (recvfile(&["f", "/"]), 4, "no file name"),
        (recvfile(&["f", "/nonexistent/g"]), 4, "/nonexistent/g"),
    ];
    let cases: Vec<Case<'_>> = cases.iter().map(|(a, c, t)| (&a[..], *c, *t)).collect();
    refused_in_text(&cases);
}

const UNIT: &str = "a unit is needed";

#[test]
fn every_rate_needs_its_unit() {
    let relay = [
        "wan",
        "relay",
        "--listen",
        "127.0.0.1:0",
        "--to",
        "127.0.0.1:1",
    ];
    let with = |more: &[&'static str]| [&relay[..], more].concat();
    let relayed = [
        with(&["--rate", "10"]),
        with(&["--rate-back", "10"]),
        with(&["--rate-steps", "5s:1"]),
        with(&["--policer", "5,1MB"]),
    ];
    let mut cases: Vec<Case<'_>> = vec![
        (&["bench", "h", "--rate", "100"], 2, UNIT),
        (&["bench", "h", "--rate", "1.5G"], 2, "bits or bytes"),
        (&["bench", "serve", "--rate", "100"], 2, UNIT),
        (&["cp", "--max-rate", "100", "f", "h::s"], 2, UNIT),
        (&["cp", "--max-rate", "-1Mbit", "f", "h::s"], 2, "'-1Mbit'"),
        (&["sim", "--rate", "10"], 2, UNIT),
        (&["sim", "--max-rate", "10"], 2, UNIT),
        (&["demo", "--rate", "10"], 2, UNIT),
        (&["bench", "h", "-b", "0Mbit"], 2, "out of range"),
        (&["bench", "h", "-b", "10Pbit"], 2, "1000Tbit"),
        (&["bench", "h", "-b", "NaN"], 2, "not a rate"),
        (&["bench", "h", "-b", "-5Mbit"], 2, "'-5Mbit'"),
    ];
    cases.extend(relayed.iter().map(|args| (&args[..], 2, UNIT)));
    // `bench serve` fails before it serves, with or without --json.
    refused(&cases);
}

#[test]
fn what_to_copy_and_how_is_checked_before_anything_is_connected() {
    let cases: &[Case<'_>] = &[
        (&["cp", "--min-size", "5x", "f", "h::s"], 2, "not a size"),
        (
            &["cp", "--min-size", "2GB", "--max-size", "1GB", "f", "h::s"],
            2,
            "no file is as large",
        ),
        (&["cp", "--exclude", "[[:no:]]", "f", "h::s"], 2, "[[:no:]]"),
        (&["cp", "--include", "!x", "f", "h::s"], 2, "--exclude"),
        (&["cp", "--exclude-from", "none", "f", "h::s"], 2, "none"),
        (&["cp", "--files-from", "none", "f", "h::s"], 2, "none"),
        (&["cp", "--files-from", "x", "h::s", "f"], 2, "for sending"),
        (&["cp", "-0", "f", "h::s"], 2, "--files-from"),
        (&["cp", "--remote-port", "5-3", "f", "h:"], 2, "write 3-5"),
        (&["cp", "--remote-port", "0", "f", "h:"], 2, "a port"),
        (&["cp", "--max-time", "5", "f", "h::s"], 2, UNIT),
        (
            &["cp", "--max-time", "0s", "f", "h::s"],
            2,
            "greater than zero",
        ),
        (&["cp", "-4", "-6", "f", "h::s"], 2, "cannot be used with"),
        (&["cp", "-u", "--no-clobber", "f", "h::s"], 2, "cannot be"),
        (&["cp", "--progress=always", "f", "h::s"], 2, "auto"),
        (
            &["cp", "--policy", "x", "f", "h::s"],
            2,
            "low, fair or high",
        ),
        (&["cp", "-n", "none", "h::s"], 3, "none"),
        (&["cp", "-", "f", "h::s/x"], 2, "only source"),
        (&["cp", "h::s/x", "h::s/y", "-"], 2, "several sources"),
        (&["cp", "-", "-"], 2, "other side is on a server"),
        (&["cp", "-", "h::s/"], 2, "--name"),
        (&["cp", "-n", "-", "h::s/x"], 2, "--dry-run means nothing"),
        (&["cp", "-a", "h::s/x", "-"], 2, "--archive means nothing"),
        (
            &["cp", "--delete", "-", "h::s/x"],
            2,
            "--delete means nothing",
        ),
        (&["cp", "--name", "x", "f", "h::s/"], 2, "--name is for"),
        (&["cp", "--name", "a/b", "-", "h::s/"], 2, "without a slash"),
        (&["h:a", "b"], 2, "farhaul cp SRC DST"),
        (&["/", "h:"], 2, "farhaul cp SRC DST"),
        (&["bench", "h", "--policy", "x"], 2, "low, fair or high"),
        (
            &["bench", "h", "--policy", "low", "--cc", "cubic"],
            2,
            "--cc ledbat",
        ),
        (
            &["bench", "h", "--policy", "low", "--protocol", "tcp"],
            2,
            "--cc ledbat",
        ),
    ];
    refused(cases);
}

#[test]
fn sizes_times_shares_and_counts_are_checked() {
    let cases: &[Case<'_>] = &[
        (&["bench", "h", "-n", "5x"], 2, "not a size"),
        (&["bench", "h", "-n", "-5"], 2, "'-5'"),
        (&["bench", "h", "-n", "0"], 2, "at least one byte"),
        (&["bench", "h", "-t", "-5"], 2, "0 to 1000000 seconds"),
        (&["bench", "h", "-t", "5parsec"], 2, "not a duration"),
        (&["bench", "h", "-O", "-1"], 2, "0 to 1000000 seconds"),
        (&["bench", "h", "-i", "1e99"], 2, "0 to 1000000 seconds"),
        (&["bench", "h", "-i", "1ms"], 2, "at least 10ms"),
        (&["bench", "h", "-P", "65"], 2, "1..=64"),
        (&["bench", "serve", "--max-time", "5"], 2, UNIT),
        (&["sim", "--loss", "101%"], 2, "0% to 100%"),
        (&["sim", "--loss", "-1%"], 2, "must not be negative"),
        (&["sim", "--loss", "1"], 2, "write 1%"),
        (&["sim", "--queue", "0"], 2, "more than zero"),
        (&["sim", "--queue", "-5MB"], 2, "must not be negative"),
        (&["sim", "--queue", "20MBB"], 2, "'20MBB'"),
        (&["sim", "--rtt", "-1ms"], 2, "must not be negative"),
        (&["sim", "--jitter", "5"], 2, UNIT),
        (&["sim", "--reorder", "1%,5"], 2, UNIT),
        (&["sim", "--duplicate", "5"], 2, UNIT),
        (&["sim", "--corrupt", "101%"], 2, "0% to 100%"),
        (&["sim", "--blackout", "5s"], 2, "FROM+LENGTH"),
        (&["sim", "--delay-steps", "5s:80"], 2, UNIT),
        (&["sim", "--ecn", "foo"], 2, "codel"),
        (&["sim", "--profile", "mars"], 2, "known are lan"),
        (&["sim", "--mtu", "100"], 2, "576"),
        (&["sim", "--interval", "5"], 2, UNIT),
        (
            &["demo", "--secs", "x"],
            2,
            "whole number of seconds from 3 to 60",
        ),
        (&["wan", "calibrate", "--each", "5"], 2, UNIT),
        (&["wan", "calibrate", "--each", "1h"], 2, "100ms to 60s"),
        (&["lab", "run", "cells", "--jobs", "0"], 2, "from 1 to 1024"),
    ];
    refused(cases);
    let relay = ["wan", "relay", "--to", "127.0.0.1:1", "--listen"];
    let cases: &[Case<'_>] = &[
        (
            &["serve", "--share", "s=.", "--max-sessions", "0"],
            2,
            "1..=100000",
        ),
        (
            &["serve", "--share", "s=.", "--listen", "localhost"],
            2,
            "ADDRESS:PORT",
        ),
        (&[&relay[..], &["x"]].concat(), 2, "ADDRESS:PORT"),
    ];
    refused_in_text(cases);
}

#[test]
fn unknown_names_get_the_nearest_one() {
    let cases: &[Case<'_>] = &[
        (
            &["bench", "h", "--protocol", "hual"],
            2,
            "did you mean 'haul'",
        ),
        (&["bench", "h", "--cc", "cubik"], 2, "did you mean 'cubic'"),
        (
            &["bench", "h", "--cc", "cubic:bet=0.8"],
            2,
            "did you mean 'beta'",
        ),
        (
            &["bench", "h", "--cc", "cubic:beta=9"],
            2,
            "from 0.1 to 0.99",
        ),
        (&["bench", "h", "--cc", "cubic:beta"], 2, "name=value"),
        (
            &["bench", "serve", "--protocol", "hual"],
            2,
            "did you mean 'haul'",
        ),
        (
            &["bench", "serve", "--cc", "cubik"],
            2,
            "did you mean 'cubic'",
        ),
        (&["bench", "serve", "--allow", "x"], 2, "fh-pub1"),
        (&["sim", "--protocol", "hual"], 2, "did you mean 'haul'"),
        (&["sim", "--cc", "cubic:bet=1"], 2, "did you mean 'beta'"),
        (&["lab", "run", "cell"], 2, "did you mean 'cells'"),
        (&["lab", "run", "cells", "--backend", "moon"], 2, "sim, emu"),
        (&["lab", "report", "cell"], 2, "did you mean 'cells'"),
        (&["lab", "check", "cell"], 2, "did you mean 'cells'"),
    ];
    refused(cases);
}

#[test]
fn words_of_iperf3_and_netem_are_answered_with_what_to_write() {
    refused(&[
        (&["bench", "h", "-V"], 2, "omit it"),
        (&["bench", "h", "-A", "1"], 2, "taskset"),
        (&["bench", "h", "--logfile", "l"], 2, "> FILE"),
        (&["sim", "--delay", "100ms"], 2, "--rtt 200ms"),
        (&["sim", "--limit", "1000"], 2, "1000packets"),
        (&["wan", "--rtt", "9ms"], 2, "write farhaul wan run --rtt"),
        (
            &["wan", "run", "--gemodel", "1%", "--", "true"],
            2,
            "ge:1%,8",
        ),
    ]);
}

#[test]
fn words_of_other_programs_are_not_taken_for_something_else() {
    refused(&[
        (&["cp", "-ai", "f", "h::s"], 2, "write -v for rsync's -i"),
        (
            &["cp", "-ain", "--delete", "f", "h::s"],
            2,
            "write -v for rsync's -i",
        ),
        (&["cp", "-avoin", "f", "h::s"], 2, "-o NAME=VALUE"),
        (&["cp", "-P", "22", "f", "h:x"], 2, "write -o Port=22"),
        (&["cp", "-P22", "f", "h:x"], 2, "write -o Port=22"),
        (&["cp", "-in", "f", "h::s"], 2, "write -v for rsync's -i"),
        (&["cp", "-aFn", "f", "h::s"], 2, "--exclude-from"),
        (
            &["cp", "-ax", "--delete", "f", "h::s"],
            2,
            "write --exclude",
        ),
        (&["cp", "-x", "h::s", "f"], 2, "write --exclude"),
        (&["cp", "-abi", "f", "h::s"], 2, "write -v for rsync's -i"),
        (
            &["cp", "--exclude", "!x", "f", "h::s"],
            2,
            "write --include",
        ),
        (&["cp", "-ao", "f", "g", "h::s"], 2, "-o NAME=VALUE"),
        (&["cp", "-o", "f", "g", "h::s"], 2, "-o NAME=VALUE"),
        (&["cp", "--chown=a:b", "f", "h::s"], 2, "write chown there"),
        (&["cp", "--max-delete", "5", "f", "h::s"], 2, "add --delete"),
        (&["wan", "change"], 2, "--rate-steps"),
        (
            &["wan", "run", "--loss", "1%", "25%", "--", "true"],
            2,
            "ge:1%,8",
        ),
        (
            &["wan", "run", "--rtt", "1ms", "ping", "far"],
            2,
            "write -- before",
        ),
        (&["bench", "-s", "-i", "1"], 2, "leave it out here"),
        (&["bench", "-s", "-B", "::1"], 2, "--listen ADDR:PORT"),
        (&["bench", "h", "-v"], 2, "farhaul --version"),
    ]);
}

#[test]
fn flags_of_other_programs_are_answered_with_what_to_write() {
    let cases: &[Case<'_>] = &[
        (&["cp", "--zc=zstd", "f", "h::s"], 2, "not compressed"),
        (&["cp", "-avm", "f", "h::s"], 2, "-type d -empty"),
        (&["cp", "--modify-window=1", "f", "h::s"], 2, "omit it"),
        (&["cp", "-P", "2222", "f", "h:"], 2, "-o Port=2222"),
        (&["cp", "--no-perms", "f", "h::s"], 2, "always preserved"),
        (&["cp", "--no-owner", "f", "h::s"], 2, "--preserve=links"),
        (&["cp", "--force", "f", "h::s"], 2, "only --delete replaces"),
        (&["cp", "--log-file=l", "f", "h::s"], 2, "--json-stream"),
        (&["cp", "-l", "100", "f", "h::s"], 2, "--max-rate 100Mbit"),
        (&["cp", "--bwlimit=fast", "f", "h::s"], 2, "--max-rate"),
        (
            &["cp", "--link-dest=../old", "f", "h::s"],
            2,
            "--backup=SUFFIX",
        ),
        (&["cp", "--inplace", "f", "h::s"], 2, "resume"),
        (&["cp", "--delete-after", "d", "h::s"], 2, "write --delete"),
        (
            &["cp", "h::s/a", "i::s/b", "."],
            2,
            "give each server a command of its own",
        ),
        (
            &["cp", "f", "h::s/b", "."],
            2,
            "give the sources on h:17992 a command of their own",
        ),
        (&["bench", "h", "-u", "--tcp"], 2, "cannot be used with"),
        (&["rsync", "-av", "a", "b"], 2, "write farhaul cp"),
        (&["ls", "-a", "h::"], 2, "omit it"),
        (&["bench", "h", "-t", "0"], 2, "nothing to measure"),
        (&["sim", "--secs", "-1"], 2, "from 1 to 100000"),
        (&["lab", "run", "nope"], 2, "blast, calibration, cells"),
        (
            &["lab", "run", "flagship", "--law", "none"],
            2,
            "there are haul, cubic",
        ),
        (
            &["lab", "run", "cells", "--law", "cubic"],
            2,
            "--vary NAME=VALUE",
        ),
        (
            &[
                "wan",
                "relay",
                "--listen",
                "127.0.0.1:9",
                "--to",
                "127.0.0.1:9",
            ],
            2,
            "--to is where the server listens",
        ),
    ];
    refused(cases);
    let fixture = Fixture::new();
    // The advice is not to make a file that is no key fit to be one.
    let out = fixture.place.run(&["key", "show", "no.key"]);
    assert_eq!(code(&out), 10, "{}", printed(&out));
    assert!(!printed(&out).contains("chmod"), "{}", printed(&out));
    let out = fixture.place.run(&["cp", "f"]);
    assert!(
        printed(&out).contains("farhaul cp SRC... DST"),
        "{}",
        printed(&out)
    );
}

#[test]
fn invalid_places_are_reported_with_the_correct_form() {
    let cases: &[Case<'_>] = &[
        (&["cp", "f", "::1::s/"], 2, "write [::1]::s/"),
        (
            &["cp", "fe80::1::share/path", "."],
            2,
            "write [fe80::1]::share/path",
        ),
        (&["cp", "f", "me@h::in/h2"], 2, "write h::in/h2"),
        (&["cp", "f", "me@[::1]:5::in/"], 2, "write [::1]:5::in/"),
        (&["cp", "f", "h::/in/z"], 2, "write h::in/z"),
        (&["cp", "f", "[::1]:7:://in/z"], 2, "write [::1]:7::in/z"),
        (
            &["lab", "run", "cells", "--out", "/proc/none"],
            4,
            "/proc/none/cells",
        ),
    ];
    refused(cases);
}

#[test]
fn what_contradicts_itself_is_refused() {
    let cases: &[Case<'_>] = &[
        (
            &["bench", "h", "-t", "5", "-n", "1GB"],
            2,
            "cannot be used with",
        ),
        (&["bench"], 2, "name a host"),
        (&["bench", "h:99999"], 2, "HOST:PORT"),
        (&["bench", "me@h"], 2, "HOST:PORT"),
        (&["doctor", "h:0"], 2, "HOST:PORT"),
        (&["cp", "h::s/a", "i::s/b"], 2, "copy to this machine first"),
        (&["cp", "f", "h::s/../x"], 2, "no '..'"),
        (
            &["lab", "report", "cells", "--csv", "--json"],
            2,
            "cannot be used with",
        ),
        (&["lab", "report", "cells"], 3, "farhaul lab run cells"),
        (&["lab", "check", "cells"], 3, "farhaul lab run cells"),
        (&["demo", "none", "--secs", "3"], 3, "none"),
        (
            &["wan", "run", "--report", "/none/x", "--", "/none"],
            3,
            "/none",
        ),
    ];
    let (csv, plain): (Vec<_>, Vec<_>) = cases.iter().copied().partition(|(args, ..)| {
        args.contains(&"--csv") || args.first() == Some(&"demo") || args.first() == Some(&"wan")
    });
    refused(&plain);
    let fixture = Fixture::new();
    for (args, expected, words) in csv {
        let out = fixture.place.run(args);
        // Without the right to build a network there is nothing to start a program on.
        if args[0] == "wan" && code(&out) == 11 {
            continue;
        }
        assert_eq!(code(&out), expected, "{args:?}: {}", printed(&out));
        assert!(printed(&out).contains(words), "{args:?}: {}", printed(&out));
    }
}

#[test]
fn json_is_recognized_among_other_letters() {
    let fixture = Fixture::new();
    let out = fixture.place.run(&["bench", "h", "-RJ", "--protocol", "x"]);
    let object = fixture.names.object(&out, 2);
    let error = object["error"].as_str().expect("a text");
    assert!(!error.starts_with("error:"), "{error}");
}

#[test]
fn a_port_in_use_and_a_foreign_address_are_not_usage_errors() {
    let address = ("127.0.0.1", port::free_port());
    let taken = std::net::UdpSocket::bind(address).expect("loopback can be bound");
    let at = taken.local_addr().expect("it is bound").to_string();
    let cases: &[Case<'_>] = &[
        (
            &["bench", "serve", "--listen", &at],
            11,
            "another address with --listen",
        ),
        (
            &["bench", "serve", "--listen", "192.0.2.1:9"],
            11,
            "another address with --listen",
        ),
        (
            &["wan", "relay", "--to", "127.0.0.1:1", "--listen", &at],
            11,
            "a free port",
        ),
    ];
    refused(cases);
    let cases: &[Case<'_>] = &[(
        &["serve", "--share", "s=.", "--allow", "any", "--listen", &at],
        11,
        "another address with --listen",
    )];
    refused_in_text(cases);
    // Somebody who does not answer, and nobody.
    let cases: &[Case<'_>] = &[
        (&["bench", &at, "-t", "1"], 16, "no answer"),
        (&["doctor", "--udp-timeout", "1s", &at], 16, "ufw allow"),
    ];
    quiet_on_failure(cases);
    drop(taken);
    let cases: &[Case<'_>] = &[
        (&["bench", &at, "-t", "1"], 16, "nothing listens"),
        // It asks for as long as libudt does, for a server that is being started.
        (
            &["bench", &at, "-t", "1", "--protocol", "udt4"],
            16,
            "nothing listens",
        ),
        (
            &["doctor", "--udp-timeout", "1s", &at],
            16,
            "nothing listens",
        ),
    ];
    quiet_on_failure(cases);
}

/// Checks commands that may say something before they fail, and wait: side by side.
fn quiet_on_failure(cases: &[Case<'_>]) {
    let fixture = &Fixture::new();
    thread::scope(|scope| {
        for (args, code, words) in cases {
            scope.spawn(move || fixture.refuses_as_object(args, *code, &[words]));
        }
    });
}

#[test]
fn a_pipe_in_place_of_a_file_is_not_waited_for() {
    let fixture = Fixture::new();
    let place = &fixture.place;
    let pipe = |name: &str| {
        let made = Command::new("mkfifo").arg(place.path(name)).status();
        assert!(made.expect("mkfifo exists").success());
    };
    fs::create_dir_all(place.path("config/farhaul")).expect("a folder");
    pipe("pipe");
    pipe("config/farhaul/known_servers");
    let refuses =
        |args: &[&str], code| fixture.refuses_in_text(args, code, &["not a regular file"]);
    refuses(&["cp", "--exclude-from", "pipe", "f", "h::s"], 2);
    refuses(&["cp", "--files-from", "pipe", ".", "h::s"], 2);
    refuses(&["key", "list"], 10);
    pipe("config/farhaul/config.toml");
    refuses(&["cp", "f", "h::s"], 10);
}
