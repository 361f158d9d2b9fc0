//! Messages about faults of this machine: its configuration, its tickets.

use std::fs;

use crate::{
    kit::{Fixture, Names},
    place::{Place, code, printed},
};

#[test]
fn a_mistake_in_the_configuration_has_its_line_and_what_to_write() {
    let fixture = Fixture::new();
    let place = &fixture.place;
    fs::create_dir_all(place.path("config/farhaul")).expect("a folder");
    for (text, at, words) in [
        ("[cp]\nmax-rate = \n", "config.toml:2", ""),
        ("[cp\n", "config.toml:1", ""),
        ("\n[cp]\nmax-rat = \"1Gbit\"\n", "config.toml:3", "max-rate"),
        ("[pc]\nlanes = 2\n", "config.toml:2", "no command 'pc'"),
        ("[cp]\nmax-rate = 100\n", "config.toml:2", "100Mbit"),
        (
            "[cp]\nverify-disk = \"perhaps\"\n",
            "config.toml:2",
            "verify-disk",
        ),
        ("[cp]\nlanes = 1000\n", "config.toml:2", "64"),
        (
            "[host.\"*.org\"]\npolicy = \"lo\"\n",
            "config.toml:2",
            "low",
        ),
    ] {
        fs::write(place.path("config/farhaul/config.toml"), text).expect("a file");
        for args in [
            &["cp", "f", "h::s"][..],
            &["cp", "f", "a.org::s"],
            &["bench", "a.org"],
        ] {
            fixture.refuses(args, 10, &[at, words]);
        }
    }
}

#[test]
fn what_is_configured_for_copies_holds_for_lists_of_shares() {
    let fixture = Fixture::new();
    let place = &fixture.place;
    fs::create_dir_all(place.path("config/farhaul")).expect("a folder");
    for (text, code, words) in [
        ("[cp]\nipv6 = true\n", 11, "no IPv6 address"),
        (
            "[host.\"127.*\"]\nidentity = \"none.key\"\n",
            10,
            "no such key file",
        ),
        (
            "[cp]\nfallback = \"never\"\nudp-timeout = \"0\"\n",
            2,
            "leaves no way",
        ),
        // Configured flags for other lists are no mistake here.
        (
            "[cp]\nipv6 = true\n[ls]\nrecursive = true\nssh-option = \"Port=2\"\n",
            11,
            "no IPv6 address",
        ),
    ] {
        fs::write(place.path("config/farhaul/config.toml"), text).expect("a file");
        fixture.refuses(&["ls", "127.0.0.1:9::"], code, &[words]);
    }
}

#[test]
fn a_ticket_of_which_nothing_is_known_is_made_with_a_warning() {
    let place = Place::new();
    let out = place.run(&["ticket", "new", "--share", "none"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert!(
        printed(&out).contains("has a share 'none'"),
        "{}",
        printed(&out)
    );
    assert!(out.stdout.starts_with(b"fh1"), "{out:?}");
    // A server that has it not says so, and one that takes no tickets.
    fs::create_dir(place.path("d")).expect("a folder");
    let ticket = String::from_utf8(out.stdout).expect("text");
    for more in [["--allow", "ticket"], ["--allow", "any"]] {
        let server = place.serve(&more);
        let other = place.run(&["ticket", "new", "--share", "none", "--address", &server.at]);
        let text = String::from_utf8(other.stdout).expect("text");
        let out = place.run(&["cp", "--json", text.trim(), "d/"]);
        Names::documented().object(&out, 15);
        assert!(!printed(&out).is_empty() && text != ticket);
    }
}
