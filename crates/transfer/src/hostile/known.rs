//! Attacks on other programs that copy files, tried on this one (`docs/security/known-attacks.md`).

use super::*;
use crate::client::Upload;

/// Copies `docs/` into a user's home from a server that lists `entries`. Beside the home is a
/// folder that is nobody's business.
fn fetched(entries: &[(Entry, &[u8])]) -> (tempfile::TempDir, Outcome) {
    let tmp = tempfile::tempdir().unwrap();
    for folder in ["home", "outside"] {
        fs::create_dir(tmp.path().join(folder)).unwrap();
    }
    let from = Remote {
        share: "s".into(),
        path: b"docs/".to_vec(),
    };
    let options = Options {
        sync: false,
        ..Options::default()
    };
    let client = Download::new(&[from], &tmp.path().join("home"), options).unwrap();
    let handle = client.handle();
    let mut victim = Victim::new(client);
    victim.send(&Message::Accepted {
        version: OLDEST,
        one_file: false,
    });
    victim.deliver(0, entries);
    (tmp, handle.outcome().unwrap())
}

#[test]
fn a_link_in_a_list_does_not_lead_what_is_listed_below_it_elsewhere() {
    let evil = || file("d/x", 0o644, b"evil");
    let lies: [&[(Entry, &[u8])]; 6] = [
        &[link("d", "../outside"), evil()],
        &[link("d", "../outside"), dir("d", 0o755), evil()],
        &[dir("d", 0o755), link("d", "../outside"), evil()],
        &[
            dir("d", 0o755),
            link("d", "../outside"),
            dir("d", 0o755),
            evil(),
        ],
        &[dir("e", 0o755), link("d", "e"), evil()],
        &[link("d", "../outside/x"), file("d", 0o644, b"evil")],
    ];
    for entries in lies {
        let (tmp, _) = fetched(entries);
        let outside = fs::read_dir(tmp.path().join("outside")).unwrap();
        assert_eq!(outside.count(), 0, "{entries:?}");
        assert!(!tmp.path().join("home/e/x").exists(), "{entries:?}");
    }
    // Other entries do arrive.
    let (tmp, out) = fetched(&[dir("d", 0o755), evil()]);
    assert_eq!(out.error, None);
    assert_eq!(fs::read(tmp.path().join("home/d/x")).unwrap(), b"evil");
}

#[test]
fn a_server_learns_nothing_of_what_was_not_listed_to_it() {
    let asked: [&[Message]; 5] = [
        &[
            Message::AskBlocks { file: 0 },
            Message::AskBlocks { file: 1 << 60 },
        ],
        &[Message::Want {
            upto: 9,
            ranges: vec![0..1, 2..4],
        }],
        &[Message::Want {
            upto: 1,
            ranges: vec![4..5, 9..1 << 40],
        }],
        &[Message::Repair {
            file: 7,
            ranges: vec![0..1, 2..4],
        }],
        &[Message::Repair {
            file: 0,
            ranges: vec![0..1, 2..1 << 40],
        }],
    ];
    for messages in asked {
        let tmp = tempfile::tempdir().unwrap();
        fs::write(tmp.path().join("listed"), "4321").unwrap();
        fs::write(tmp.path().join("secret"), "s").unwrap();
        let to = Remote {
            share: "s".into(),
            path: Vec::new(),
        };
        let client = Upload::new(&[tmp.path().join("listed")], &to, Options::default()).unwrap();
        let mut victim = Victim::new(client);
        victim.send(&Message::Accepted {
            version: OLDEST,
            one_file: false,
        });
        let mut listed = Vec::new();
        while listed.is_empty() {
            // The list is made by another thread.
            victim.app.poll(victim.now, &mut victim.line);
            std::thread::yield_now();
            victim.has_said(|m| {
                if let Message::Entries { entries, .. } = m {
                    listed.extend(entries.iter().map(|e| e.path.clone()));
                }
                false
            });
        }
        assert_eq!(listed, [b"listed"]);
        for message in messages {
            victim.send(message);
        }
        let reported = victim.has_said(|m| matches!(m, Message::Blocks { .. } | Message::Roots(_)));
        assert!(!reported, "{messages:?}");
        // A request beyond the list ends the session; files that are not in the list are not
        // reported.
        let ends = !matches!(
            messages[0],
            Message::AskBlocks { .. } | Message::Repair { file: 7, .. }
        );
        let code = victim.line.closed.as_ref().map(|(code, _)| *code);
        let expected = ends.then(|| u32::from(Exit::Protocol.number()));
        assert_eq!(code, expected, "{messages:?}");
    }
}
