//! Copies and servers under limits of a process, signals, and questions at a terminal.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, ChildStdin, Command, Output, Stdio},
    sync::mpsc,
    thread,
};

use crate::place::{Place, Served, await_part, code, kill, noise, printed};

const FARHAUL: &str = env!("CARGO_BIN_EXE_farhaul");
const BIG: usize = 12 << 20;

/// A slow copy of `big` that `start` begins, and is under way.
fn under_way(place: &Place, server: &Served, start: &str) -> Child {
    fs::write(place.path("big"), noise(5, BIG)).expect("a file");
    let to = server.to("");
    let script = format!("{start} exec {FARHAUL} cp --trust-any --max-rate 40Mbit big {to}");
    let mut child = place.script(&script).spawn().expect("it starts");
    await_part(&place.path("share"), 1 << 20, &mut child);
    child
}

#[test]
fn a_signal_that_was_ignored_at_the_start_ends_neither_a_copy_nor_a_server() {
    let place = Place::new();
    let share = format!("s={}:rw", place.path("share").display());
    let server = format!(
        "trap '' HUP INT TERM; exec {FARHAUL} serve --listen 127.0.0.1:0 --share {share} --allow any"
    );
    let server = Place::serve_by(place.script(&server));
    let client = under_way(&place, &server, "trap '' HUP INT TERM;");
    for signal in ["-HUP", "-INT", "-TERM"] {
        kill(client.id(), signal);
        server.signal(signal);
    }
    let out = client.wait_with_output().expect("it ends");
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(
        fs::read(place.path("share/big")).expect("it is there"),
        noise(5, BIG)
    );
}

#[test]
fn signals_that_ask_for_nothing_end_nothing_and_usr1_prints_a_line_of_progress() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    let client = under_way(&place, &server, "");
    for signal in ["USR1", "USR2", "ALRM", "VTALRM", "PROF", "XFSZ", "PIPE"] {
        let signal = format!("-{signal}");
        kill(client.id(), &signal);
        server.signal(&signal);
    }
    let out = client.wait_with_output().expect("it ends");
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let said = printed(&out);
    assert!(said.contains(" of 12.0 MiB"), "{said}");
}

#[test]
fn a_limit_of_processor_time_ends_a_copy_as_termination_does() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    let client = under_way(&place, &server, "");
    // The kernel repeats it every second.
    kill(client.id(), "-XCPU");
    kill(client.id(), "-XCPU");
    let out = client.wait_with_output().expect("it ends");
    assert_eq!(code(&out), 143, "{}", printed(&out));
    assert!(printed(&out).contains("it continues"), "{}", printed(&out));
    assert!(server.says("interrupted").ends_with("(143)"));
}

#[test]
fn a_file_that_is_longer_than_the_server_may_write_fails_alone() {
    let place = Place::new();
    let limit = ["--fsize=1000000", FARHAUL];
    let mut limited = place.command_of(Path::new("prlimit"), &limit);
    limited.args(place.serving("any"));
    let server = Place::serve_by(limited);
    fs::create_dir(place.path("src")).expect("a folder");
    fs::write(place.path("src/a"), noise(5, BIG)).expect("a file");
    fs::write(place.path("src/b"), "short").expect("a file");
    let to = server.to("");
    for attempt in 0..2 {
        let out = place.run(&["cp", "--trust-any", "src/", &to]);
        assert_eq!(code(&out), 4, "{attempt}: {}", printed(&out));
        assert!(
            printed(&out).contains("a: File too large"),
            "{}",
            printed(&out)
        );
        assert!(place.path("share/b").exists());
    }
}

/// A copy of `what`, where no more descriptors than these can be open.
fn with_descriptors(place: &Place, most: u32, what: &str, to: &str) -> Output {
    let script = format!("ulimit -n {most}; exec {FARHAUL} cp --trust-any {what} {to}");
    place.script(&script).output().expect("the shell starts")
}

#[test]
fn more_typed_sources_than_descriptors_are_copied() {
    let place = Place::new();
    for i in 0..200 {
        let dir = place.path(&format!("src/d{i}"));
        fs::create_dir_all(&dir).expect("a folder");
        fs::write(dir.join(format!("f{i}")), i.to_string()).expect("a file");
    }
    let server = place.serve(&["--allow", "any"]);
    for (what, into) in [("src/*", "folders"), ("src/*/*", "files")] {
        let to = server.to(&format!("{into}/"));
        let out = with_descriptors(&place, 64, what, &to);
        assert_eq!(code(&out), 0, "{what}: {}", printed(&out));
    }
    for i in 0..200 {
        let there = [format!("folders/d{i}/f{i}"), format!("files/f{i}")];
        for path in there {
            let path = place.path("share").join(path);
            assert_eq!(
                fs::read_to_string(&path).expect("it is there"),
                i.to_string()
            );
        }
    }
}

#[test]
fn a_soft_limit_of_descriptors_is_raised() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    fs::write(place.path("f"), "f").expect("a file");
    // Too few for a key, a socket and a file.
    let script = format!(
        "ulimit -Sn 8; exec {FARHAUL} cp --trust-any f {}",
        server.to("")
    );
    let out = place.script(&script).output().expect("the shell starts");
    assert_eq!(code(&out), 0, "{}", printed(&out));
}

#[test]
fn many_open_files_and_folders_need_few_descriptors_at_both_ends() {
    let place = Place::new();
    for i in 0..60 {
        let dir = place.path(&format!("src/d{i}"));
        fs::create_dir_all(&dir).expect("a folder");
        fs::write(dir.join("f"), noise(i, 300_000)).expect("a file");
    }
    let share = format!("s={}:rw", place.path("share").display());
    let server = format!(
        "ulimit -n 64; exec {FARHAUL} serve --listen 127.0.0.1:0 --share {share} --allow any"
    );
    let server = Place::serve_by(place.script(&server));
    let out = with_descriptors(&place, 64, "src/", &server.to("there/"));
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let out = with_descriptors(&place, 64, &server.to("there/"), "back/");
    assert_eq!(code(&out), 0, "{}", printed(&out));
    for i in 0..60 {
        let back = fs::read(place.path(&format!("back/d{i}/f"))).expect("it is back");
        assert!(back == noise(i, 300_000), "{i}");
    }
}

/// A shell at a terminal.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: mpsc::Receiver<u8>,
    shown: String,
}

impl Terminal {
    fn run(place: &Place, line: &str) -> Option<Self> {
        let mut script: Command =
            place.command_of(Path::new("script"), &["-qec", line, "/dev/null"]);
        let mut child = match script.stdin(Stdio::piped()).spawn() {
            Ok(child) => child,
            Err(e) => {
                println!("skipped: script: {e}");
                return None;
            }
        };
        let keys = child.stdin.take().expect("piped");
        let shows = child.stdout.take().expect("piped");
        let (show, screen) = mpsc::channel();
        thread::spawn(move || {
            for byte in BufReader::new(shows).bytes().map_while(Result::ok) {
                let _nobody_looks = show.send(byte);
            }
        });
        let shown = String::new();
        Some(Self {
            child,
            keys,
            screen,
            shown,
        })
    }

    fn shows(&mut self, words: &str) {
        while !self.shown.contains(words) {
            let byte = self.screen.recv();
            self.shown
                .push(byte.unwrap_or_else(|_| panic!("{}", self.shown)).into());
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it reads");
    }

    /// Exit code of the program.
    fn code(mut self) -> Option<i32> {
        // `keys` stays open: its end would be the end of the terminal's input.
        let code = self.child.wait().expect("our own child").code();
        println!(
            "{}{}",
            self.shown,
            self.screen.iter().map(char::from).collect::<String>()
        );
        code
    }
}

const QUESTION: &str = "Trust it from now on? [y/N]";

#[test]
fn a_signal_or_the_end_of_the_input_ends_a_question_and_nothing_is_stored() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    fs::write(place.path("f"), "f").expect("a file");
    let line = format!("echo $$ >id; exec {FARHAUL} cp f {}", server.to(""));
    for (keys, signal, expected) in [
        ("\u{3}y\n", None, 130),
        ("\u{4}", None, 15),
        ("n\n", None, 15),
        ("", Some("-TERM"), 143),
        ("", Some("-HUP"), 129),
        ("", Some("-INT"), 130),
    ] {
        let Some(mut terminal) = Terminal::run(&place, &line) else {
            return;
        };
        terminal.shows(QUESTION);
        terminal.press(keys);
        if let Some(signal) = signal {
            let id = fs::read_to_string(place.path("id")).expect("the shell wrote it");
            kill(id.trim().parse().expect("a number"), signal);
        }
        assert_eq!(terminal.code(), Some(expected), "{keys:?} {signal:?}");
        assert!(!place.path("config/farhaul/known_servers").exists());
        assert!(!place.path("share/f").exists());
    }
}

#[test]
fn a_question_is_asked_at_the_terminal_while_the_input_is_a_pipe() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    fs::create_dir(place.path("src")).expect("a folder");
    fs::write(place.path("src/f"), "f").expect("a file");
    let to = server.to("");
    for (line, there) in [
        (
            format!("echo f | {FARHAUL} cp --files-from - src/ {to}"),
            "share/f",
        ),
        (
            format!("echo piped | {FARHAUL} cp - {to}piped"),
            "share/piped",
        ),
    ] {
        let Some(mut terminal) = Terminal::run(&place, &line) else {
            return;
        };
        terminal.shows(QUESTION);
        terminal.press("y\n");
        assert_eq!(terminal.code(), Some(0));
        assert!(place.path(there).exists());
        fs::remove_file(place.path("config/farhaul/known_servers")).expect("it was stored");
    }
}

#[test]
fn a_line_of_known_servers_that_cannot_be_used_is_named_and_the_copy_goes_on() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    fs::write(place.path("f"), "f").expect("a file");
    let file = place.path("config/farhaul/known_servers");
    fs::create_dir_all(place.path("config/farhaul")).expect("a folder");
    fs::write(&file, "# mine\nno key\n").expect("a file");
    let copied = |flags: &[&str]| {
        let to = server.to("");
        let out = place.run(&[&["cp"], flags, &["f", &to]].concat());
        let said = format!("{}:2 is not used", file.display());
        assert!(printed(&out).contains(&said), "{}", printed(&out));
        code(&out)
    };
    assert_eq!(copied(&["--trust-any"]), 0);
    assert_eq!(copied(&[]), 15);
    // Keys stored at the same time by others are not lost.
    let trusts: Vec<_> = (0..16)
        .map(|i| {
            let name = format!("host{i}:1");
            let trust = ["key", "trust", &name, &server.key];
            place.command(&trust).spawn().expect("it starts")
        })
        .collect();
    for trust in trusts {
        let out = trust.wait_with_output().expect("it ends");
        assert_eq!(code(&out), 0, "{}", printed(&out));
    }
    assert_eq!(
        code(&place.run(&["key", "trust", &server.at, &server.key])),
        0
    );
    assert_eq!(copied(&[]), 0);
    let text = fs::read_to_string(&file).expect("it is there");
    assert!(text.starts_with("# mine\nno key\n"), "{text}");
    assert_eq!(text.lines().count(), 2 + 16 + 1, "{text}");
}

#[test]
fn a_home_that_is_no_folder_is_as_none_with_a_warning() {
    let place = Place::new();
    let bare = |args: &[&str], home: &str| {
        let mut command = place.command(args);
        command.env_remove("XDG_CONFIG_HOME").env("HOME", home);
        command.output().expect("the program starts")
    };
    let said = "HOME is not used: /dev/null is no folder";
    let out = bare(&["sim", "--secs", "1"], "/dev/null");
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert!(printed(&out).contains(said), "{}", printed(&out));
    let out = bare(&["key", "show"], "/dev/null");
    assert_eq!(code(&out), 10, "{}", printed(&out));
    assert_eq!(printed(&out).matches(said).count(), 1, "{}", printed(&out));
    assert!(
        printed(&out).contains("names a folder"),
        "{}",
        printed(&out)
    );
}

#[test]
fn too_few_processes_for_threads_are_told_with_the_limit_and_may_be_tried_again() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    fs::write(place.path("f"), "f").expect("a file");
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777));
    open(place.0.path()).expect("its owner");
    let to = server.to("");
    let copied = place.copied_command(&["cp", "--trust-any", "f", &to]);
    let program = copied.get_program().to_string_lossy().into_owned();
    open(Path::new(&program)).expect("its owner");
    fs::write(place.path("share/g"), "g").expect("a file");
    let from = server.to("g");
    // A user of no other processes; the limit does not hold for root. The last ones suffice for a session, and not for what
    // writes.
    let put = (1..=5).map(|most| (most, ["f", &to]));
    let get = (1..=6).map(|most| (most, [&from, "own/g"]));
    for (most, places) in put.chain(get) {
        let most = format!("--nproc={most}");
        let args = [
            "--reuid=3478201",
            "--clear-groups",
            "prlimit",
            &most,
            &program,
        ];
        let args = [&args[..], &["cp", "--trust-any"], &places].concat();
        let mut command = place.command_of(Path::new("setpriv"), &args);
        for folder in ["XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"] {
            command.env(folder, place.path("own"));
        }
        let out = command.output();
        let out = out.expect("setpriv starts");
        if printed(&out).starts_with("setpriv: ") {
            println!("skipped: {}", printed(&out));
            return;
        }
        assert_eq!(code(&out), 11, "{most}: {}", printed(&out));
        assert!(printed(&out).contains("ulimit -u"), "{}", printed(&out));
    }
}

/// A copy whose system calls fail as `inject` says; `None` where they cannot be made to.
fn injected(place: &Place, calls: &str, inject: &str, args: &[&str]) -> Option<Output> {
    let (trace, inject) = (format!("trace={calls}"), format!("inject={calls}:{inject}"));
    let strace = ["-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    let args = [&strace[..], &[FARHAUL, "cp", "--trust-any"], args].concat();
    let out = place.command_of(Path::new("strace"), &args).output();
    let out = out.inspect_err(|e| println!("skipped: strace: {e}")).ok()?;
    if printed(&out).contains("ptrace") {
        println!("skipped: {}", printed(&out));
        return None;
    }
    Some(out)
}

#[test]
fn a_kernel_that_refuses_every_option_of_a_socket_costs_figures_and_no_copy() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    fs::write(place.path("f"), noise(7, 3_000_000)).expect("a file");
    for places in [["f", &server.to("g")], [&server.to("g"), "h"]] {
        let Some(out) = injected(&place, "setsockopt", "error=ENOPROTOOPT", &places) else {
            return;
        };
        assert_eq!(code(&out), 0, "{}", printed(&out));
    }
    assert!(fs::read(place.path("h")).expect("there") == noise(7, 3_000_000));
}

#[test]
fn a_device_that_never_takes_anything_keeps_no_copy_from_its_end() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    fs::write(place.path("f"), "f").expect("a file");
    let args = ["--udp-timeout=2s", "--fallback=never", "f", &server.to("")];
    let calls = "sendmsg,sendmmsg";
    let Some(out) = injected(&place, calls, "error=ENOBUFS", &args) else {
        return;
    };
    assert_eq!(code(&out), 11, "{}", printed(&out));
    let why = "No buffer space available";
    assert!(printed(&out).contains(why), "{}", printed(&out));
}

#[test]
fn a_server_whose_log_nobody_reads_goes_on_answering() {
    let place = Place::new();
    fs::write(place.path("f"), "f").expect("a file");
    let mut server = place.command(&[]);
    let mut server = server
        .args(place.serving("any"))
        .spawn()
        .expect("it starts");
    let log = server.stderr.take().expect("piped");
    rustix::pipe::fcntl_setpipe_size(&log, 4_096).expect("a pipe");
    let mut log = BufReader::new(log);
    let mut line = String::new();
    while !line.starts_with("listening on") {
        line.clear();
        assert!(log.read_line(&mut line).expect("it says where") > 0);
    }
    let at = line.split([' ', '/']).nth(2).expect("an address");
    for attempt in 0..60 {
        let out = place.run(&["cp", "--trust-any", "f", &format!("{at}::s/")]);
        assert_eq!(code(&out), 0, "{attempt}: {}", printed(&out));
    }
    kill(server.id(), "-TERM");
    // A reader who reads again gets all of it.
    let lines = log.lines().map_while(Result::ok).count();
    assert!(lines >= 60, "{lines}");
    assert!(server.wait().expect("our own child").success());
}
