//! A thread that panics ends the transfer with code 1 at both ends: nobody waits for it.

use std::{fs, sync::Arc};

use farhaul_transfer::{
    Exit, TransferError,
    client::{Download, Options, Upload},
    server::{Access, Allow, Policy, Server, Share},
};

use crate::pair::{self, Way, noise, remote};

type Wake = Arc<dyn Fn() + Send + Sync>;

/// Called by workers: it panics in one of them.
fn injected() -> Wake {
    Arc::new(|| {
        let name = std::thread::current()
            .name()
            .unwrap_or_default()
            .to_string();
        assert!(!name.starts_with("farhaul-"), "injected");
    })
}

/// Result that the client reports for a copy in which the worker at one end panics.
fn copy(put: bool, ours: bool) -> TransferError {
    let tmp = tempfile::tempdir().unwrap();
    let (from, to) = (tmp.path().join("from"), tmp.path().join("to"));
    fs::create_dir_all(from.join("d")).unwrap();
    fs::create_dir(&to).unwrap();
    fs::write(from.join("d/small"), "small").unwrap();
    fs::write(from.join("d/large"), noise(1, 5 << 20)).unwrap();
    let options = Options {
        wake: ours.then(injected),
        ..pair::options()
    };
    let share = if put { &to } else { &from };
    let share = Share::open("s", share, Access::ReadWrite).unwrap();
    let policy = Arc::new(Policy::new(vec![share], Allow::Any, false));
    let mut server = Server::new(policy, (!ours).then(injected));
    let handle = if put {
        let mut client = Upload::new(&[from.join("d")], &remote(""), options).unwrap();
        pair::run(&mut client, &mut server, &mut Way::new(1));
        client.handle()
    } else {
        let mut client = Download::new(&[remote("d")], &to, options).unwrap();
        pair::run(&mut client, &mut server, &mut Way::new(1));
        client.handle()
    };
    handle.outcome().unwrap().error.unwrap()
}

#[test]
fn a_worker_that_panics_ends_the_transfer() {
    for put in [true, false] {
        for ours in [true, false] {
            let error = copy(put, ours);
            assert_eq!(error.code, Exit::Internal, "{put} {ours}: {error}");
            assert!(error.text.contains("internal error while "), "{error}");
            assert!(error.text.contains("injected"), "{error}");
            assert_eq!(error.text.contains("the peer"), !ours, "{error}");
        }
    }
}
