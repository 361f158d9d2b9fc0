use std::fs;

use super::*;

#[test]
fn a_lookup_changes_nothing_and_finds_the_nearest() {
    let tmp = tempfile::tempdir().unwrap();
    fs::create_dir(tmp.path().join("dir")).unwrap();
    fs::write(tmp.path().join("file"), "").unwrap();
    let root = confine::open_root(tmp.path()).unwrap();
    let of = |dir: &Dir| dir.stat().unwrap().st_ino;
    let inode = |name: &str| {
        let dir = confine::open_root(&tmp.path().join(name)).unwrap();
        of(&dir)
    };
    for (rel, one, there, rename, near) in [
        ("dir", true, true, None, "dir"),
        ("file", true, true, Some("file"), "."),
        ("dir/new", true, true, Some("new"), "dir"),
        ("dir/a/b/", true, false, None, "dir"),
        ("dir/a/b/c", true, false, Some("c"), "dir"),
        ("tree", false, false, None, "."),
    ] {
        let far = Look::beneath(&root, rel.as_bytes(), one).unwrap();
        let text = format!("{}/{rel}", tmp.path().display());
        let local = Look::local(Path::new(&text), one).unwrap();
        for look in [far, local] {
            assert_eq!(look.dir.is_some(), there, "{rel}");
            assert_eq!(look.rename.as_deref(), rename.map(str::as_bytes), "{rel}");
            assert_eq!(of(&look.near), inode(near), "{rel}");
        }
    }
    assert!(Look::beneath(&root, b"file/x", true).is_err());
    assert!(Look::local(&tmp.path().join("file/"), true).is_err());
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 2);
    assert!(Look::local(Path::new("nothing here"), true).is_ok());
    assert!(Look::local(Path::new("/nothing/here/"), true).is_ok());
}

#[test]
fn links_here_lead_to_the_file_that_is_replaced() {
    let tmp = tempfile::tempdir().unwrap();
    let at = |name: &str| tmp.path().join(name);
    fs::create_dir(at("dir")).unwrap();
    fs::write(at("dir/file"), "").unwrap();
    for (name, to) in [
        ("link", "dir/file"),
        ("again", "link"),
        ("folder", "dir"),
        ("broken", "dir/gone"),
        ("loop", "loop"),
        ("null", "/dev/null"),
    ] {
        std::os::unix::fs::symlink(to, at(name)).unwrap();
    }
    let of = |dir: &Dir| dir.stat().unwrap().st_ino;
    let dir = of(&confine::open_root(&at("dir")).unwrap());
    for name in ["link", "again"] {
        let base = Base::local(&at(name), true).unwrap();
        assert_eq!(base.rename.as_deref(), Some(&b"file"[..]), "{name}");
        assert_eq!(of(&base.dir), dir, "{name}");
        assert!(Base::local(&at(name), false).is_err(), "{name}");
    }
    assert_eq!(Base::local(&at("folder"), true).unwrap().rename, None);
    for (name, hint) in [
        ("broken", "link to nothing"),
        ("loop", "destination"),
        ("null", "write - for"),
    ] {
        for one_file in [true, false] {
            let e = Base::local(&at(name), one_file).unwrap_err();
            assert_eq!(e.code, Exit::DestError, "{name}");
            let said = format!("{}: {}", e.text, e.fix);
            assert!(said.contains(hint), "{name}: {said}");
            assert!(Look::local(&at(name), one_file).is_err(), "{name}");
        }
        assert!(at(name).is_symlink(), "{name} is untouched");
    }
}

#[test]
fn a_link_leads_to_the_file_that_was_looked_at_or_nowhere() {
    let tmp = tempfile::tempdir().unwrap();
    let at = |name: &str| tmp.path().join(name);
    for dir in ["dir", "other"] {
        fs::create_dir(at(dir)).unwrap();
        fs::write(at(dir).join("file"), dir).unwrap();
    }
    std::os::unix::fs::symlink("dir/file", at("link")).unwrap();
    let file = File::open(&at("link"), OFlags::PATH).unwrap();
    let stat = file.stat().unwrap();
    let inode = |dir: &Dir| dir.stat().unwrap().st_ino;
    let wanted = inode(&confine::open_root(&at("dir")).unwrap());
    // Another folder takes the place of the one that the link led through.
    fs::rename(at("dir"), at("moved")).unwrap();
    std::os::unix::fs::symlink("other", at("dir")).unwrap();
    let Ok(Site(Ok(dir), Some(name))) = Site::found(&file, &stat, &at("link")) else {
        panic!("it is there, in another folder");
    };
    assert_eq!((inode(&dir), &name[..]), (wanted, &b"file"[..]));
    // Another file takes its name.
    fs::rename(at("other/file"), at("moved/file")).unwrap();
    assert!(Site::found(&file, &stat, &at("link")).is_err());
}

#[test]
fn the_slash_rule_holds_in_a_share_and_here() {
    let tmp = tempfile::tempdir().unwrap();
    fs::create_dir(tmp.path().join("dir")).unwrap();
    fs::write(tmp.path().join("file"), "").unwrap();
    std::os::unix::fs::symlink("..", tmp.path().join("dir/up")).unwrap();
    let root = confine::open_root(tmp.path()).unwrap();
    let far = |rel: &str, one| Base::beneath(&root, rel.as_bytes(), one).map(|b| b.rename);
    let here = |rel: &str, one| {
        let text = format!("{}/{rel}", tmp.path().display());
        Base::local(Path::new(&text), one).map(|b| b.rename)
    };
    for i in 0..2 {
        let base = |rel: &str, one| {
            if i == 0 {
                far(rel, one)
            } else {
                here(rel, one)
            }
        };
        assert_eq!(base("dir", true).unwrap(), None);
        assert_eq!(base("dir/", false).unwrap(), None);
        assert_eq!(base("file", true).unwrap().unwrap(), b"file");
        assert_eq!(
            base(&format!("new{i}/name"), true).unwrap().unwrap(),
            b"name"
        );
        assert_eq!(base(&format!("tree{i}"), false).unwrap(), None);
        assert_eq!(base(&format!("slash{i}/"), true).unwrap(), None);
        assert!(tmp.path().join(format!("tree{i}")).is_dir());
        assert!(tmp.path().join(format!("slash{i}")).is_dir());
        assert_eq!(base("file", false).unwrap_err().code, Exit::DestError);
        assert_eq!(base("file/", true).unwrap_err().code, Exit::DestError);
    }
    for escape in ["../x", "/etc", "dir/up/x", "dir/up"] {
        assert_eq!(
            far(escape, false).unwrap_err().code,
            Exit::DestError,
            "{escape}"
        );
    }
}
