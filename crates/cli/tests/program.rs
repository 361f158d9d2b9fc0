//! Runs the program and checks what its help says: real processes, real sockets, folders of their
//! own.

#![expect(clippy::print_stdout, reason = "tests; a skipped one says why")]

#[path = "program/bench.rs"]
mod bench;
#[path = "program/between.rs"]
mod between;
#[path = "program/blocked.rs"]
mod blocked;
#[path = "program/doctor.rs"]
mod doctor;
#[path = "program/faults.rs"]
mod faults;
#[path = "program/firewall.rs"]
mod firewall;
#[path = "program/first_hour.rs"]
mod first_hour;
#[path = "program/kit.rs"]
mod kit;
#[path = "program/lab.rs"]
mod lab;
#[path = "program/local.rs"]
mod local;
#[path = "program/names.rs"]
mod names;
#[path = "../../lab/tests/udt_interop/port.rs"]
mod port;
#[path = "program/roam.rs"]
mod roam;
#[path = "program/ssh.rs"]
mod ssh;
#[path = "program/sshd.rs"]
mod sshd;
#[path = "program/study.rs"]
mod study;
#[path = "program/worlds.rs"]
mod worlds;
