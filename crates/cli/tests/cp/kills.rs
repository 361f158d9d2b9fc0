//! Kills a transfer at random moments at either end; it continues. Five places run side by side,
//! two of them with three parallel sessions. In each the client or the server of one and the same
//! command is killed ten times.

use std::{fs, path::Path, process::Child, thread};

use farhaul_core::rng::Rng;
use serde_json::Value;

use crate::place::{Place, Served, code, noise, part_bytes, pause, printed};

const KILLS: u64 = 10;
const BLOCK: u64 = 1 << 20;
const SIZE: u64 = 160 * BLOCK;
/// Bytes that a kill may cost, and those in flight at this rate on the loopback.
const LOSS: u64 = 64 << 20;

/// Counts of the journal in a folder: runs begun and blocks complete.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Journal {
    runs: u64,
    /// Blocks of the file, however often they are named.
    blocks: u64,
    records: u64,
}

fn journal(dir: &Path) -> Journal {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let name = |e: &fs::DirEntry| e.file_name().to_string_lossy().into_owned();
    let found = entries
        .filter(|e| name(e).starts_with(".farhaul-journal-"))
        .filter_map(|e| fs::read(e.path()).ok());
    let bytes = found.collect::<Vec<_>>().concat();
    let mut journal = Journal::default();
    let mut blocks = std::collections::BTreeSet::new();
    let mut rest = &bytes[..];
    while let Some((len, after)) = rest.split_first_chunk::<4>() {
        let len = u32::from_be_bytes(*len) as usize;
        let Some((body, after)) = after.split_at_checked(len + 8) else {
            break;
        };
        rest = after;
        match body[0] {
            1 => journal.runs += 1,
            // Kind, number and block (varints), 32 bytes, check.
            3 => {
                journal.records += 1;
                blocks.insert(body[2..len - 32].to_vec());
            }
            _ => {}
        }
    }
    journal.blocks = blocks.len() as u64;
    journal
}

/// Kills once the run that follows `before` has begun and noted `more` blocks.
fn kill_when(
    dir: &Path,
    before: Journal,
    more: u64,
    watched: &mut Child,
    victim: Option<&mut Child>,
) {
    loop {
        let now = journal(dir);
        if now.runs > before.runs && now.records >= before.records + more {
            break;
        }
        assert!(
            watched.try_wait().expect("our own child").is_none(),
            "it ended before it could be killed: {before:?}, {now:?}"
        );
        pause();
    }
    let victim = victim.unwrap_or(watched);
    victim.kill().expect("it runs");
    victim.wait().expect("our own child");
}

/// A place in which `put` sends to the server, otherwise from it.
fn prepare(put: bool, source: &Path) -> Place {
    let place = Place::in_memory();
    fs::create_dir(place.path("into")).expect("a folder");
    let from = place.path(if put { "big" } else { "share/big" });
    fs::hard_link(source, &from)
        .or_else(|_| fs::copy(source, &from).map(drop))
        .expect("a source");
    place
}

fn run(seed: u64, put: bool, place: &Place, source: &Path) {
    let mut rng = Rng::new(seed);
    let into = if put { "share" } else { "into" };
    let dir = place.path(into);
    let mut server: Served = place.serve_to_return(&["--allow", "any"]);
    let at = server.at.clone();
    let far = server.to(if put { "" } else { "big" });
    let (a, b) = if put {
        ("big", far.as_str())
    } else {
        (far.as_str(), "into")
    };
    let lanes = if seed > 3 { "3" } else { "1" };
    let args = [
        "cp",
        "--trust-any",
        "--json",
        "--max-rate",
        "800Mbit",
        "-P",
        lanes,
        a,
        b,
    ];
    for kill in 0..KILLS {
        let before = journal(&dir);
        let left = SIZE / BLOCK - before.blocks;
        let more = rng.below(24.min(left / 3) + 1);
        // Blocks of earlier runs are noted again once they have been checked.
        let more = more + if rng.below(2) == 0 { before.blocks } else { 0 };
        let server_dies = rng.below(2) == 0;
        let mut client = place.command(&args).spawn().expect("the program starts");
        if server_dies {
            kill_when(&dir, before, more, &mut client, Some(&mut server.child));
            client.kill().expect("it runs");
            client.wait().expect("our own child");
            server = place.serve_at(&at, &["--allow", "any"]);
        } else {
            kill_when(&dir, before, more, &mut client, None);
        }
        let (stored, kept) = (part_bytes(&dir), journal(&dir).blocks * BLOCK);
        let context = format!("seed {seed}, kill {kill}: {stored} stored, {kept} kept");
        assert!(stored.saturating_sub(kept) < LOSS, "{context}");
        assert!(kept >= before.blocks * BLOCK, "{context}: forgotten");
        assert!(!dir.join("big").exists(), "{context}: named too early");
    }
    let (stored, kept) = (part_bytes(&dir), journal(&dir).blocks * BLOCK);
    let out = place.run(&args);
    assert_eq!(code(&out), 0, "seed {seed}: {}", printed(&out));
    let word: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let number = |key: &str| word[key].as_u64().expect("a number");
    let (sent, resumed) = (number("bytes_payload"), number("resumed_bytes"));
    assert_eq!(sent + resumed, SIZE, "seed {seed}: {word}");
    assert!(resumed >= kept, "seed {seed}: {resumed} of {kept} resumed");
    // What had not been stored was in flight; of the rest little is sent again.
    let again = (sent + stored).saturating_sub(SIZE);
    assert!(
        again < LOSS,
        "seed {seed}: {again} sent again of {stored} stored"
    );
    assert!(
        fs::read(dir.join("big")).expect("a file") == fs::read(source).expect("a file"),
        "seed {seed}"
    );
    let names = fs::read_dir(&dir).expect("a folder").count();
    assert_eq!(names, 1, "seed {seed}: nothing is left behind");
}

#[test]
fn killed_fifty_times_at_either_end_it_continues() {
    let tmp = Place::in_memory();
    let source = tmp.path("source");
    let size = usize::try_from(SIZE).expect("it fits");
    fs::write(&source, noise(1, size)).expect("a file");
    let source = &source;
    let puts = |seed: u64| seed % 2 == 1;
    // All are the same file, and it changes when it gets or loses a name: none goes before the last ends.
    let places: Vec<_> = (1..=5)
        .map(|seed| (seed, prepare(puts(seed), source)))
        .collect();
    thread::scope(|scope| {
        for (seed, place) in &places {
            println!("seed {seed}");
            scope.spawn(move || run(*seed, puts(*seed), place, source));
        }
    });
}
