//! Copies to a server get through where UDP does not: over TCP, if the server takes that.

use std::{fs, path::Path};

use super::{
    firewall::{HOST, behind_a_firewall, object_of, objects_of},
    kit::{command, side_by_side},
};

/// The words that start a server in the background, and wait until it listens.
fn server(flags: &str) -> String {
    format!(
        "mkdir in; $farhaul serve --share in=$PWD/in:rw --allow any --listen 17992 {flags} >/dev/null 2>log & server=$!; trap 'kill $server' EXIT\n\
         until grep -q 'listening on .*udp' log; do kill -0 $server; sleep .05; done\n\
         cp=\"$cp --json --trust-any\"\n"
    )
}

fn same(a: &Path, b: &Path) {
    let read = |path| fs::read(path).expect("there");
    assert!(read(a) == read(b), "{} and {}", a.display(), b.display());
}

/// A folder with 30 MB in `f`.
fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a folder");
    fs::write(place.path().join("f"), vec![7; 30_000_000]).expect("ours");
    place
}

#[test]
fn a_firewall_that_rejects_is_called_one_by_every_command() {
    let place = place();
    let words = format!(
        "{} nft add rule inet t i ip daddr {HOST} udp dport 17992 reject with icmp type admin-prohibited; set +e\n\
         $cp f {HOST}::in/g; echo $?; $farhaul ls --udp-timeout 2s --trust-any {HOST}::; echo $?\n\
         $farhaul doctor --udp-timeout 2s {HOST}; echo $?",
        server("")
    );
    let Some(output) = behind_a_firewall(&mut command(place.path(), &[]), &words) else {
        return;
    };
    let found = String::from_utf8_lossy(&output.stdout);
    let codes = found.lines().filter(|line| *line == "16").count();
    assert_eq!(codes, 3, "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    let why = format!("a firewall at or before {HOST} rejects UDP 17992");
    assert_eq!(errors.matches(&why).count(), 2, "{errors}");
    // What `doctor` found is its output.
    assert_eq!(found.matches(&format!("fix: {why}")).count(), 1, "{found}");
}

#[test]
fn where_udp_is_blocked_tcp_carries_the_copy() {
    // As long as is waited for by default, and shorter.
    let cases = [
        ("block daddr dport", "UDP from here to there is blocked", ""),
        (
            "block saddr sport",
            "UDP from there to here is blocked",
            "--udp-timeout 1s",
        ),
    ];
    side_by_side(&cases, |(rule, said, first)| {
        let place = place();
        let words = format!(
            "{} {rule}; $cp {first} f {HOST}::in/g; cp=\"$cp --udp-timeout 1s\"; \
             $cp {HOST}::in/g back; $cp -n f {HOST}::in/h; \
             $farhaul ls --udp-timeout 1s --trust-any --json {HOST}::; $farhaul doctor --udp-timeout 1s --json {HOST}",
            server("--tcp")
        );
        let Some(output) = behind_a_firewall(&mut command(place.path(), &[]), &words) else {
            return;
        };
        assert_eq!(output.status.code(), Some(0), "{rule}: {output:?}");
        same(&place.path().join("f"), &place.path().join("in/g"));
        same(&place.path().join("f"), &place.path().join("back"));
        let mut objects = objects_of(&output);
        assert_eq!(objects.len(), 5);
        let doctor = objects.pop().expect("five");
        assert_eq!(doctor["path"]["carrier"], "tcp", "{doctor}");
        let shares = objects.pop().expect("four");
        assert_eq!(shares["entries"][0]["path"], "in", "{shares}");
        for object in objects {
            assert_eq!(object["path"], "tcp");
            let warning = object["warnings"][0].as_str().unwrap_or_default();
            assert!(warning.contains(said), "{rule}: {warning}");
        }
        // The server knows who it was, although the datagrams came from a socket of its own.
        let log = fs::read_to_string(place.path().join("log")).expect("written");
        let of_host = format!("{HOST}:");
        let peers = log.lines().filter(|line| {
            let behind_the_time = line.split_once(' ').map(|(_, rest)| rest);
            behind_the_time.is_some_and(|rest| rest.starts_with(&of_host))
        });
        assert!(peers.count() >= 3, "{log}");
    });
}

#[test]
fn without_udp_no_answer_by_udp_is_waited_for() {
    let place = place();
    let words = format!(
        "{} $cp --udp-timeout 0 f {HOST}::in/g",
        server("--tcp 18056")
    );
    let words = words.replace("--udp-timeout 0", "--udp-timeout 0 --tcp-port 18056");
    let Some(output) = behind_a_firewall(&mut command(place.path(), &[]), &words) else {
        return;
    };
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let object = object_of(&output);
    assert_eq!(object["path"], "tcp");
    assert_eq!(
        object["warnings"].as_array().map(Vec::len),
        Some(0),
        "{object}"
    );
    same(&place.path().join("f"), &place.path().join("in/g"));
}

#[test]
fn a_server_that_takes_no_tcp_is_not_reached_and_the_message_names_the_remedy() {
    let place = place();
    let words = format!(
        "{} block daddr dport; set +e; $cp --udp-timeout 1s f {HOST}::in/g; $cp --udp-timeout 0 f {HOST}::in/g; \
         true",
        server("")
    );
    let Some(output) = behind_a_firewall(&mut command(place.path(), &[]), &words) else {
        return;
    };
    let objects = objects_of(&output);
    assert_eq!(objects.len(), 2);
    for object in objects {
        assert_eq!(object["exit"]["code"], 16, "{object}");
        let fix = object["exit"]["fix"].as_str().unwrap_or_default();
        assert!(fix.contains("--tcp"), "{object}");
    }
}

#[test]
fn a_copy_goes_on_over_tcp_when_udp_is_blocked_meanwhile() {
    let place = tempfile::tempdir().expect("a folder");
    fs::write(place.path().join("f"), vec![7; 60_000_000]).expect("ours");
    // Its rate keeps it from being over before the block, on a machine where a look at what has arrived takes seconds too.
    let words = format!(
        "{} $cp --idle 5s --max-rate 8MB f {HOST}::in/g > copied & copy=$!\n\
         until [ \"$(cat in/.*-part 2>/dev/null | tr -d '\\0' | head -c 8000000 | wc -c)\" = 8000000 ]; do sleep .05; done; \
         block daddr dport; block saddr sport; wait $copy; cat copied",
        server("--tcp")
    );
    let Some(output) = behind_a_firewall(&mut command(place.path(), &[]), &words) else {
        return;
    };
    let object = object_of(&output);
    assert_eq!(output.status.code(), Some(0), "{object}");
    same(&place.path().join("f"), &place.path().join("in/g"));
    assert_eq!(object["path"], "tcp");
    let warning = object["warnings"][0].as_str().unwrap_or_default();
    assert!(warning.contains("no longer"), "{warning}");
    // Both sessions count; what the first placed and could not report any more is found in place by the second.
    let [placed, found] =
        ["bytes_payload", "resumed_bytes"].map(|key| object[key].as_u64().unwrap_or_default());
    assert!(placed + found >= 60_000_000, "{object}");
    assert!(found < 4_000_000, "{object}");
    assert_eq!(object["files"]["sent"], 1, "{object}");
}

#[test]
fn silence_is_told_of_and_so_is_its_end() {
    let words = format!(
        "{} $cp --max-rate 4MB f {HOST}::in/g 2> said > events & copy=$!\n\
         until [ \"$(cat in/.*-part 2>/dev/null | tr -d '\\0' | head -c 2000000 | wc -c)\" = 2000000 ]; do sleep .05; done; \
         block daddr dport; block saddr sport; began=$(date +%s); \
         until grep -q silent events said; do kill -0 $copy; sleep .05; done; [ $(($(date +%s) - began)) -lt 25 ]; \
         nft flush chain inet t i; wait $copy",
        server("")
    );
    let json = [
        "--json-stream",
        "\"type\":\"silent\"",
        "\"type\":\"answering\"",
    ];
    let line = ["--progress line", "silent for", "answers again"];
    // Where only sent datagrams are lost, the other end is heard for as long as it waits: 30 s.
    side_by_side(
        &[(json, false), (line, false), (json, true)],
        |&([flag, begins, ends], way_back)| {
            let place = tempfile::tempdir().expect("a folder");
            fs::write(place.path().join("f"), vec![7; 40_000_000]).expect("ours");
            let mut words = words.replace("--json ", &format!("{flag} "));
            if way_back {
                words = words.replace("block saddr sport; ", "");
            }
            let Some(output) = behind_a_firewall(&mut command(place.path(), &[]), &words) else {
                return;
            };
            let said = ["events", "said"]
                .map(|name| fs::read_to_string(place.path().join(name)).expect("written"))
                .concat();
            assert_eq!(output.status.code(), Some(0), "{said}");
            for words in [begins, ends] {
                assert_eq!(said.matches(words).count(), 1, "{words}: {said}");
            }
        },
    );
}
