//! Rights from the file of `serve --config`: each peer has its shares, and of the others not even
//! their names.

use std::{fs, process::Output};

use crate::place::{Place, Served, code, noise, pause, printed};

/// A server with the file `serve.toml`, in which `DIR` is the test's folder.
pub(crate) fn serve(place: &Place, text: &str) -> Served {
    write(place, text);
    let file = place.path("serve.toml");
    Place::serve_by(place.command(&["serve", "--config", file.to_str().expect("text")]))
}

/// (Re)writes the file.
pub(crate) fn write(place: &Place, text: &str) {
    let dir = place.path("");
    let dir = dir.to_str().expect("text").trim_end_matches('/');
    fs::write(place.path("serve.toml"), text.replace("DIR", dir)).expect("a file");
}

/// Makes a key file, and returns its public half.
pub(crate) fn key(place: &Place, name: &str) -> String {
    let made = place.run(&["key", "gen", "--out", name]);
    assert_eq!(code(&made), 0, "{}", printed(&made));
    let text = String::from_utf8_lossy(&made.stdout);
    let mut words = text.split_whitespace();
    words
        .find(|w| w.starts_with("fh-pub1"))
        .expect("a public key")
        .to_string()
}

/// A copy by the peer whose key is in this file.
pub(crate) fn copy(place: &Place, key: &str, from: &str, to: &str) -> Output {
    place.run(&["cp", "--trust-any", "-i", key, from, to])
}

#[test]
fn each_peer_sees_its_own_shares_and_of_others_not_even_the_name() {
    let place = Place::new();
    let alice = key(&place, "alice");
    key(&place, "bob");
    fs::create_dir(place.path("in")).expect("a folder");
    fs::write(place.path("share/open"), "for all").expect("a file");
    fs::write(place.path("f"), noise(1, 70_000)).expect("a file");
    let text = format!(
        "listen = '127.0.0.1:0'\n\
         [[peer]]\nname = 'alice'\nkey = '{alice}'\n\
         [[share]]\nname = 'pub'\npath = 'DIR/share'\nallow = ['any']\n\
         [[share]]\nname = 'in'\npath = 'DIR/in'\nmode = 'create'\nallow = ['alice']\n\
         [[share]]\nname = 'off'\npath = 'DIR/in'\nmode = 'rw'\n"
    );
    let server = serve(&place, &text);
    let to = |share: &str| format!("{}::{share}/", server.at);

    let out = copy(&place, "alice", "f", &to("in"));
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(
        fs::read(place.path("in/f")).expect("it is there"),
        noise(1, 70_000)
    );
    let from = format!("{}::pub/open", server.at);
    let out = copy(&place, "bob", &from, "here");
    assert_eq!(code(&out), 0, "{}", printed(&out));

    // For a share that it may use a peer learns what it may do.
    let out = copy(&place, "alice", "f", &to("pub"));
    assert_eq!(code(&out), 15, "{}", printed(&out));
    let text = printed(&out);
    assert!(
        text.contains("share 'pub' is not for that: peers may fetch (ro)"),
        "{text}"
    );

    // Not allowed, not there, nobody's: all the same.
    let refusals = [("bob", "in"), ("bob", "none"), ("alice", "off")];
    for (who, share) in refusals {
        let out = copy(&place, who, "f", &to(share));
        assert_eq!(code(&out), 15, "{who} {share}: {}", printed(&out));
        let expected = format!(
            "share '{share}' is unknown or not allowed: check the name, the direction and your key"
        );
        assert!(printed(&out).contains(&expected), "{}", printed(&out));
    }
}

#[test]
fn a_peer_for_whom_there_is_no_share_is_not_let_in() {
    let place = Place::new();
    let alice = key(&place, "alice");
    key(&place, "bob");
    let text = format!(
        "listen = '127.0.0.1:0'\n[[share]]\nname = 's'\npath = 'DIR/share'\nmode = 'rw'\nallow = '{alice}'\n"
    );
    let server = serve(&place, &text);
    fs::write(place.path("f"), "f").expect("a file");
    let out = copy(&place, "bob", "f", &server.to(""));
    assert_eq!(code(&out), 15, "{}", printed(&out));
    assert!(printed(&out).contains("does not accept your key"));
    let out = copy(&place, "alice", "f", &server.to(""));
    assert_eq!(code(&out), 0, "{}", printed(&out));
}

#[test]
fn a_peer_has_as_many_sessions_as_it_may() {
    let place = Place::in_memory();
    let alice = key(&place, "alice");
    let text = format!(
        "listen = '127.0.0.1:0'\n\
         [[peer]]\nname = 'alice'\nkey = '{alice}'\nmax-sessions = 1\nmax-rate = '40Mbit'\n\
         [[share]]\nname = 's'\npath = 'DIR/share'\nmode = 'rw'\nallow = ['alice', 'any']\n"
    );
    let server = serve(&place, &text);
    fs::write(place.path("share/big"), noise(2, 48 << 20)).expect("a file");
    fs::create_dir(place.path("into")).expect("a folder");
    let from = server.to("big");
    let mut first = place
        .command(&["cp", "--trust-any", "-i", "alice", &from, "into"])
        .spawn()
        .expect("it starts");
    crate::place::await_part(&place.path("into"), 1 << 20, &mut first);
    let out = copy(&place, "alice", &from, "other");
    assert_eq!(code(&out), 18, "{}", printed(&out));
    assert!(
        printed(&out).contains("1 sessions with your key"),
        "{}",
        printed(&out)
    );
    key(&place, "bob");
    fs::write(place.path("share/small"), "s").expect("a file");
    let out = copy(&place, "bob", &server.to("small"), "other");
    assert_eq!(code(&out), 0, "others have their own: {}", printed(&out));
    first
        .kill()
        .expect("it runs: it is not faster than its rate");
    first.wait().expect("our own child");
}

#[test]
fn a_file_with_a_mistake_is_refused_with_its_line() {
    let place = Place::new();
    write(
        &place,
        "listen = '127.0.0.1:0'\n[[share]]\nname = 's'\npath = 'DIR/share'\nmod = 'rw'\n",
    );
    let out = place.run(&["serve", "--config", "serve.toml"]);
    assert_eq!(code(&out), 10, "{}", printed(&out));
    let expected = "serve.toml:5: share.mod: no key 'mod' (did you mean 'mode'?)";
    assert!(printed(&out).contains(expected), "{}", printed(&out));
    let out = place.run(&["serve", "--config", "none.toml"]);
    assert_eq!(code(&out), 10, "{}", printed(&out));
    write(&place, "listen = '127.0.0.1:0'\n");
    let out = place.run(&["serve", "--config", "serve.toml"]);
    assert_eq!(code(&out), 10, "{}", printed(&out));
    assert!(
        printed(&out).contains("nothing is shared"),
        "{}",
        printed(&out)
    );
}

#[test]
fn a_quota_is_for_all_that_lies_in_the_share() {
    let place = Place::new();
    key(&place, "bob");
    let file = |mib: usize| {
        fs::write(place.path("f"), noise(5, mib << 20)).expect("a file");
        "f"
    };
    fs::write(place.path("share/there"), noise(6, 3 << 20)).expect("a file");
    let text = "listen = '127.0.0.1:0'\n[[share]]\nname = 's'\npath = 'DIR/share'\nmode = 'rw'\n\
                quota = '8MiB'\nallow = 'any'\n";
    let server = serve(&place, text);
    let out = copy(&place, "bob", file(6), &server.to("a"));
    assert_eq!(code(&out), 8, "{}", printed(&out));
    let expected = "needs 6.0 MiB, 5.0 MiB of the share's quota of 8.0 MiB are free";
    assert!(printed(&out).contains(expected), "{}", printed(&out));
    let dry = place.run(&["cp", "-n", "--trust-any", "f", &server.to("a")]);
    assert_eq!(code(&dry), 8, "{}", printed(&dry));
    let out = copy(&place, "bob", file(4), &server.to("a"));
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let out = copy(&place, "bob", file(2), &server.to("b"));
    assert_eq!(code(&out), 8, "{}", printed(&out));

    // What its owner removes is free again, as soon as it was counted.
    fs::remove_file(place.path("share/there")).expect("it is there");
    let again = || code(&copy(&place, "bob", "f", &server.to("b")));
    while again() != 0 {
        pause();
    }
}

/// Runs a second copy while another runs at a server with these flags, by the same key and by
/// another; returns the output of each.
fn beside_another(flags: &[&str]) -> [Output; 2] {
    let place = Place::in_memory();
    let server = place.serve(&[&["--allow", "any"], flags].concat());
    fs::write(place.path("share/big"), noise(2, 48 << 20)).expect("a file");
    fs::create_dir(place.path("into")).expect("a folder");
    let from = server.to("big");
    let args = ["cp", "--trust-any", "--max-rate", "40Mbit", &from, "into"];
    let mut first = place.command(&args).spawn().expect("it starts");
    crate::place::await_part(&place.path("into"), 1 << 20, &mut first);
    let own = place.run(&["cp", "--trust-any", "-n", &from, "other"]);
    let mut others = place.command(&["cp", "--trust-any", "-n", &from, "other"]);
    let others = others.env("XDG_CONFIG_HOME", place.path("others")).output();
    first
        .kill()
        .expect("it runs: it is not faster than its rate");
    first.wait().expect("our own child");
    [own, others.expect("it starts")]
}

#[test]
fn a_source_has_as_many_sessions_as_it_may() {
    for out in beside_another(&["--max-per-source", "1"]) {
        assert_eq!(code(&out), 18, "{}", printed(&out));
        assert!(
            printed(&out).contains("from your address"),
            "{}",
            printed(&out)
        );
    }
}

#[test]
fn a_key_leaves_places_to_others() {
    for flags in [&["--max-per-key", "1"], &["--max-sessions", "2"]] {
        let [own, others] = beside_another(flags);
        // Three quarters of two are two.
        let expected = if flags[0] == "--max-per-key" { 18 } else { 0 };
        assert_eq!(code(&own), expected, "{}", printed(&own));
        assert_eq!(code(&others), 0, "{}", printed(&others));
    }
    let [own, others] = beside_another(&["--max-sessions", "4", "--max-per-key", "1"]);
    assert!(
        printed(&own).contains("sessions with your key"),
        "{}",
        printed(&own)
    );
    assert_eq!(code(&others), 0, "{}", printed(&others));
}
