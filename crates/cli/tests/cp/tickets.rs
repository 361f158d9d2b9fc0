//! Uses of a ticket, their number, and what its holder learns when it is over.

use std::{fs, path::PathBuf, process::Output};

use serde_json::Value;

use crate::{
    place::{Place, Served, await_part, code, noise, printed},
    policy::{copy, key, serve, write},
};

const SHARES: &str = "identity = 'DIR/server.key'\ntickets = 'DIR/tickets.json'\n\
    [[share]]\nname = 's'\npath = 'DIR/share'\nmode = 'rw'\nallow = ['ticket']\n\
    [[share]]\nname = 'closed'\npath = 'DIR/share'\n";

/// A server whose shares are for holders of tickets.
fn server(place: &Place) -> Served {
    key(place, "server.key");
    serve(place, &format!("listen = '127.0.0.1:0'\n{SHARES}"))
}

/// A new ticket to `share`.
fn ticket(place: &Place, server: &Served, share: &str, more: &[&str]) -> String {
    let args = [
        "ticket",
        "new",
        "--config",
        "serve.toml",
        "--address",
        &server.at,
    ];
    let out = place.run(&[&args[..], &["--share", share], more].concat());
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let text = String::from_utf8(out.stdout).expect("text");
    assert!(
        text.starts_with("fh1") && text.lines().count() == 1,
        "{text}"
    );
    text.trim().to_string()
}

fn listed(place: &Place) -> Vec<Value> {
    let out = place.run(&["ticket", "list", "--config", "serve.toml", "--json"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let object: Value = serde_json::from_slice(&out.stdout).expect("one object");
    object["tickets"].as_array().expect("a list").clone()
}

#[test]
fn a_ticket_is_for_one_place_and_for_so_many_copies() {
    let place = Place::new();
    let server = server(&place);
    fs::create_dir(place.path("share/run7")).expect("a folder");
    fs::write(place.path("share/run7/data"), noise(1, 300_000)).expect("a file");
    fs::write(place.path("share/secret"), "secret").expect("a file");
    let text = ticket(&place, &server, "s/run7", &["--uses", "2"]);

    // Without a key of the server's having been accepted before, and without a key of one's own.
    let out = place.run(&["cp", &text, "here/"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert!(printed(&out).contains("hint: others on this machine can read"));
    let there = place.path("here/run7/data");
    assert_eq!(fs::read(there).expect("it is there"), noise(1, 300_000));

    fs::write(place.path("t"), format!("{text}\n")).expect("a file");
    let out = place.run(&["cp", "--ticket-file", "t", "ticket:", "again/"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert!(!printed(&out).contains("hint"), "{}", printed(&out));
    assert_eq!(listed(&place)[0]["state"], "used");

    let out = place
        .command(&["cp", "--json", "ticket:", "third/"])
        .env("FARHAUL_TICKET", &text)
        .output()
        .expect("it starts");
    assert_eq!(code(&out), 15, "{}", printed(&out));
    assert!(
        printed(&out).contains("used 2 times, as often as it may be"),
        "{}",
        printed(&out)
    );
    let object: Value = serde_json::from_slice(&out.stdout).expect("one object");
    assert_eq!(object["exit"]["name"], "auth");
    assert!(!place.path("third").exists());

    // Its mode is "fetch".
    let other = ticket(&place, &server, "s", &[]);
    fs::write(place.path("f"), "f").expect("a file");
    let out = place.run(&["cp", "f", &other]);
    assert_eq!(code(&out), 15, "{}", printed(&out));
    assert!(
        printed(&out).contains("unknown or not allowed"),
        "{}",
        printed(&out)
    );
    assert_eq!(listed(&place)[1]["used"], 0, "what is refused is no use");
}

#[test]
fn an_interrupted_copy_goes_on_under_the_use_it_began() {
    let place = Place::new();
    let server = server(&place);
    fs::write(place.path("share/big"), noise(2, 24 << 20)).expect("a file");
    let text = ticket(&place, &server, "s/big", &["--max-rate", "40Mbit"]);
    fs::create_dir(place.path("into")).expect("a folder");
    fs::write(place.path("t"), &text).expect("a file");
    let args = ["cp", "--ticket-file", "t", "--json", "ticket:", "into/"];
    let mut first = place.command(&args).spawn().expect("it starts");
    await_part(&place.path("into"), 9 << 20, &mut first);
    first.kill().expect("it runs");
    first.wait().expect("our own child");
    assert_eq!(listed(&place)[0]["used"], 1);
    let out = place.run(&["cp", "--ticket-file", "t", "ticket:", "elsewhere/"]);
    assert_eq!(
        code(&out),
        15,
        "another copy is another use: {}",
        printed(&out)
    );
    let out = place.run(&args);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let object: Value = serde_json::from_slice(&out.stdout).expect("one object");
    assert!(
        object["resumed_bytes"].as_u64().expect("a number") > 1 << 20,
        "{object}"
    );
    assert_eq!(
        fs::read(place.path("into/big")).expect("it is there"),
        noise(2, 24 << 20)
    );
    let out = place.run(&args);
    assert_eq!(code(&out), 15, "it had ended well: {}", printed(&out));
}

#[test]
fn a_ticket_that_is_over_says_why_and_one_that_is_spoilt_how() {
    let place = Place::new();
    let server = server(&place);
    fs::write(place.path("share/f"), "f").expect("a file");
    let refused = |ticket: &str, why: &str| {
        let out = place.run(&["cp", ticket, "here"]);
        assert_eq!(code(&out), 15, "{}", printed(&out));
        assert!(printed(&out).contains(why), "{why}: {}", printed(&out));
    };
    let text = ticket(&place, &server, "s/f", &[]);
    let listed = listed(&place);
    let id = listed[0]["id"].as_str().expect("text");
    refused(&text[..text.len() - 9], "is cut off: 9 letters are missing");
    let at = text.len() - 30;
    let other = if &text[at..=at] == "7" { "8" } else { "7" };
    let mistyped = format!("{}{other}{}", &text[..at], &text[at + 1..]);
    refused(&mistyped, "is mistyped: its checksum does not match");
    let out = place.run(&["ticket", "revoke", "--config", "serve.toml", id]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    refused(&text, "the ticket was revoked");
    let out = place.run(&["ticket", "revoke", "--config", "serve.toml", "nonesuch"]);
    assert_eq!(code(&out), 2, "{}", printed(&out));

    let short = ticket(&place, &server, "s/f", &["--ttl", "1s"]);
    let book = place.path("tickets.json");
    let text = fs::read_to_string(&book).expect("it is there");
    let mut records: Vec<Value> = serde_json::from_str(&text).expect("a list");
    records[1]["expires"] = 1_700_000_000.into();
    // As old as that it would be forgotten at the next change; nothing changes it here.
    replace(&book, &serde_json::to_string(&records).expect("text"));
    refused(&short, "the ticket expired at 2023-11-14T22:13:20Z");

    // The server has forgotten it, or never knew it.
    replace(&book, "[]");
    refused(&short, "does not know the ticket");
}

#[test]
fn a_ticket_and_a_configuration_may_come_through_a_pipe() {
    let place = Place::new();
    let server = server(&place);
    fs::write(place.path("share/f"), "f").expect("a file");
    let config = fs::read_to_string(place.path("serve.toml")).expect("it is there");
    let args = [
        "ticket",
        "new",
        "--config",
        "/dev/stdin",
        "--address",
        &server.at,
    ];
    let args = [&args[..], &["--share", "s/f", "--uses", "2"]].concat();
    let out = place
        .fed(&args, &config)
        .wait_with_output()
        .expect("it ends");
    assert_eq!(code(&out), 0, "{}", printed(&out));
    let text = String::from_utf8(out.stdout).expect("text");
    for verb in [&["ls"][..], &["cp"]] {
        let more = if verb == ["cp"] { &["here"][..] } else { &[] };
        let args = [verb, &["--ticket-file", "/dev/stdin", "ticket:"], more].concat();
        let out = place.fed(&args, &text).wait_with_output().expect("it ends");
        assert_eq!(code(&out), 0, "{verb:?}: {}", printed(&out));
    }
    assert_eq!(fs::read(place.path("here")).expect("it is there"), b"f");
}

/// Replaces the file as the program does it.
fn replace(file: &PathBuf, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let new = file.with_extension("other");
    fs::write(&new, text).expect("a file");
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).expect("our own");
    fs::rename(&new, file).expect("the same folder");
}

#[test]
fn a_ticket_is_judged_as_one_also_where_any_key_is_allowed() {
    let place = Place::new();
    let alice = key(&place, "alice");
    key(&place, "server.key");
    fs::write(place.path("share/f"), "f").expect("a file");
    let share = |name: &str, allow: &str| {
        format!("[[share]]\nname = '{name}'\npath = 'DIR/share'\nmode = 'rw'\nallow = [{allow}]\n")
    };
    let server = serve(
        &place,
        &format!(
            "listen = '127.0.0.1:0'\nidentity = 'DIR/server.key'\ntickets = 'DIR/tickets.json'\n\
             [[peer]]\nname = 'alice'\nkey = '{alice}'\n{}{}{}",
            share("s", "'any', 'ticket'"),
            share("open", "'any'"),
            share("own", "'alice'")
        ),
    );
    let refused = |from: &str, to: &str, status: i32, why: &str| {
        let out = place.run(&["cp", "--trust-any", from, to]);
        assert_eq!(code(&out), status, "{why}: {}", printed(&out));
        assert!(printed(&out).contains(why), "{why}: {}", printed(&out));
    };
    let text = ticket(&place, &server, "s/f", &[]);
    refused("serve.toml", &text, 15, "unknown or not allowed");
    let out = place.run(&["cp", &text, "here"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    refused(&text, "again", 15, "used once, as often as it may be");
    // The place is as open as before to who has a key and no ticket.
    let own = server.to("f");
    let out = place.run(&["cp", "--trust-any", &own, "by-key"]);
    assert_eq!(code(&out), 0, "{}", printed(&out));

    let made = [
        "ticket",
        "new",
        "--tickets",
        "tickets.json",
        "-i",
        "server.key",
    ];
    let more = ["--address", &server.at, "--share", "open/f"];
    let out = place.run(&[&made[..], &more].concat());
    let other = String::from_utf8(out.stdout).expect("text");
    refused(other.trim(), "again", 15, "share 'open' takes no tickets");

    // Where tickets cannot be read, none can be distinguished from another key.
    replace(&place.path("tickets.json"), "[{");
    refused(&own, "again", 1, "cannot read or write its tickets");
    let out = copy(&place, "alice", &own, "by-name");
    assert_eq!(code(&out), 0, "{}", printed(&out));
}

#[test]
fn a_delivery_by_ticket_stays_below_its_place() {
    let place = Place::new();
    let server = server(&place);
    fs::write(place.path("f"), "content").expect("a file");
    let text = ticket(&place, &server, "s/drop/", &["--mode", "create"]);
    let out = place.run(&["cp", "f", &text]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(
        fs::read(place.path("share/drop/f")).expect("it is there"),
        b"content"
    );
    let out = place.run(&["cp", &text, "back/"]);
    assert_eq!(code(&out), 15, "{}", printed(&out));
}

/// The text of a file in the share.
fn shared(place: &Place, name: &str) -> String {
    let file = place.path("share").join(name);
    fs::read_to_string(&file).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn what_is_delivered_by_ticket_to_a_place_that_is_missing_is_put_below_it() {
    let place = Place::new();
    let server = server(&place);
    for name in ["a", "b"] {
        fs::write(place.path(name), name).expect("a file");
    }
    fs::write(place.path("share/file"), "old").expect("a file");
    for mode in ["create", "rw"] {
        let more = ["--mode", mode, "--uses", "9"];
        let text = ticket(&place, &server, &format!("s/{mode}"), &more);
        fs::write(place.path("t"), text).expect("a file");
        for (name, to) in [
            ("a", "ticket:"),
            ("b", "ticket:"),
            ("a", "ticket:named"),
            ("a", "ticket:deep/er/"),
        ] {
            let out = place.run(&["cp", "--ticket-file", "t", name, to]);
            assert_eq!(code(&out), 0, "{mode} {to}: {}", printed(&out));
        }
        for (at, name) in [("a", "a"), ("b", "b"), ("named", "a"), ("deep/er/a", "a")] {
            assert_eq!(shared(&place, &format!("{mode}/{at}")), name);
        }
        let out = place.run(&["cp", "--ticket-file", "t", "a", "ticket:../x"]);
        assert_eq!(code(&out), 2, "{}", printed(&out));
        assert!(printed(&out).contains("has no '..'"), "{}", printed(&out));
    }
    let out = place.run(&["cp", "--ticket-file", "t", "ticket:deep/er/a", "-"]);
    assert_eq!(out.stdout, b"a", "{}", printed(&out));
    let out = place.run(&["ls", "--ticket-file", "t", "ticket:deep/", "ticket:named"]);
    let listed = String::from_utf8_lossy(&out.stdout);
    assert!(
        listed.contains("ticket:deep/:") && listed.contains("er/"),
        "{listed}"
    );
    assert!(listed.contains("ticket:named:"), "{listed}");
    // A file that is there stays one.
    let text = ticket(&place, &server, "s/file", &["--mode", "rw"]);
    let out = place.run(&["cp", "a", &text]);
    assert_eq!(code(&out), 0, "{}", printed(&out));
    assert_eq!(shared(&place, "file"), "a");
}

#[test]
fn where_no_ticket_is_found_the_file_that_was_looked_at_is_named() {
    let place = Place::new();
    key(&place, "server.key");
    write(&place, SHARES);
    let all = |out: &Output| format!("{}{}", String::from_utf8_lossy(&out.stdout), printed(out));
    let own = place.path("config/farhaul/tickets.json");
    for (args, expected, status) in [
        (&["ticket", "list"][..], "there are no tickets in ", 0),
        (&["ticket", "revoke", "x"], "there is no ticket 'x' in ", 2),
    ] {
        let out = place.run(args);
        assert_eq!(code(&out), status, "{}", printed(&out));
        let text = all(&out);
        let whole = format!("{expected}{}", own.display());
        assert!(text.contains(&whole) && text.contains("--config"), "{text}");
        let out = place.run(&[args, &["--config", "serve.toml"]].concat());
        let whole = format!("{expected}{}", place.path("tickets.json").display());
        let text = all(&out);
        assert!(
            text.contains(&whole) && !text.contains("--config"),
            "{text}"
        );
    }
}

#[test]
fn tickets_are_made_for_shares_that_take_them() {
    let place = Place::new();
    key(&place, "server.key");
    write(&place, SHARES);
    let made = |share: &str, more: &[&str]| {
        let args = ["ticket", "new", "--config", "serve.toml", "--share", share];
        place.run(&[&args[..], more].concat())
    };
    for (share, more, expected) in [
        (
            "closed",
            &[][..],
            "takes no tickets: add \"ticket\" to its allow",
        ),
        ("sss", &[], "no share 'sss'"),
        ("s", &["--ttl", "0s"], "from 1s to"),
        ("s", &["--uses", "0"], "0 is not in 1..=10000"),
        (
            "s",
            &["--mode", "rx"],
            "write ro, wo, create, rw or rw,delete",
        ),
        ("s/../x", &[], "no '..'"),
        ("s", &["--address", "a b"], "--address"),
    ] {
        let out = made(share, more);
        assert_eq!(code(&out), 2, "{share} {more:?}: {}", printed(&out));
        assert!(
            printed(&out).contains(expected),
            "{share}: {}",
            printed(&out)
        );
    }
    assert!(!place.path("tickets.json").exists());
}
