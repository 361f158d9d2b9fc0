//! Sequences of a lying peer, and tests that the other end bears them.

use std::{
    fs,
    path::Path,
    sync::{Mutex, PoisonError},
};

use crate::{
    HEAP,
    peer::{Frame, Victim},
};

/// Bytes that a session may hold.
const MOST: usize = 64 << 20;
const MIB: u64 = 1 << 20;

/// Runs one sequence at a time; the heap at its peak, beyond what was there, must stay below [`MOST`].
fn bounded(play: impl FnOnce(&Path) -> Victim) -> Victim {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let tmp = tempfile::tempdir().unwrap();
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let victim = play(tmp.path());
    // Workers of the sequence before may still give back what they hold.
    let held = HEAP.peak_usage().saturating_sub(before);
    let closed = victim.line.closed.as_ref();
    assert!(
        held < MOST,
        "{} bytes said: {held} held, {closed:?}",
        victim.fed
    );
    victim
}

/// Says the same until it is held back, the session is closed, or `times` are over.
fn repeat(victim: &mut Victim, times: usize, body: &[u8]) {
    for _ in 0..times {
        if !victim.send(body) {
            return;
        }
    }
}

/// A file of `size` bytes in which nothing is stored.
fn sparse(path: &Path, size: u64) {
    fs::File::create(path).unwrap().set_len(size).unwrap();
}

/// A server that sends the one file `f` of `size` bytes, all of them requested.
fn sends(dir: &Path, size: u64) -> Victim {
    sparse(&dir.join("f"), size);
    let mut victim = Victim::server(dir, true, false);
    victim.until(4);
    // The folder itself is entry 0.
    assert!(victim.send(&Frame::of(6).n(2).range(0, size).0));
    victim.until(8);
    victim
}

/// A path of about 4,000 bytes, and the folders it leads through made in `dir`.
fn deep(dir: &Path) -> Vec<u8> {
    let name = "d".repeat(199);
    let path = vec![name; 20].join("/");
    // Longer than the kernel takes at once.
    let mut at = dir.to_path_buf();
    for part in path.split('/').take(19) {
        at.push(part);
    }
    fs::create_dir_all(&at).unwrap();
    path.into_bytes()
}

#[test]
fn values_of_blocks_are_sent_as_they_are_read() {
    let mut victim = bounded(|dir| {
        let mut victim = sends(dir, 100 << 30);
        for _ in 0..100 {
            repeat(&mut victim, 1, &Frame::of(11).n(1).0);
        }
        victim
    });
    // Nobody asks twice.
    assert_eq!(victim.line.closed.take().unwrap().0, 20);
    let mut victim = bounded(|dir| {
        let mut victim = sends(dir, 100 << 30);
        assert!(victim.send(&Frame::of(11).n(1).0));
        assert!(
            victim.line.written.len() < 2 << 20,
            "{}",
            victim.line.written.len()
        );
        victim
    });
    let mut reported = 0;
    while reported < 100 << 10 {
        for body in victim.until(12) {
            reported += (body.len() - 3) / 32;
        }
        victim.turn();
    }
}

#[test]
fn a_folder_that_is_listed_again_and_again() {
    let victim = bounded(|dir| {
        let path = deep(dir);
        let path = &path[..path.len() - 200];
        let mut victim = Victim::server(dir, false, false);
        victim.reads = true;
        let first = |n: u64| Frame::of(4).n(n);
        for n in 0..2_000 {
            let body = first(n * 10).n(10).entry(1, 0, path, 0, 0);
            let body = (1..10).fold(body, |body, _| body.entry(1, path.len(), b"", 0, 0));
            assert!(victim.send(&body.0));
            if n % 16 == 0 {
                victim.settle();
            }
        }
        victim
    });
    assert_eq!(victim.line.closed, None);
}

#[test]
fn names_that_are_long_and_sent_short() {
    bounded(|dir| {
        let path = deep(dir);
        let mut victim = Victim::server(dir, false, false);
        victim.reads = true;
        let count = 7_000;
        let body = Frame::of(4)
            .n(0)
            .n(count)
            .entry(1, 0, &path[..path.len() - 200], 0, 0);
        let shared = path.len() - 200;
        let body = (1..count).fold(body, |body, _| body.entry(1, shared, b"", 0, 0));
        victim.send(&body.0);
        victim
    });
}

#[test]
fn entries_that_are_listed_and_never_over() {
    for (long, size) in [(true, 1 << 30), (false, 1 << 30), (false, 1)] {
        let victim = bounded(|dir| {
            let path = deep(dir);
            let names = if long { &path[..path.len() - 190] } else { b"" };
            let mut victim = Victim::server(dir, false, false);
            victim.reads = true;
            for n in 0..65_536u64 {
                let name = [names, format!("{n:06}").as_bytes()].concat();
                let body = Frame::of(4).n(n).n(1).entry(0, 0, &name, size, 0);
                if !victim.send(&body.0) {
                    break;
                }
            }
            victim
        });
        assert_eq!(victim.line.closed.unwrap().0, 20);
    }
}

#[test]
fn the_same_content_wanted_again_and_again() {
    let size = 64 * MIB;
    for repair in [false, true] {
        let victim = bounded(|dir| {
            let mut victim = sends(dir, size);
            victim.reads = true;
            let body = if repair {
                Frame::of(13).n(1)
            } else {
                Frame::of(6).n(2)
            };
            repeat(&mut victim, 20_000, &body.range(0, size).0);
            victim.settle();
            victim
        });
        assert_eq!(victim.line.closed.unwrap().0, 20);
        assert!(victim.line.sent <= 4 * size);
    }
}

#[test]
fn content_wanted_in_small_pieces() {
    let size = 64 * MIB;
    let victim = bounded(|dir| {
        let mut victim = sends(dir, size);
        victim.reads = true;
        let pieces = 20_000;
        for _ in 0..100 {
            let body = Frame::of(6).n(2).n(pieces).n(0).n(1);
            let body = (1..pieces).fold(body, |body, _| body.n(1).n(1));
            repeat(&mut victim, 1, &body.0);
        }
        victim
    });
    assert_eq!(victim.line.closed.unwrap().0, 20);
}

#[test]
fn small_files_wanted_again_and_again() {
    let victim = bounded(|dir| {
        for n in 0..2_000 {
            fs::write(dir.join(n.to_string()), "x").unwrap();
        }
        let mut victim = Victim::server(dir, true, false);
        let mut listed = 0;
        while listed < 2_001 {
            for body in victim.until(4) {
                let mut r = farhaul_core::codec::Reader::new(&body);
                listed = r.varint().unwrap() + r.varint().unwrap();
            }
        }
        victim.reads = true;
        repeat(
            &mut victim,
            20_000,
            &Frame::of(6).n(2_001).range(0, 2_000).0,
        );
        victim.settle();
        victim
    });
    assert_eq!(victim.line.closed.unwrap().0, 20);
    assert!(victim.line.sent <= 8_000);
}

#[test]
fn answers_that_nobody_reads() {
    let victim = bounded(|dir| {
        let path = deep(dir);
        fs::create_dir(dir.join("f")).unwrap();
        let mut victim = Victim::server(dir, false, false);
        for n in 0..100_000u64 {
            // A folder has this name: each is reported as failed, with its name.
            let body = Frame::of(4).n(2 * n).n(2).entry(0, 0, b"f", 5, 5).entry(
                0,
                0,
                &path[..path.len() - 200],
                5,
                5,
            );
            if !victim.send(&body.0) {
                break;
            }
        }
        assert_eq!(victim.line.closed, None);
        let written = victim.line.written.len();
        assert!(written < 2 << 20, "{written}");
        // Once they are read it goes on.
        victim.reads = true;
        for _ in 0..10_000 {
            victim.turn();
        }
        let word = Frame::of(9).n((1 << 62) - 1).byte(5).byte(0).prefixed(b"x");
        assert!(victim.send(&word.0), "{:?}", victim.line.closed);
        victim
    });
    assert_eq!(victim.line.closed, None);
}

#[test]
fn a_plan_that_nobody_reads() {
    for get in [true, false] {
        let victim = bounded(|dir| {
            let path = deep(dir);
            for n in 0..20_000 {
                fs::write(dir.join(format!("{n}{}", "n".repeat(200))), "").unwrap();
            }
            let mut victim = Victim::server(dir, get, true);
            if get {
                while victim.line.written.len() < 1 << 20 {
                    victim.turn();
                    std::thread::yield_now();
                }
                for _ in 0..100 {
                    victim.turn();
                }
            } else {
                let link = Frame(Vec::new()).entry(2, 0, &path, 0, 0).prefixed(b"/").0;
                for n in 0..100_000u64 {
                    if !victim.send(&Frame::of(4).n(n).n(1).raw(&link).0) {
                        break;
                    }
                }
            }
            victim
        });
        assert_eq!(victim.line.closed, None);
        assert!(
            victim.line.written.len() < 2 << 20,
            "{}",
            victim.line.written.len()
        );
    }
}

#[test]
fn messages_about_files_that_failed() {
    for get in [true, false] {
        let words = vec![7; 60_000];
        let long = bounded(|dir| {
            fs::write(dir.join("f"), "f").unwrap();
            let mut victim = Victim::server(dir, get, false);
            victim.reads = true;
            let send = |words: &[u8]| {
                let frame = if get {
                    Frame::of(10).n(0)
                } else {
                    Frame::of(9).n((1 << 62) - 1)
                };
                let frame = frame.byte(5);
                let frame = if get { frame } else { frame.byte(0) };
                frame.prefixed(words).0
            };
            repeat(&mut victim, 5_000, &send(&words[..8 << 10]));
            assert_eq!(victim.line.closed, None);
            repeat(&mut victim, 5_000, &send(&words));
            victim
        });
        assert_eq!(long.line.closed.unwrap().0, 20);
    }
}

#[test]
fn a_byte_of_every_block() {
    let victim = bounded(|dir| {
        let mut victim = Victim::client(&dir.join("to"));
        victim.reads = true;
        let size = 1 << 40;
        assert!(victim.send(&Frame::of(4).n(0).n(1).entry(0, 0, b"f", size, 0).0));
        for block in 0..size / MIB {
            if let Err(e) = victim.place(block * MIB + 5, b"x") {
                victim.line.closed = Some((20, e.0));
                break;
            }
            victim.turn();
        }
        victim
    });
    assert!(victim.line.closed.is_some());
}

#[test]
fn a_byte_of_each_of_many_files() {
    let victim = bounded(|dir| {
        let mut victim = Victim::client(&dir.join("to"));
        victim.reads = true;
        let size = 2 * MIB;
        for n in 0..5_000 {
            let name = format!("{n:06}");
            let body = Frame::of(4).n(n).n(1).entry(0, 0, name.as_bytes(), size, 0);
            assert!(victim.send(&body.0));
            if let Err(e) = victim.place(n * size + 5, b"x") {
                victim.line.closed = Some((20, e.0));
                break;
            }
            victim.settle();
        }
        victim
    });
    assert!(victim.line.closed.is_some());
}

#[test]
fn holes_in_small_pieces() {
    for step in [2, MIB] {
        let victim = bounded(|dir| {
            let mut victim = Victim::client(&dir.join("to"));
            victim.reads = true;
            assert!(victim.send(&Frame::of(4).n(0).n(1).entry(0, 0, b"f", 1 << 60, 0).0));
            for n in 0..1_000u64 {
                let pieces = 5_000;
                let body = Frame::of(7).n(pieces).n(n * pieces * step).n(1);
                let body = (1..pieces).fold(body, |body, _| body.n(step - 1).n(1));
                repeat(&mut victim, 1, &body.0);
            }
            victim
        });
        assert_eq!(victim.line.closed.unwrap().0, 20);
    }
}

#[test]
fn a_file_of_holes_whose_root_differs() {
    let victim = bounded(|dir| {
        let mut victim = Victim::client(&dir.join("to"));
        let blocks = 150_000u64;
        let size = blocks * MIB;
        assert!(victim.send(&Frame::of(4).n(0).n(1).entry(0, 0, b"f", size, 0).0));
        assert!(victim.send(&Frame::of(7).range(0, size).0));
        assert!(victim.send(&Frame::of(8).n(1).n(1).raw(&[9; 32]).0));
        victim.until(11);
        // The holes are the same, but for two; all are then hashed as they are stored.
        let hole = b"farhaul: this block is a hole...";
        for first in (0..blocks).step_by(1_000) {
            let body = Frame::of(12).n(0).n(first).n(1_000);
            let body = (0..1_000).fold(body, |body, i| match first + i {
                7 | 149_999 => body.raw(&[1; 32]),
                _ => body.raw(hole),
            });
            assert!(victim.send(&body.0));
        }
        let wanted = victim.until(13);
        let expected = Frame(Vec::new())
            .n(0)
            .n(2)
            .n(7 * MIB)
            .n(MIB)
            .n(149_991 * MIB)
            .n(MIB);
        assert_eq!(wanted, [expected.0]);
        for _ in 0..100 {
            victim.turn();
        }
        victim
    });
    assert_eq!(victim.line.closed, None);
}

#[test]
fn a_filter_of_very_many_patterns() {
    for line in ["a\n", "*\n", "**/*?[a-z]*[b-y]?*/**\n", "[a-z]?*é\n"] {
        let lines = line.repeat((16 << 10) / line.len());
        bounded(|dir| {
            fs::write(dir.join("f"), "f").unwrap();
            let mut victim = Victim::filtering(dir, lines.as_bytes());
            victim.settle();
            victim
        });
    }
    let victim = bounded(|dir| Victim::filtering(dir, "*\n".repeat(30 << 10).as_bytes()));
    assert_eq!(victim.line.closed.unwrap().0, 20);
}

#[test]
fn reads_that_are_never_released() {
    let mut victim = bounded(|dir| {
        let path = deep(dir);
        sparse(&dir.join("f"), 1 << 43);
        let mut victim = Victim::reading(dir);
        for id in 1..=1_024 {
            let path = if id % 2 == 0 { &b"f"[..] } else { &path };
            let read = Frame::of(38).n(id).prefixed(b"s").prefixed(path);
            assert!(victim.send(&read.n(0).n(1 << 43).0));
            victim.settle();
        }
        victim
    });
    assert_eq!(victim.line.closed, None);
    let one_more = Frame::of(38).n(1_025 + 1_024).prefixed(b"s").prefixed(b"f");
    // Those of the path where nothing is are over.
    repeat(&mut victim, 1, &one_more.n(0).n(1).0);
    assert_eq!(victim.line.closed, None);
}

#[test]
fn copies_within_a_share_that_nobody_waits_for() {
    let victim = bounded(|dir| {
        let path = deep(dir);
        sparse(&dir.join("f"), 1 << 40);
        let mut victim = Victim::reading(dir);
        for id in 1..=1_024 {
            let from = if id % 2 == 0 { &b"f"[..] } else { &path };
            let copy = Frame::of(44).n(id).prefixed(b"s").prefixed(from);
            assert!(victim.send(&copy.byte(7).prefixed(&path).0));
        }
        let open = fs::read_dir("/proc/self/fd").unwrap().count();
        assert!(open < 100, "{open} files are open");
        victim.settle();
        let answers = [45, 42].map(|kind| victim.received(kind).len());
        assert!(answers[0] > 0, "they are made: {answers:?}");
        victim
    });
    assert_eq!(victim.line.closed, None);
}
