//! Peers that want other names than they were granted, by way of names derived from the granted
//! ones. Hosts that ask for more than was ordered.

use farhaul_core::store::Store as _;

use super::{client::deliver_by, *};
use crate::{
    server::{Right, Tickets},
    wire::{Delete, Mirror, Suffix},
};

/// A ticket with key 7 for `report`.
#[derive(Debug)]
struct ForReport;

impl Tickets for ForReport {
    fn knows(&self, key: &[u8]) -> bool {
        key == [7]
    }

    fn right(&self, _: &[u8]) -> Result<Option<Right>, TransferError> {
        Ok(Some(Right {
            share: "s".into(),
            path: b"report".to_vec(),
            access: Access::ReadWrite,
            max_rate: None,
        }))
    }

    fn begin(&self, _: &[u8], _: [u8; 8]) -> Result<(), TransferError> {
        Ok(())
    }

    fn end(&self, _: &[u8], _: [u8; 8]) -> Result<(), TransferError> {
        Ok(())
    }
}

fn by_ticket(root: &Path) -> Policy {
    let share = Share::open("s", root, Access::ReadWrite).unwrap();
    Policy::new(vec![share.for_tickets(true)], Allow::None, false).with_tickets(Arc::new(ForReport))
}

fn backed_up(suffix: &str) -> RequestOptions {
    RequestOptions {
        one_file: true,
        mirror: Mirror {
            backup: Some(Suffix::new(suffix.as_bytes()).unwrap()),
            ..Mirror::PLAIN
        },
        ..RequestOptions::default()
    }
}

fn names(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root).unwrap().map(Result::unwrap);
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn who_was_granted_one_file_leaves_no_other_name() {
    let tmp = tempfile::tempdir().unwrap();
    fs::write(tmp.path().join("report"), "before").unwrap();
    let entries = [file("report", 0o755, b"evil")];
    for suffix in ["-run.sh", "~"] {
        let options = backed_up(suffix);
        let (error, _) = deliver_by(by_ticket(tmp.path()), "report", options, &[], &entries);
        assert_eq!(error.unwrap().code, Exit::Auth);
        assert_eq!(names(tmp.path()), ["report"]);
    }
    let options = RequestOptions {
        one_file: true,
        ..RequestOptions::default()
    };
    let (error, _) = deliver_by(
        by_ticket(tmp.path()),
        "report",
        options.clone(),
        &[],
        &entries,
    );
    assert_eq!(error, None);
    // Content that is not what was announced, again after the repair.
    let mut victim = Victim::new(Server::new(Arc::new(by_ticket(tmp.path())), None));
    victim.send(&Message::request_with(
        Direction::Put,
        "s",
        "report",
        options,
    ));
    victim.send(&Message::Entries {
        first: 0,
        entries: vec![file("report", 0o755, b"others").0],
    });
    let (object, offset, at) = (CONTENT, 0, 0);
    let extent = Extent {
        object,
        offset,
        len: 6,
        at,
    };
    for _ in 0..2 {
        let wanted = |m: &Message| match m {
            Message::Want { ranges, .. } | Message::Repair { ranges, .. } => !ranges.is_empty(),
            _ => false,
        };
        while !victim.has_said(wanted) {
            victim.app.poll(victim.now, &mut victim.line);
            std::thread::yield_now();
        }
        victim.app.place(&[extent], b"others").unwrap();
        victim.send(&Message::Roots(vec![Root {
            file: 0,
            sparse: false,
            hash: [1; 32],
        }]));
    }
    victim.send(&Message::End { entries: 1 });
    victim.until_finished();
    drop(victim);
    assert_eq!(names(tmp.path()), ["report"]);
    assert_eq!(fs::read(tmp.path().join("report")).unwrap(), b"evil");
}

#[test]
fn no_backup_takes_a_name_that_copies_keep_for_themselves() {
    for (name, suffix) in [
        (".farhaul-journal-", "0123456789abcdef"),
        (".farhaul-JOURNAL-", "0123456789ABCDEF"),
        (".x.0123456789abcdef.farhaul", "-part"),
        (".x.0123456789abcdef", ".farhaul-stripes"),
    ] {
        let tmp = tempfile::tempdir().unwrap();
        fs::write(tmp.path().join(name), "forged").unwrap();
        let share = Share::open("s", tmp.path(), Access::ReadWrite).unwrap();
        let policy = Policy::new(vec![share], Allow::Any, false);
        let mut options = backed_up("~");
        let Some(suffix) = Suffix::new(suffix.as_bytes()) else {
            continue;
        };
        (options.one_file, options.mirror.backup) = (false, Some(suffix));
        let entries = [file(name, 0o644, b"new")];
        let (error, failures) = deliver_by(policy, "", options, &[], &entries);
        assert_eq!(error.unwrap().code, Exit::DestError, "{name}");
        assert!(failures[0].contains("reserved"), "{failures:?}");
        assert_eq!(names(tmp.path()), [name]);
        assert_eq!(fs::read(tmp.path().join(name)).unwrap(), b"forged");
    }
}

#[test]
fn a_sending_host_may_ask_for_what_was_ordered_only() {
    let order = RequestOptions {
        checksum: true,
        ..RequestOptions::default()
    };
    let others = [
        RequestOptions::default(),
        RequestOptions {
            dry: true,
            ..order.clone()
        },
        RequestOptions {
            existing: Existing::Keep,
            ..order.clone()
        },
        RequestOptions {
            mirror: Mirror {
                delete: Some(Delete::default()),
                ..Mirror::PLAIN
            },
            ..order.clone()
        },
        RequestOptions {
            one_file: false,
            checksum: true,
            ..backed_up(".rc")
        },
    ];
    let sent = [file("f", 0o644, b"x")];
    let deliver = |options: RequestOptions| {
        let tmp = tempfile::tempdir().unwrap();
        fs::write(tmp.path().join("there"), "x").unwrap();
        let share = Share::open("s", tmp.path(), Access::ReadWrite).unwrap();
        let policy = Policy::new(vec![share], Allow::Any, false)
            .deliveries_to(Vec::new(), Some(order.ordered()));
        let (error, _) = deliver_by(policy, "", options, &[], &sent);
        (error.map(|e| e.code), names(tmp.path()).len())
    };
    for options in others {
        assert_eq!(
            deliver(options.clone()),
            (Some(Exit::Auth), 1),
            "{options:?}"
        );
    }
    // How fast it sends is its own matter.
    let slowly = RequestOptions {
        max_rate: Some(farhaul_core::units::Rate::from_bps(1 << 30)),
        ..order.clone()
    };
    assert_eq!(deliver(slowly), (None, 2));
}
