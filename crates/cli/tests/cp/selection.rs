//! Selection of files, treatment of existing ones, and dry runs: both ways, as typed.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::{Duration, SystemTime},
};

use serde_json::Value;

use crate::place::{Place, Served, code, json, noise, printed};

fn files(dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut stack = vec![dir.to_path_buf()];
    while let Some(at) = stack.pop() {
        for entry in fs::read_dir(&at).expect("a folder").flatten() {
            let path = entry.path();
            let name = path
                .strip_prefix(dir)
                .expect("below")
                .to_str()
                .expect("text");
            all.push(name.to_owned());
            if path.is_dir() {
                stack.push(path);
            }
        }
    }
    all.sort();
    all
}

/// A tree at `root`.
fn tree(root: &Path) {
    fs::create_dir_all(root.join("deep/er")).expect("ours");
    fs::create_dir_all(root.join("logs")).expect("ours");
    for (name, size) in [
        ("a.bam", 3000),
        ("a.tmp", 10),
        ("deep/b.bam", 2_000_000),
        ("deep/er/c.txt", 5),
        ("logs/x", 1),
    ] {
        fs::write(root.join(name), noise(9, size)).expect("ours");
    }
}

fn set(path: &Path, time: SystemTime) {
    let file = fs::OpenOptions::new()
        .append(true)
        .open(path)
        .expect("there");
    file.set_modified(time).expect("ours");
}

/// A copy there or back, with flags.
fn copy(place: &Place, server: &Served, put: bool, flags: &[&str], to: &str) -> Output {
    let far = if put {
        server.to(to)
    } else {
        server.to("src/")
    };
    let paths: [&str; 2] = if put { ["src/", &far] } else { [&far, to] };
    place.run(&[&["cp", "--trust-any"], flags, &paths].concat())
}

#[test]
fn filters_mean_the_same_both_ways() {
    let place = Place::new();
    tree(&place.path("src"));
    tree(&place.path("share/src"));
    fs::write(place.path("rules"), "# not these\nlogs/\n").unwrap();
    let server = place.serve(&["--allow", "any"]);
    let cases: [(&[&str], &[&str]); 4] = [
        (
            &["--exclude", "*.tmp", "--exclude-from", "rules"],
            &["a.bam", "deep", "deep/b.bam", "deep/er", "deep/er/c.txt"],
        ),
        (&["--include", "*.bam"], &["a.bam", "deep", "deep/b.bam"]),
        (
            &["--include", "*.txt", "--exclude", "*.*"],
            &["deep", "deep/er", "deep/er/c.txt", "logs", "logs/x"],
        ),
        (
            &["--min-size", "5", "--max-size", "1MB"],
            &["a.bam", "a.tmp", "deep", "deep/er", "deep/er/c.txt", "logs"],
        ),
    ];
    for put in [true, false] {
        for (i, (flags, expected)) in cases.iter().enumerate() {
            let to = format!("to{i}");
            let out = copy(&place, &server, put, flags, &to);
            assert_eq!(code(&out), 0, "{flags:?}: {}", printed(&out));
            let at = place.path(&if put { format!("share/{to}") } else { to });
            assert_eq!(files(&at), *expected, "{flags:?}, put: {put}");
        }
    }
}

#[test]
fn a_dry_run_reports_and_changes_nothing() {
    let place = Place::new();
    tree(&place.path("src"));
    tree(&place.path("share/src"));
    let server = place.serve(&["--allow", "any"]);
    for put in [true, false] {
        let at = place.path(if put { "share/to" } else { "to" });
        fs::create_dir_all(at.join("logs/x")).unwrap();
        fs::write(at.join("a.bam"), "another").unwrap();
        let before = files(&at);
        let flags = ["-n", "--json", "--exclude", "*.tmp"];
        let out = copy(&place, &server, put, &flags, "to");
        let word = json(&out);
        // A folder is where a file should go.
        assert_eq!(code(&out), 4, "{}", printed(&out));
        assert_eq!(word["dry_run"], true);
        assert_eq!(word["would_send"]["files"], 3);
        assert_eq!(word["would_send"]["bytes"], 2_003_005);
        assert_eq!(word["bytes_payload"], 0);
        let plan = word["plan"].as_array().expect("a plan");
        let mut reported: Vec<String> = plan
            .iter()
            .map(|p| {
                format!(
                    "{} {}",
                    p["action"].as_str().unwrap(),
                    p["path"].as_str().unwrap()
                )
            })
            .collect();
        reported.sort();
        let expected = [
            "exclude a.tmp",
            "fail logs/x",
            "keep logs",
            "make deep",
            "make deep/er",
            "replace a.bam",
            "send deep/b.bam",
            "send deep/er/c.txt",
        ];
        assert_eq!(reported, expected, "put: {put}");
        assert_eq!(files(&at), before, "nothing was made");
        let out = copy(
            &place,
            &server,
            put,
            &["-n", "--exclude", "logs"],
            "none/yet/",
        );
        assert_eq!(code(&out), 0, "{}", printed(&out));
        let lines = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(
            lines.contains("send         1.9 MiB  deep/b.bam"),
            "{lines}"
        );
        let said = printed(&out);
        assert!(
            said.contains("would write") && !said.contains("already"),
            "{said}"
        );
        assert!(!place.path("none").exists() && !place.path("share/none").exists());
    }
    let shut = place.serve_at("127.0.0.1:0", &["--allow", "any"]);
    let out = place.run(&[
        "cp",
        "--trust-any",
        "-n",
        "src",
        &format!("{}::other/", shut.at),
    ]);
    assert_eq!(code(&out), 15, "{}", printed(&out));
}

#[test]
fn what_is_there_may_stay() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for put in [true, false] {
        let (from, at) = if put {
            (place.path("src"), place.path("share/to"))
        } else {
            (place.path("share/src"), place.path("back"))
        };
        let to = if put { "to" } else { "back" };
        for dir in [&from, &at] {
            fs::create_dir_all(dir).unwrap();
        }
        let big = noise(3, 3_000_000);
        for (name, theirs) in [("newer", "their"), ("older", "their"), ("same", "ours!")] {
            fs::write(from.join(name), "ours!").unwrap();
            fs::write(at.join(name), theirs).unwrap();
        }
        fs::write(from.join("big"), &big).unwrap();
        fs::write(at.join("big"), &big).unwrap();
        set(&from.join("newer"), old);
        set(&at.join("older"), old);
        set(&at.join("same"), old);
        set(&at.join("big"), old);
        let read = |name: &str| fs::read_to_string(at.join(name)).unwrap();

        let out = copy(&place, &server, put, &["--json", "--ignore-existing"], to);
        assert_eq!(code(&out), 0, "{}", printed(&out));
        assert_eq!(json(&out)["files"]["skipped"], 4, "put: {put}");
        assert_eq!(json(&out)["warnings"], Value::Array(Vec::new()));
        assert_eq!(read("older"), "their");

        let out = copy(&place, &server, put, &["--json", "--checksum", "-n"], to);
        let plan = json(&out)["plan"].to_string();
        assert_eq!(plan.matches("\"compare\"").count(), 4, "{plan}");

        let out = copy(&place, &server, put, &["--json", "-u", "-c"], to);
        assert_eq!(code(&out), 0, "{}", printed(&out));
        // The newer one stays; of the others only the one that differs is sent.
        assert_eq!(
            (read("newer"), read("older")),
            ("their".into(), "ours!".into())
        );
        assert_eq!(json(&out)["bytes_payload"], 5, "put: {put}");
        assert_eq!(json(&out)["files"]["skipped"], 3, "put: {put}");
        let time = |dir: &Path| fs::metadata(dir.join("big")).unwrap().modified().unwrap();
        assert_eq!(
            time(&at),
            time(&from),
            "the time is set where content was the same"
        );
    }
}

#[test]
fn a_list_has_what_is_sent() {
    let place = Place::new();
    tree(&place.path("src"));
    let server = place.serve(&["--allow", "any"]);
    let to = server.to("to/");
    let args = ["cp", "--trust-any", "--files-from", "-", "-0", "src/", &to];
    let mut client = place.command(&args).stdin(Stdio::piped()).spawn().unwrap();
    let list = b"./deep\0./deep/er/c.txt\0a.bam\0";
    client.stdin.take().unwrap().write_all(list).unwrap();
    let out = client.wait_with_output().unwrap();
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let expected = ["a.bam", "deep", "deep/er", "deep/er/c.txt"];
    assert_eq!(files(&place.path("share/to")), expected);
    fs::write(place.path("list"), "a.bam\n../secret\nnone\n").unwrap();
    let to = server.to("two/");
    let args = [
        "cp",
        "--trust-any",
        "--json",
        "--files-from",
        "list",
        "src/",
        &to,
    ];
    let out = place.run(&args);
    assert_eq!(code(&out), 5, "{}", printed(&out));
    assert_eq!(json(&out)["failures"].as_array().unwrap().len(), 2);
    assert_eq!(files(&place.path("share/two")), ["a.bam"]);
}

#[test]
fn both_ends_report_their_resources_and_policies_are_applied() {
    let place = Place::new();
    fs::create_dir_all(place.path("src")).unwrap();
    fs::create_dir_all(place.path("share/src")).unwrap();
    for dir in ["src", "share/src"] {
        fs::write(place.path(dir).join("f"), noise(1, 4_000_000)).unwrap();
    }
    let server = place.serve(&["--allow", "any", "--max-rate", "2Gbit"]);
    for put in [true, false] {
        let flags = ["--json", "--policy", "low", "--max-rate", "100Mbit"];
        let out = copy(&place, &server, put, &flags, "low");
        assert_eq!(code(&out), 0, "{}", printed(&out));
        let word = json(&out);
        for end in ["sender", "receiver"] {
            let rss = word[end]["max_rss_bytes"].as_u64();
            assert!(rss.is_some_and(|n| n > 1 << 20), "{end}: {word}");
            assert!(word[end]["cpu_seconds"].as_f64().is_some(), "{end}: {word}");
        }
        // 32 Mbit at 100 Mbit/s: the rate binds whichever end sends.
        assert!(
            word["goodput_bps"].as_f64().unwrap() <= 1.0e8,
            "put: {put}: {word}"
        );
        let out = copy(
            &place,
            &server,
            put,
            &["--json", "--policy", "high"],
            "high",
        );
        assert_eq!(code(&out), 15, "{}", printed(&out));
        assert!(
            printed(&out).contains("--max-policy high"),
            "{}",
            printed(&out)
        );
    }
    let server = place.serve_at("127.0.0.1:0", &["--allow", "any", "--max-policy", "high"]);
    for put in [true, false] {
        let out = copy(&place, &server, put, &["--policy", "high", "-v"], "high");
        assert_eq!(code(&out), 0, "{}", printed(&out));
        assert!(printed(&out).contains("receiver: "), "{}", printed(&out));
    }
}

#[test]
fn a_limit_of_time_ends_it_and_it_goes_on_later() {
    let place = Place::new();
    fs::write(place.path("f"), noise(1, 60_000_000)).unwrap();
    let server = place.serve(&["--allow", "any"]);
    let to = server.to("");
    // 4.8 s of bytes in 3 s.
    let limited = [
        "cp",
        "--trust-any",
        "--json",
        "--max-rate",
        "100Mbit",
        "--max-time",
        "3s",
    ];
    let out = place.run(&[&limited[..], &["f", &to]].concat());
    assert_eq!(code(&out), 19, "{}", printed(&out));
    assert!(printed(&out).contains("--max-time"), "{}", printed(&out));
    assert_eq!(json(&out)["exit"]["name"], "limit");
    let out = place.run(&["cp", "--trust-any", "--json", "f", &to]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert!(
        json(&out)["resumed_bytes"].as_u64().unwrap() > 0,
        "{}",
        printed(&out)
    );
}

#[test]
fn a_section_for_a_host_holds_there_alone() {
    let place = Place::new();
    fs::create_dir_all(place.path("config/farhaul")).unwrap();
    let text = "[cp]\nmax-rate = '3Gbit'\n[host.'127.0.*']\nexclude = ['*.tmp']\nmax-rate = '4Gbit'\n\
                [host.'127.*']\nmax-rate = '5Gbit'\npolicy = 'low'\n";
    fs::write(place.path("config/farhaul/config.toml"), text).unwrap();
    tree(&place.path("src"));
    let server = place.serve(&["--allow", "any"]);
    let out = copy(&place, &server, true, &[], "to");
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert!(!files(&place.path("share/to")).contains(&"a.tmp".into()));
    let out = place.run(&["config", "show", "127.0.0.1"]);
    let shown = String::from_utf8_lossy(&out.stdout).into_owned();
    for (name, line) in [
        ("cp.max-rate = 4Gbit", 5),
        ("cp.policy = low", 8),
        ("cp.exclude = *.tmp", 4),
        ("bench.policy = low", 8),
    ] {
        let reported = shown.lines().find(|l| l.starts_with(name));
        let reported = reported.unwrap_or_else(|| panic!("{name}: {shown}"));
        assert!(
            reported.ends_with(&format!("config.toml:{line}")),
            "{reported}"
        );
    }
    let out = place.run(&["config", "show", "localhost"]);
    let shown = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        shown.contains("cp.max-rate = 3Gbit") && !shown.contains("policy"),
        "{shown}"
    );
}

#[test]
fn a_second_run_reads_nothing_and_checksum_compares() {
    let place = Place::new();
    fs::create_dir_all(place.path("src/deep")).unwrap();
    fs::write(place.path("src/small"), "small").unwrap();
    fs::write(place.path("src/deep/big"), vec![7; 3 << 20]).unwrap();
    let server = place.serve(&["--allow", "any"]);
    for put in [true, false] {
        let far = server.to("to/");
        let (source, to) = if put {
            ("src/", &far[..])
        } else {
            (&far[..], "got/")
        };
        let run = |flags: &[&str]| {
            let mut args = vec!["cp", "--trust-any", "--json"];
            args.extend(flags);
            args.extend([source, to]);
            let out = place.run(&args);
            assert_eq!(code(&out), 0, "{}", printed(&out));
            json(&out)
        };
        assert_eq!(run(&[])["files"]["sent"], 2);
        // An existing file is known by its size and time, so neither content nor a digest travels.
        let there = place.path(if put { "share/to" } else { "got" });
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(there.join("small"), mode).unwrap();
        let again = run(&[]);
        assert_eq!(
            (&again["files"]["skipped"], &again["bytes_payload"]),
            (&2.into(), &0.into())
        );
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode();
        let source = place.path(if put { "src/small" } else { "share/to/small" });
        assert_eq!(
            mode(there.join("small")),
            mode(source),
            "permissions are compared"
        );
        // Other content of the same size and time is found by comparing.
        for name in ["small", "deep/big"] {
            let file = there.join(name);
            let time = fs::metadata(&file).unwrap().modified().unwrap();
            let mut content = fs::read(&file).unwrap();
            content[0] ^= 1;
            fs::write(&file, content).unwrap();
            set(&file, time);
        }
        assert_eq!(
            run(&[])["files"]["skipped"],
            2,
            "nobody reads what looks unchanged"
        );
        let plan = run(&["-n"]);
        assert_eq!(
            plan["plan"].to_string().matches("\"keep\"").count(),
            3,
            "{plan}"
        );
        assert_eq!(run(&["--checksum"])["files"]["sent"], 2);
        assert_eq!(run(&["--checksum"])["files"]["skipped"], 2);
    }
}

#[test]
fn lists_may_come_from_other_systems_and_from_find() {
    let place = Place::new();
    tree(&place.path("src"));
    let server = place.serve(&["--allow", "any"]);
    for (name, list) in [
        ("crlf", &b"a.bam\r\n.//deep/er//c.txt\r\n"[..]),
        ("bom", b"\xef\xbb\xbfa.bam\n./deep/./er/c.txt\n"),
    ] {
        fs::write(place.path("list"), list).unwrap();
        let to = server.to(&format!("{name}/"));
        let out = place.run(&["cp", "--trust-any", "--files-from", "list", "src/", &to]);
        assert_eq!(code(&out), 0, "{}", printed(&out));
        let expected = ["a.bam", "deep", "deep/er", "deep/er/c.txt"];
        assert_eq!(files(&place.path("share").join(name)), expected);
    }
    fs::write(place.path("patterns"), b"\xef\xbb\xbf*.tmp\r\n").unwrap();
    fs::write(place.path("src/trail "), "x").unwrap();
    fs::write(place.path("src/run{1,2}"), "x").unwrap();
    fs::write(place.path("src/run1"), "x").unwrap();
    let to = server.to("some/");
    let flags = [
        "--exclude-from",
        "patterns",
        "--exclude",
        "trail ",
        "--exclude",
        "run{1,2}",
    ];
    let out = place.run(&[&["cp", "--trust-any"][..], &flags, &["src/", &to]].concat());
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let there = files(&place.path("share/some"));
    assert!(there.iter().any(|name| name == "run1"), "{there:?}");
    for left_out in ["a.tmp", "trail ", "run{1,2}"] {
        assert!(there.iter().all(|name| name != left_out), "{there:?}");
    }
    let to = server.to("none/");
    let mut closed = place.command(&["cp", "--trust-any", "--files-from", "-", "src/", &to]);
    let out = closed.stdin(Stdio::null()).output().unwrap();
    assert_eq!(code(&out), 2, "{}", printed(&out));
    assert!(!place.path("share/none").exists());
}

#[test]
fn patterns_of_rsync_choose_what_they_choose_there() {
    let place = Place::new();
    tree(&place.path("src"));
    let server = place.serve(&["--allow", "any"]);
    let all = ["deep", "deep/b.bam", "deep/er", "deep/er/c.txt"];
    fs::write(place.path("rules"), "+ deep/***\n- *\n").unwrap();
    let cases: [(&[&str], &[&str]); 4] = [
        (&["--exclude-from", "rules"], &all),
        (&["-f", "+ deep/***", "--filter=- *"], &all),
        (
            &["--include=*/", "--include=*.txt", "--exclude=*"],
            &["deep", "deep/er", "deep/er/c.txt", "logs"],
        ),
        (
            &[
                "--exclude=logs/***",
                "--exclude=a.*",
                "--exclude",
                "- deep/er",
            ],
            &["deep", "deep/b.bam"],
        ),
    ];
    for (i, (flags, expected)) in cases.iter().enumerate() {
        let to = format!("rules{i}");
        let out = copy(&place, &server, true, flags, &to);
        assert_eq!(code(&out), 0, "{flags:?}: {}", printed(&out));
        assert!(!printed(&out).contains("hint"), "{}", printed(&out));
        assert_eq!(files(&place.path("share").join(to)), *expected, "{flags:?}");
    }
    let out = copy(&place, &server, true, &["--exclude", "er/c.txt"], "hint");
    let told = printed(&out).contains("write '**/er/c.txt', else /er/c.txt");
    assert!(told && code(&out) == 0, "{}", printed(&out));
    // A pattern with an o is no option of ssh.
    let out = copy(&place, &server, true, &["--exclude", "- *.o"], "objects");
    assert_eq!(code(&out), 0, "{}", printed(&out));
    for (flags, text) in [
        (&["-x"][..], "--one-file-system is for sending"),
        (&["-f", ":- .gitignore"], "no rules from the folders"),
        (
            &["-av", "--filter=merge rules"],
            "write --exclude-from FILE",
        ),
        (&["-f", "!"], "--exclude GLOB for '- GLOB'"),
    ] {
        let out = copy(&place, &server, false, flags, "to");
        assert!(printed(&out).contains(text), "{}", printed(&out));
        assert_eq!(code(&out), 2, "{}", printed(&out));
    }
}

#[test]
fn patterns_to_include_come_from_files_and_no_pattern_is_not_everything() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    fs::create_dir(place.path("d")).unwrap();
    for name in ["a.bam", "b.txt", "secret"] {
        fs::write(place.path("d").join(name), name).unwrap();
    }
    fs::write(place.path("list"), "\u{feff}# wanted\r\n*.bam\r\n\n*.txt\n").unwrap();
    let to = server.to("to/");
    let out = place.run(&["cp", "--trust-any", "--include-from", "list", "d/", &to]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let there = fs::read_dir(place.path("share/to")).unwrap();
    let mut there: Vec<_> = there.map(|e| e.unwrap().file_name()).collect();
    there.sort();
    assert_eq!(there, ["a.bam", "b.txt"]);
    for nothing in ["", "# not yet\n", "\n  \n"] {
        fs::write(place.path("list"), nothing).unwrap();
        let out = place.run(&["cp", "--include-from", "list", "--delete", "d/", &to]);
        assert_eq!(code(&out), 2, "{nothing:?}: {}", printed(&out));
        assert!(printed(&out).contains("no pattern"), "{}", printed(&out));
    }
}
