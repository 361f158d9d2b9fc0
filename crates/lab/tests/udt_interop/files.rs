//! libudt's own file calls against streams of ours: the file has the bytes that were sent.

use std::fs;

use farhaul_protocols::udt::Framing;

use super::{
    HOSTS, MANNERS, content,
    peer::program,
    run::{BOTH, Setting, words},
    stream::Role,
    streams::Case,
    together,
};

#[test]
fn sendfile_and_recvfile() {
    if program().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut cases = Vec::new();
    for behaviour in MANNERS {
        for listens in BOTH {
            for role in [Role::Writes, Role::Sends, Role::Takes] {
                for (host, bytes) in [(HOSTS[0], 1), (HOSTS[0], 5_000_001), (HOSTS[1], 70_000)] {
                    let setting = Setting::new(host, behaviour, Framing::Stream, listens);
                    let path = folder.path().join(cases.len().to_string());
                    let case = Case {
                        setting,
                        role,
                        bytes,
                    };
                    cases.push((case, path));
                }
            }
        }
    }
    together(&cases, |(case, path)| {
        let expected: Vec<u8> = (0..case.bytes).map(content).collect();
        let name = path.to_str().unwrap();
        if case.role == Role::Takes {
            fs::write(path, expected).unwrap();
            case.run_against(&words(["sendfile", name]));
        } else {
            case.run_against(&words(["recvfile", name, &case.bytes.to_string()]));
            assert!(fs::read(path).unwrap() == expected, "{case:?}");
        }
    });
}
