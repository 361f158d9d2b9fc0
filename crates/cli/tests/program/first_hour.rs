//! First hour of a new user: mistakes in the configuration, keys that are not accepted, units and
//! addresses as they come to mind.

use std::{fs, path::Path, process::Command};

use crate::kit::{Served, command, environment, object, run, stdout_of};

/// Text on stderr, of a run that ends with `code`.
fn complaint(output: &std::process::Output, code: i32) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

#[test]
fn a_mistake_in_the_configuration_does_not_take_help_and_keys_away() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    fs::create_dir_all(place.join("config/farhaul")).expect("ours");
    let file = place.join("config/farhaul/config.toml");
    for mistake in [
        "[cp]\nmax-rat = \"1Gbit\"\n",
        "[cp\n",
        "[key.gen]\nout = \"x\"\n",
    ] {
        fs::write(&file, mistake).expect("ours");
        for args in [
            &["--version"][..],
            &["--help"],
            &["cp", "--help"],
            &["help", "bench"],
            &["completions", "bash"],
            &["protocols", "haul"],
            &["key", "list"],
            &["config", "path"],
        ] {
            let out = run(place, args);
            assert!(complaint(&out, 0).is_empty(), "{args:?}");
            assert!(
                args == ["key", "list"] || !out.stdout.is_empty(),
                "{args:?}"
            );
        }
        for args in [&["doctor"][..], &["cp", "a", "h::s/"], &["config", "check"]] {
            let text = complaint(&run(place, args), 10);
            assert!(text.contains("config.toml:"), "{args:?}: {text}");
        }
    }
}

#[test]
fn a_variable_that_means_nothing_is_warned_of_once() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let mut doctor = command(place.path(), &["sim", "--secs", "1", "--rate", "1Mbit"]);
    let out = doctor
        .env("FARHAUL_MAX_RATE", "1")
        .output()
        .expect("it starts");
    let text = complaint(&out, 0);
    assert_eq!(
        text.matches("$FARHAUL_MAX_RATE is ignored").count(),
        1,
        "{text}"
    );
    assert!(text.contains("FARHAUL_CP_MAX_RATE"), "{text}");
}

#[test]
fn protocols_and_laws_are_shown_by_name() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    let found = object(place, &["protocols", "udt4", "cubic", "--json"], 0);
    for (list, name) in [("protocols", "udt4"), ("laws", "cubic")] {
        let names: Vec<_> = found[list]
            .as_array()
            .expect("a list")
            .iter()
            .map(|e| &e["name"])
            .collect();
        assert_eq!(names, [name], "{list}");
    }
    let all = object(place, &["protocols", "--json"], 0);
    let first = &all["protocols"][0];
    assert_eq!(
        (&first["name"], &first["sealed"]),
        (&"haul".into(), &true.into())
    );
    assert!(stdout_of(place, &["protocols"], 0).contains("known from: "));
    let doctor = object(place, &["doctor", "--json"], 0);
    assert!(doctor["host"]["cores"].as_u64().is_some_and(|n| n > 0));
    // haul is both.
    let text = stdout_of(place, &["protocols", "haul"], 0);
    assert!(
        text.contains("--protocol NAME") && text.contains("--cc NAME"),
        "{text}"
    );
    let text = complaint(&run(place, &["protocols", "cubik"]), 2);
    assert!(text.contains("did you mean 'cubic'?"), "{text}");
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    for (shell, law) in [
        ("bash", "cubic-2.6.25"),
        ("zsh", "cubic-2.6.25"),
        ("fish", "cubic-2.6.25"),
    ] {
        let script = stdout_of(place, &["completions", shell], 0);
        assert!(
            script.contains(law) && script.contains("rbudp-kachan"),
            "{shell}"
        );
    }
    let reference = std::path::absolute("../../docs/reference.md").expect("a folder");
    let reference = reference.to_str().expect("text");
    let man = [
        "_man",
        ".",
        "--date",
        "2026-11-30",
        "--reference",
        reference,
    ];
    stdout_of(place, &man, 0);
    let page = |name: &str| fs::read_to_string(place.join(name)).expect(name);
    assert!(page("farhaul.1").contains("farhaul\\-cp(1)"));
    assert!(page("farhaul-bench-serve.1").contains("one\\-off"));
    assert!(!place.join("farhaul-_serve.1").exists());
    let cp = page("farhaul-cp.1");
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        cp.contains(&format!(
            ".TH farhaul-cp 1 2026-11-30 \"farhaul {version}\" farhaul\n"
        )),
        "{cp}"
    );
    assert!(
        cp.contains("serve\\-PORT.sock") && cp.contains("FARHAUL_TICKET"),
        "{cp}"
    );
    for section in ["EXIT STATUS", "FILES", "ENVIRONMENT"] {
        assert!(
            cp.contains(&format!(".SH \"{section}\"\n"))
                || cp.contains(&format!(".SH {section}\n")),
            "{section}"
        );
    }
    // No flag is without a text, those of the long help included.
    let lines: Vec<_> = cp.lines().collect();
    let bare = |two: &&[&str]| two[0].starts_with("\\fB\\-") && two[1].is_empty();
    assert_eq!(lines.windows(2).find(bare), None);
    let text = complaint(&run(place, &["_man", "none", "--reference", reference]), 4);
    assert!(text.contains("cannot write to none"), "{text}");
}

#[test]
fn both_ends_name_the_key_that_is_not_accepted() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    fs::create_dir(place.join("share")).expect("ours");
    fs::write(place.join("f"), "content").expect("ours");
    let key = stdout_of(place, &["key", "gen"], 0);
    let key = key.trim();
    let other = stdout_of(place, &["key", "gen", "--out", "other"], 0);
    let mut shut = vec!["serve", "--listen", "127.0.0.1:0", "--share", "s=share"];
    shut.extend(["--allow", other.trim()]);
    let server = Served::start(place, &shut);
    let to = format!("{}::s/", server.1);
    for args in [&["cp", "--trust-any", "f", &to][..], &["doctor", &server.1]] {
        let output = run(place, args);
        // `doctor` says it among what it found.
        let text = complaint(&output, 15) + &String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(&format!("--allow {key}")), "{args:?}: {text}");
    }
    // What was advised works, and `doctor` knows the server as `cp` does, by its name.
    let port = server.1.rsplit_once(':').expect("a port").1.to_string();
    drop(server);
    let at = format!("127.0.0.1:{port}");
    let open = [
        "serve",
        "--listen",
        &at,
        "--share",
        "s=share:rw",
        "--allow",
        key,
    ];
    let server = Served::start(place, &open);
    assert_eq!(server.1, at);
    let name = format!("localhost:{port}");
    let found = object(place, &["doctor", &name, "-t", "0", "--json"], 0);
    let theirs = found["path"]["key"].as_str();
    stdout_of(place, &["key", "trust", &name, theirs.expect("its key")], 0);
    let text = stdout_of(place, &["doctor", &name, "-t", "0"], 0);
    assert!(text.contains("known: fh-pub1"), "{text}");
    stdout_of(place, &["cp", "f", &format!("{name}::s/")], 0);
}

#[test]
fn units_and_addresses_are_understood_as_they_are_typed() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    let seconds = ["sim", "--secs", "2s", "--rate", "1Mbit", "--json"];
    assert_eq!(object(place, &seconds, 0)["seconds"], 2.0);
    fs::create_dir(place.join("share")).expect("ours");
    let named = [
        "serve",
        "--listen",
        "localhost:0",
        "--share",
        "s=share",
        "--allow",
        "any",
    ];
    let server = Served::start(place, &named);
    let to = format!("{}::s/", server.1);
    stdout_of(
        place,
        &["cp", "--trust-any", "-n", "--progress", "bar", &to, "here"],
        0,
    );
    for (listen, code) in [("70000", 2), ("localhost", 2), ("localhost:", 2)] {
        let args = ["bench", "serve", "--listen", listen];
        let text = complaint(&run(place, &args), code);
        assert!(text.contains("127.0.0.1:17992"), "{listen}: {text}");
    }
}

#[test]
fn no_figures_are_made_of_a_few_bytes() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    fs::create_dir(place.join("share")).expect("ours");
    fs::write(place.join("f"), vec![7; 20_000]).expect("ours");
    let open = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--share",
        "s=share:rw",
        "--allow",
        "any",
    ];
    let server = Served::start(place, &open);
    let to = format!("{}::s/", server.1);
    let text = complaint(&run(place, &["cp", "-v", "--trust-any", "f", &to]), 0);
    assert!(text.contains("of memory") && text.contains("rtt"), "{text}");
    assert!(
        !text.contains("of a core") && !text.contains("limited by"),
        "{text}"
    );
    fs::write(place.join("g"), vec![7; 32 << 20]).expect("ours");
    let text = complaint(&run(place, &["cp", "-v", "--trust-any", "g", &to]), 0);
    assert!(text.contains("of a core per Gbit/s"), "{text}");
}

#[test]
fn a_share_can_be_listed() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    fs::create_dir_all(place.join("share/runs")).expect("ours");
    fs::write(place.join("share/runs/a b"), [7; 2_048]).expect("ours");
    fs::write(place.join("share/top"), "x").expect("ours");
    std::os::unix::fs::symlink("top", place.join("share/way")).expect("ours");
    let open = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--share",
        "s=share",
        "--allow",
        "any",
    ];
    let server = Served::start(place, &open);
    let whole = format!("{}::s", server.1);
    let text = stdout_of(place, &["ls", "--trust-any", &whole], 0);
    let mut lines: Vec<_> = text.lines().map(str::trim).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["1 B  top", "runs/", "way@"], "one level");
    let text = stdout_of(place, &["ls", "--trust-any", "-R", &whole], 0);
    let mut lines: Vec<_> = text.lines().map(str::trim).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["1 B  top", "2.0 KiB  runs/a b", "runs/", "way@"]);
    let listed = object(
        place,
        &["ls", "--trust-any", "--json", &format!("{whole}/runs/")],
        0,
    );
    assert_eq!(listed["schema"], "farhaul.list/1");
    assert_eq!(listed["entries"][0]["path"], "a b");
    assert_eq!(listed["entries"][0]["bytes"], 2_048);
    let shares = format!("{}::", server.1);
    let text = stdout_of(place, &["ls", "--trust-any", &shares], 0);
    assert_eq!(text.trim(), "ro  s/", "named as in a folder");
    let listed = object(place, &["ls", "--trust-any", "--json", &shares], 0);
    assert_eq!(listed["entries"][0]["path"], "s");
    assert_eq!(listed["entries"][0]["access"], "ro");
    // An unknown key is not trusted silently.
    let text = complaint(&run(place, &["ls", &shares]), 15);
    assert!(text.contains("farhaul key trust"), "{text}");
    for (args, code) in [
        (&["ls", "--trust-any", &format!("{whole}/none")][..], 3),
        (&["ls", "--trust-any", &format!("{}::none", server.1)], 15),
        (&["ls", "share"], 2),
    ] {
        let text = complaint(&run(place, args), code);
        assert!(
            text.contains("none") || text.contains("share"),
            "{args:?}: {text}"
        );
    }
}

/// A folder that is shared, and its server.
fn shared(place: &Path) -> Served {
    fs::create_dir_all(place.join("share")).expect("ours");
    let at = "127.0.0.1:0";
    let open = [
        "serve",
        "--listen",
        at,
        "--share",
        "s=share:rw",
        "--allow",
        "any",
    ];
    Served::start(place, &open)
}

#[test]
fn several_places_are_listed_each_under_its_own_name() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    let server = shared(place);
    for (folder, text) in [("A", "1"), ("B", "22")] {
        fs::create_dir(place.join("share").join(folder)).expect("ours");
        fs::write(place.join("share").join(folder).join("same"), text).expect("ours");
    }
    let at = |path: &str| format!("{}::s/{path}", server.1);
    let (a, b, none) = (at("A/"), at("B/"), at("none"));
    let text = stdout_of(place, &["ls", "--trust-any", &a, &b], 0);
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let (first, second) = (format!("{a}:"), format!("{b}:"));
    assert_eq!(lines, [&first, "1 B  same", "", &second, "2 B  same"]);
    let listed = object(place, &["ls", "--trust-any", "--json", &a, &none, &b], 5);
    for (number, place, bytes) in [(0, &a, 1), (1, &b, 2)] {
        let entry = &listed["entries"][number];
        assert_eq!(entry["place"], **place);
        assert_eq!(
            (&entry["path"], &entry["bytes"]),
            (&"same".into(), &bytes.into())
        );
    }
    assert_eq!(listed["total"]["files"], 2);
    assert_eq!(listed["exit"]["name"], "partial");
    assert_eq!(listed["failures"][0]["place"], *none);
    assert_eq!(listed["failures"][0]["exit"]["name"], "source_missing");
    // One server that is not there is no reason to leave out another.
    let gone = "127.0.0.1:9::s/";
    let listed = object(place, &["ls", "--trust-any", "--json", gone, &b], 16);
    assert_eq!(listed["entries"][0]["place"], *b);
}

#[test]
fn what_cannot_be_listed_is_told_of_on_stderr() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    let server = shared(place);
    fs::write(place.join("share/file"), "x").expect("ours");
    let made = Command::new("mkfifo")
        .arg(place.join("share/pipe"))
        .status();
    assert!(made.expect("it starts").success());
    let out = run(place, &["ls", "--trust-any", &format!("{}::s", server.1)]);
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), "1 B  file");
    let text = complaint(&out, 0);
    let end = "pipe: a pipe, socket or device: skipped";
    assert!(text.trim_end().ends_with(end), "{text}");
}

#[test]
fn a_key_that_cannot_be_kept_is_warned_of() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    let server = shared(place);
    fs::write(place.join("f"), "x").expect("ours");
    let to = format!("{}::s/", server.1);
    let mut copy = command(place, &["cp", "--trust-any", "f", &to]);
    // Nobody makes folders there.
    let out = copy.env_remove("XDG_CONFIG_HOME").env("HOME", "/proc/none");
    let text = complaint(&out.output().expect("it starts"), 0);
    assert!(
        text.contains("warning: this run has a key of its own"),
        "{text}"
    );
    assert!(text.contains("/proc/none/.config/farhaul"), "{text}");
    let mut copy = command(place, &["cp", "--trust-any", "f", &to]);
    let out = copy.env_remove("XDG_CONFIG_HOME").env_remove("HOME");
    let text = complaint(&out.output().expect("it starts"), 10);
    assert!(!text.contains("warning"), "{text}");
}

#[test]
fn exit_codes_and_reasons_are_explained() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    let all = stdout_of(place, &["explain"], 0);
    for name in ["ok", "udp_blocked", "143", "network", "peer"] {
        assert!(all.contains(name), "{name}: {all}");
    }
    let by_number = stdout_of(place, &["explain", "17"], 0);
    assert!(by_number.contains("the same command again"), "{by_number}");
    assert_eq!(
        by_number,
        stdout_of(place, &["explain", "connection-lost"], 0)
    );
    let reason = stdout_of(place, &["explain", "peer"], 0);
    assert!(
        reason.contains("receiver") && reason.contains("what to do"),
        "{reason}"
    );
    for (what, words) in [
        ("sending", "lanes"),
        ("141", "head"),
        ("129", "hup"),
        ("silent", "nothing is received"),
        ("udp-blocked", "UDP"),
        ("relayed", "through the machine"),
        ("compare", "content"),
    ] {
        let text = stdout_of(place, &["explain", what], 0);
        assert!(text.contains(words), "{what}: {text}");
    }
    let text = complaint(&run(place, &["explain", "conection_lost"]), 2);
    assert!(text.contains("'connection_lost'"), "{text}");
    let text = complaint(&run(place, &["explain", "21"]), 2);
    assert!(text.contains("lists all"), "{text}");
}

#[test]
fn a_file_here_with_a_colon_in_its_name_is_named_as_it_is_written() {
    let place = tempfile::tempdir().expect("a temporary folder");
    fs::write(place.path().join("a:b"), "x").expect("ours");
    let said = complaint(&run(place.path(), &["cp", "a:b", "h::in/"]), 2);
    assert!(said.contains("is written ./a:b"), "{said}");
}

#[test]
fn no_hidden_command_is_suggested() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let text = complaint(&run(place.path(), &["copy"]), 2);
    assert!(text.contains("write farhaul cp"), "{text}");
    let text = complaint(&run(place.path(), &["copi"]), 2);
    let first = text.split("exist: ").nth(1);
    assert!(first.is_some_and(|t| t.starts_with("'cp'")), "{text}");
    assert!(!text.contains("'_"), "{text}");
}

#[test]
fn a_pipe_as_a_source_is_answered_by_what_to_write() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let place = place.path();
    let pipe = Command::new("mkfifo").arg(place.join("pipe")).status();
    assert!(pipe.expect("coreutils").success());
    let said = complaint(&run(place, &["cp", "pipe", "h::s/"]), 2);
    assert!(said.contains("write - in its place"), "{said}");
    let farhaul = env!("CARGO_BIN_EXE_farhaul");
    let script = format!("true | {farhaul} cp /dev/stdin h::s/");
    let mut shell = environment::command("sh", place);
    let output = shell.args(["-c", &script]).output();
    let said = complaint(&output.expect("a shell"), 2);
    assert!(said.contains("write - in its place"), "{said}");
}
