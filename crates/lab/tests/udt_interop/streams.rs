//! Bytes in order, both ways, of every size and over every trouble.

use std::sync::mpsc;

use farhaul_protocols::udt::Framing;

use super::{
    HOSTS, MANNERS, PAYLOAD,
    peer::program,
    run::{BOTH, Listens, Setting, run, trouble, words},
    stream::{Role, Seen, Stream},
    together,
};

/// A stream of `bytes`, in our role.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) setting: Setting,
    pub(crate) role: Role,
    pub(crate) bytes: u64,
}

impl Case {
    /// The peer does the opposite, and both ends get everything.
    pub(crate) fn run(&self) {
        let theirs = if self.role == Role::Takes {
            "send"
        } else {
            "recv"
        };
        self.run_against(&words([theirs, &self.bytes.to_string()]));
    }

    pub(crate) fn run_against(&self, action: &[String]) {
        let (events, received) = mpsc::channel();
        let (role, bytes) = (self.role, self.bytes);
        let make = move || Stream::new(role, bytes, events.clone());
        let ((), (well, said)) = run(&self.setting, action, make, |_| {
            for _ in 0..self.setting.connections {
                let over = received
                    .iter()
                    .find(|events| matches!(events, Seen::Over(..)));
                match over {
                    Some(Seen::Over(done, _)) if done == bytes => {}
                    other => panic!("{self:?}: {other:?}"),
                }
            }
        });
        assert!(well, "{self:?}: the peer complains: {said}");
    }
}

fn cases(roles: &[Role], sizes: &[u64], setting: impl Fn(Setting) -> Setting) -> Vec<Case> {
    let mut cases = Vec::new();
    for behaviour in MANNERS {
        for listens in BOTH {
            for &role in roles {
                for &bytes in sizes {
                    let plain = Setting::new(HOSTS[0], behaviour, Framing::Stream, listens);
                    cases.push(Case {
                        setting: setting(plain),
                        role,
                        bytes,
                    });
                }
            }
        }
    }
    cases
}

const ROLES: [Role; 3] = [Role::Writes, Role::Sends, Role::Takes];
/// The second is all full packets, and libudt acknowledges their end lightly, before it is its reader's.
const SIZES: [u64; 3] = [1, 113 * PAYLOAD, 3_000_000];

#[test]
fn streams_to_and_from_libudt() {
    if program().is_none() {
        return;
    }
    for host in HOSTS {
        let at = |setting| Setting { host, ..setting };
        together(&cases(&ROLES, &SIZES, at), Case::run);
    }
}

#[test]
fn streams_over_loss_reordering_and_copies() {
    if program().is_none() {
        return;
    }
    let mut all = Vec::new();
    for (loss, bytes) in [
        (0.0, 2_000_000),
        (0.001, 1_000_000),
        (0.02, 150_000),
        (0.1, 50_000),
    ] {
        let over = |setting: Setting| setting.over(trouble(loss));
        all.extend(cases(&[Role::Writes, Role::Takes], &[bytes], over));
    }
    together(&all, Case::run);
}

#[test]
fn many_connections_on_one_port() {
    if program().is_none() {
        return;
    }
    let many = |setting| Setting {
        connections: 12,
        ..setting
    };
    for case in cases(&[Role::Writes, Role::Takes], &[400_000], many) {
        case.run();
    }
}

fn large(bytes: u64) {
    if program().is_none() {
        return;
    }
    for case in cases(&[Role::Sends, Role::Takes], &[bytes], |setting| setting) {
        if case.setting.listens == Listens::They {
            case.run();
        }
    }
}

#[test]
fn sixty_four_mebibytes_or_one_gibibyte() {
    large(farhaul_testkit::scale(64 << 20, 1 << 30));
}
