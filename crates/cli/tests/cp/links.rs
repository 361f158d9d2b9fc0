//! Symbolic links: kept where the receiver is one's own, skipped by name in a server's share, followed when asked; pipes and
//! sockets.

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    path::Path,
};

use crate::place::{Place, Served, code, json, printed};

/// Links within the tree, out of it, and absolute ones.
fn plant(at: &Path) {
    fs::create_dir_all(at.join("d")).expect("ours");
    fs::write(at.join("d/f"), "content").expect("ours");
    for (target, name) in [
        ("d/f", "within"),
        ("/etc/hostname", "absolute"),
        ("../../elsewhere", "d/out"),
        ("d/../../x", "through"),
    ] {
        symlink(target, at.join(name)).expect("ours");
    }
}

fn leads_to(link: &Path) -> String {
    let target = fs::read_link(link).unwrap_or_else(|e| panic!("{}: {e}", link.display()));
    target.display().to_string()
}

fn get(place: &Place, server: &Served, flags: &[&str], to: &str) -> std::process::Output {
    let from = server.to("t");
    let mut args = vec!["cp", "--trust-any", "--json"];
    args.extend(flags);
    args.extend([from.as_str(), to]);
    place.run(&args)
}

#[test]
fn fetched_links_are_as_they_were() {
    let place = Place::new();
    plant(&place.path("share/t"));
    let server = place.serve(&["--allow", "any"]);
    for run in ["first", "second"] {
        let out = get(&place, &server, &[], "got/");
        assert_eq!(code(&out), 0, "{run}: {}", printed(&out));
        assert!(
            json(&out)["warnings"].as_array().is_some_and(Vec::is_empty),
            "{}",
            printed(&out)
        );
        for name in ["within", "absolute", "d/out", "through"] {
            let (ours, theirs) = (
                place.path("got/t").join(name),
                place.path("share/t").join(name),
            );
            assert_eq!(leads_to(&ours), leads_to(&theirs));
        }
    }
    // A plan says the same.
    let out = get(&place, &server, &["-n"], "new/");
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(
        json(&out)["plan"].to_string().matches("\"link\"").count(),
        4
    );
    // What they lead to is never written to.
    fs::create_dir_all(place.path("elsewhere")).expect("ours");
    fs::remove_file(place.path("share/t/d/out")).expect("ours");
    fs::create_dir(place.path("share/t/d/out")).expect("ours");
    fs::write(place.path("share/t/d/out/new"), "x").expect("ours");
    let out = get(&place, &server, &[], "got/");
    assert_eq!(
        code(&out),
        4,
        "a folder does not take the place of a link: {}",
        printed(&out)
    );
    assert!(!place.path("elsewhere/new").exists());
}

#[test]
fn a_share_takes_only_links_within_the_tree_and_says_so_once() {
    let place = Place::new();
    plant(&place.path("t"));
    let server = place.serve(&["--allow", "any"]);
    let to = server.to("");
    for flags in [&[][..], &["-n"]] {
        let out = place.run(&[&["cp", "--trust-any", "--json", "t", &to][..], flags].concat());
        assert_eq!(code(&out), 5, "{}", printed(&out));
        let word = json(&out);
        assert_eq!(word["failures"].as_array().map(Vec::len), Some(2), "{word}");
        assert_eq!(word["exit"]["retryable"], false, "{word}");
        assert_eq!(word["warnings"].as_array().map(Vec::len), Some(0), "{word}");
    }
    assert_eq!(leads_to(&place.path("share/t/within")), "d/f");
    assert!(fs::symlink_metadata(place.path("share/t/absolute")).is_err());
    let out = place.run(&[
        "cp",
        "--trust-any",
        "--links=skip",
        "--json",
        "t",
        &server.to("none/"),
    ]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert!(fs::symlink_metadata(place.path("share/none/t/within")).is_err());
    // A mirror does not delete what has the name of a link that is skipped.
    fs::write(place.path("share/t/absolute"), "theirs").expect("ours");
    let out = place.run(&["cp", "--trust-any", "--links=skip", "--delete", "t", &to]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert!(place.path("share/t/absolute").exists() && place.path("share/t/within").exists());
}

#[test]
fn links_that_are_followed_are_what_they_lead_to() {
    let place = Place::new();
    let reference = place.path("reference");
    fs::create_dir_all(reference.join("deep")).expect("ours");
    fs::write(reference.join("deep/genome"), "ACGT").expect("ours");
    fs::create_dir_all(place.path("t")).expect("ours");
    symlink(reference.join("deep/genome"), place.path("t/absolute")).expect("ours");
    symlink("../reference", place.path("t/folder")).expect("ours");
    let server = place.serve(&["--allow", "any"]);
    let to = server.to("");
    for run in ["sent", "skipped"] {
        let out = place.run(&["cp", "--trust-any", "--json", "-L", "t", &to]);
        assert_eq!(code(&out), 0, "{}", printed(&out));
        assert_eq!(json(&out)["files"][run], 2, "{}", printed(&out));
    }
    for name in ["t/absolute", "t/folder/deep/genome"] {
        let there = place.path("share").join(name);
        assert!(fs::symlink_metadata(&there).expect("there").is_file());
        assert_eq!(fs::read_to_string(there).expect("there"), "ACGT");
    }
    // A server follows none out of its share.
    symlink("/etc/hostname", place.path("share/t/secret")).expect("ours");
    symlink("absolute", place.path("share/t/within")).expect("ours");
    let out = get(&place, &server, &["--links=follow"], "got/");
    assert_eq!(code(&out), 5, "{}", printed(&out));
    assert_eq!(
        json(&out)["failures"].as_array().map(Vec::len),
        Some(1),
        "{}",
        printed(&out)
    );
    assert!(fs::symlink_metadata(place.path("got/t/secret")).is_err());
    assert_eq!(
        fs::read_to_string(place.path("got/t/within")).expect("there"),
        "ACGT"
    );
}

#[test]
fn pipes_and_sockets_are_skipped_with_one_warning() {
    let place = Place::new();
    for tree in ["t", "share/t"] {
        fs::create_dir_all(place.path(tree)).expect("ours");
        fs::write(place.path(tree).join("f"), "content").expect("ours");
        for name in ["a", "b"] {
            let made = std::process::Command::new("mkfifo")
                .arg(place.path(tree).join(name))
                .status();
            assert!(made.expect("it starts").success());
        }
        drop(UnixListener::bind(place.path(tree).join("socket")).expect("a stale socket"));
    }
    let server = place.serve(&["--allow", "any"]);
    let to = server.to("new/");
    let put = place.run(&["cp", "--trust-any", "--json", "t", &to]);
    for out in [put, get(&place, &server, &[], "got/")] {
        assert_eq!(code(&out), 0, "{}", printed(&out));
        let word = json(&out);
        assert_eq!(word["warnings"].as_array().map(Vec::len), Some(1), "{word}");
        assert!(
            word["warnings"][0]
                .as_str()
                .is_some_and(|w| w.starts_with("t/a: 3 pipes")),
            "{word}"
        );
    }
}

/// Two copies of equal links: the second to come finds what the first has just made.
#[test]
fn copies_at_the_same_time_make_the_same_links() {
    let place = Place::new();
    let server = place.serve(&["--allow", "any"]);
    let sides = ["a", "b"].map(|side| {
        for n in 0..3_000 {
            let link = place.path(&format!("{side}/d{}/{n}", n % 7));
            fs::create_dir_all(link.parent().expect("a folder")).expect("ours");
            symlink("../target", link).expect("ours");
        }
        format!("{side}/")
    });
    let to = server.to("t/");
    let children = sides.map(|from| {
        let args = ["cp", "--trust-any", "--links=keep", &from, &to];
        place.command(&args).spawn().expect("it starts")
    });
    for child in children {
        let out = child.wait_with_output().expect("it ends");
        assert_eq!(code(&out), 0, "{}", printed(&out));
    }
}
