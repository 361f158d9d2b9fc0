use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use super::*;

/// An ssh that runs the command here, in another home, after `before`.
fn ssh(place: &Path, before: &str) -> Call {
    let ssh = place.join("ssh");
    let home = place.join("home");
    fs::create_dir_all(&home).unwrap();
    let script = format!(
        "#!/bin/sh\n{before}\ncd {home} && exec env -i HOME={home} PATH=/usr/bin:/bin sh -c \"$3\"\n",
        home = home.display()
    );
    fs::write(&ssh, script).unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    Call::new(Some(ssh.into()), Vec::new(), None, None, None)
}

fn program(place: &Path, text: &str) -> File {
    fs::write(place.join("program"), text).unwrap();
    File::open(place.join("program")).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    names
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn what_is_whole_and_runs_gets_the_name_and_nothing_else_does() {
    let tmp = tempfile::tempdir().unwrap();
    let call = ssh(tmp.path(), "echo 'Welcome!'");
    let bin = tmp.path().join("home/.local/bin");
    let kind = There::default();
    assert!(kind.check("Linux x86_64").is_err());
    assert_eq!(look(&call, "there").unwrap().version, None);
    let done = put(
        &call,
        "there",
        program(tmp.path(), "#!/bin/sh\necho farhaul 1.2.3\n"),
    );
    assert_eq!(done.as_deref(), Ok("farhaul 1.2.3"));
    assert_eq!(names(&bin), ["farhaul"]);
    assert_eq!(
        fs::metadata(bin.join("farhaul"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o755
    );
    let there = look(&call, "there").unwrap();
    assert_eq!(there.version.as_deref(), Some("farhaul 1.2.3"));
    let local = uname();
    let kind = format!(
        "{} {}",
        local.sysname().to_str().unwrap(),
        local.machine().to_str().unwrap()
    );
    assert_eq!(there.check(&kind), Ok(()));
    assert!(there.check("Plan9 mips").unwrap_err().contains(&kind));
    // One that does not run, and one whose end is missing.
    assert!(put(&call, "there", program(tmp.path(), "#!/bin/sh\nexit 1\n")).is_err());
    let cut = ssh(tmp.path(), "set -- \"$1\" \"$2\" \"head -c 9 | $3\"");
    assert!(
        put(
            &cut,
            "there",
            program(tmp.path(), "#!/bin/sh\necho farhaul 9.9.9\n")
        )
        .is_err()
    );
    assert_eq!(look(&call, "there").unwrap(), there, "the old one is there");
    assert_eq!(names(&bin), ["farhaul"]);
}

#[test]
fn a_newer_one_is_called_that() {
    let of = |version: &str| {
        There {
            kind: String::new(),
            version: Some(version.into()),
        }
        .replaced()
    };
    assert!(of("farhaul 9999.0.0").contains("NEWER"));
    for other in [
        RELEASE,
        "farhaul 0.0.1",
        "sh: not found",
        "farhaul 99999999999999999999.0.0",
    ] {
        assert!(
            of(other).contains(other) && !of(other).contains("NEWER"),
            "{other}"
        );
    }
    assert_eq!(There::default().replaced(), "");
    assert_eq!(number("farhaul 1.20.3-rc.1"), Some([1, 20, 3]));
    assert_eq!(number("farhaul 1.20"), None);
}

#[test]
fn programs_that_need_an_interpreter_are_told_from_those_that_do_not() {
    let tmp = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        fs::write(tmp.path().join(name), bytes).unwrap();
        File::open(tmp.path().join(name)).unwrap()
    };
    let program = |kinds: &[u32]| {
        let mut bytes = vec![0; 64];
        bytes[..5].copy_from_slice(b"\x7fELF\x02");
        bytes[32..40].copy_from_slice(&64_u64.to_ne_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_ne_bytes());
        bytes[56..58].copy_from_slice(&u16::try_from(kinds.len()).unwrap().to_ne_bytes());
        for kind in kinds {
            bytes.extend(kind.to_ne_bytes());
            bytes.extend([0; 52]);
        }
        bytes
    };
    assert_eq!(is_static(&mut file("a", &program(&[6, 1, 1, 2]))), Ok(()));
    assert!(is_static(&mut file("b", &program(&[6, 3, 1]))).is_err());
    let mut cut = program(&[6, 1]);
    cut.truncate(100);
    for bad in [&b"#!/bin/sh\n"[..], &cut, b"\x7fELF\x01"] {
        assert!(is_static(&mut file("c", bad)).is_err(), "{bad:?}");
    }
    // What was built for the tests.
    let own = is_static(&mut File::open(OWN).unwrap());
    assert_eq!(own.is_ok(), cfg!(target_env = "musl"));
}
