use std::iter;

use super::{words::meant, *};

#[test]
fn no_flag_that_exists_is_advised_against() {
    let definition = crate::definition();
    for (command, rows) in [
        ("cp", CP),
        ("bench", BENCH),
        ("ls", LS),
        ("sim", NETWORK),
        ("wan", NETWORK),
    ] {
        let known = definition.find_subcommand(command).expect("a command");
        for flag in rows.iter().flat_map(|(flags, _)| *flags) {
            if !flag.starts_with('-') {
                continue;
            }
            let taken = known.get_arguments().any(|a| {
                let long = flag.strip_prefix("--");
                let longs = a.get_long_and_visible_aliases().unwrap_or_default();
                let shorts = a.get_short_and_visible_aliases().unwrap_or_default();
                long.map_or_else(
                    || shorts.contains(&flag.chars().nth(1).expect("a letter")),
                    |long| longs.contains(&long),
                )
            });
            assert!(!taken, "{command} {flag}");
            assert!(instead(command, flag).is_some());
        }
    }
    assert_eq!(instead("sim", "-a"), None);
}

/// Command lines as they are typed, and as they are meant.
const MEANT: &[(&str, &str)] = &[
    ("cp -avh a b", "cp -av a b"),
    ("cp -hav a b", "cp -av a b"),
    ("cp -hh a b", "cp a b"),
    ("cp -h", "cp -h"),
    ("cp -avP a b", "cp -av a b"),
    ("cp -P a b", "cp a b"),
    ("cp -P 4 a b", "cp -P 4 a b"),
    ("cp -P4 a b", "cp -P4 a b"),
    ("cp -avP 4 a b", "cp -avP 4 a b"),
    ("cp -oUser=VIP a b", "cp -oUser=VIP a b"),
    ("cp -i/k/KEYP a b", "cp -i/k/KEYP a b"),
    ("cp -hP a b", "cp a b"),
    ("cp -avhP a b", "cp -av a b"),
    ("bench -P 4 h", "bench -P 4 h"),
    ("cp --bwlimit=10m a b", "cp --max-rate=83886080bit a b"),
    ("cp --bwlimit 1000 a b", "cp --max-rate=8192000bit a b"),
    ("cp --bwlimit=1.5mb a b", "cp --max-rate=12000000bit a b"),
    ("cp --bwlimit=0 a b", "cp a b"),
    ("cp --bwlimit=fast a b", "cp --bwlimit=fast a b"),
    ("cp a -v b", "cp a -v b"),
    ("cp -ohost=x a b", "cp -ohost=x a b"),
    ("cp -vo -avh a b", "cp -vo -avh a b"),
    ("cp --exclude -avh a b", "cp --exclude -avh a b"),
    ("cp --exclude=-avh -vh a b", "cp --exclude=-avh -v a b"),
    ("cp --backup -vh a", "cp --backup -v a"),
    ("cp -- -avh b", "cp -- -avh b"),
    ("cp --progress a b", "cp --progress=auto a b"),
    ("cp --progress line a b", "cp --progress line a b"),
    ("cp --progress=none a b", "cp --progress=none a b"),
    ("cp - h::s/x", "cp - h::s/x"),
    ("cp h::s/x -", "cp h::s/x -"),
    ("ls -lh h::s", "ls -l h::s"),
    ("bench -Rh", "bench -Rh"),
    ("bench -c far -p 5201 -R", "bench far:5201 -R"),
    ("bench -t 5 far -p5201", "bench -t 5 far:5201"),
    ("bench -c ::1 --port=9", "bench [::1]:9"),
    ("bench -s", "bench serve"),
    ("bench -s -p 5201 -1", "bench serve -1 --listen=[::]:5201"),
    ("bench serve -p 9", "bench serve --listen=[::]:9"),
    (
        "bench far -C bbr -b 100M",
        "bench far --cc=bbr --rate=100Mbit",
    ),
    ("bench far -b 2.5g", "bench far --rate=2.5Gbit"),
    ("bench far -b 0", "bench far"),
    ("bench far -u -b 0", "bench far -u --rate=unlimited"),
    ("bench far -Rub0", "bench far -Ru --rate=unlimited"),
    ("cp --filter=x a b", "cp --filter=x a b"),
    ("bench far -ub10M", "bench far -u --rate=10Mbit"),
    ("bench far -Rub 10M", "bench far -Ru --rate=10Mbit"),
    ("bench far -n 100M -i 1", "bench far --bytes=100MiB -i 1"),
    ("bench far -n 1GB", "bench far --bytes=1GB"),
    ("cp -rlptgoD a b", "cp -a a b"),
    ("cp -rlptgoDvz a b", "cp -avz a b"),
    ("cp -rlpt a b", "cp -rpt a b"),
    ("cp -l a b", "cp -l a b"),
    (
        "cp --min-size=1k --max-size 2.5M a b",
        "cp --min-size=1KiB --max-size=2.5MiB a b",
    ),
    ("cp --min-size 1kB a b", "cp --min-size 1kB a b"),
    (
        "bench far -b 500Mbit -n 100M",
        "bench far --rate=500Mbit --bytes=100MiB",
    ),
    ("bench far -b fast", "bench far --rate=fast"),
    ("cp", "cp"),
    ("", ""),
];

#[test]
fn letters_among_others_are_no_help_and_values_stay_as_they_are() {
    let definition = crate::definition();
    for (typed, then) in MEANT {
        let words = |line: &str| {
            let words = iter::once("farhaul").chain(line.split_whitespace());
            words.map(OsString::from).collect::<Vec<_>>()
        };
        assert_eq!(meant(&definition, words(typed)), words(then), "{typed}");
    }
}

#[test]
fn rules_of_a_filter_keep_their_order() {
    let definition = crate::definition();
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let typed = words(&[
        "farhaul",
        "cp",
        "-f",
        "+ *.c",
        "-f- *.o",
        "--filter=exclude *",
        "a",
        "h:",
    ]);
    let then = words(&[
        "farhaul",
        "cp",
        "--exclude=+ *.c",
        "--exclude=- *.o",
        "--exclude=- *",
        "a",
        "h:",
    ]);
    assert_eq!(meant(&definition, typed), then);
}

#[test]
fn a_shell_with_options_is_ssh_with_ours() {
    let definition = crate::definition();
    for (command, then) in [
        ("ssh -p 22", Some(&["--ssh=ssh", "-oPort=22"][..])),
        (
            "ssh -p22 -i k -l me -o A=b -J j",
            Some(&[
                "--ssh=ssh",
                "-oPort=22",
                "-oIdentityFile=k",
                "-oUser=me",
                "-oA=b",
                "-oProxyJump=j",
            ]),
        ),
        ("ssh -x", None),
        ("ssh", None),
    ] {
        for flag in [&["-e", command][..], &[&format!("--rsh={command}")]] {
            let words = |flags: &[&str]| {
                let all = ["farhaul", "cp"].iter().chain(flags).chain(&["a", "h:b"]);
                all.map(OsString::from).collect::<Vec<_>>()
            };
            assert_eq!(
                meant(&definition, words(flag)),
                words(then.unwrap_or(flag)),
                "{flag:?}"
            );
        }
    }
}

#[test]
fn the_documented_table_is_the_one_that_is_used() {
    let page = include_str!("../../../../docs/reference.md");
    let shown: Vec<_> = page
        .lines()
        .skip_while(|line| !line.starts_with("| typed | here |"))
        .skip(2)
        .take_while(|line| line.starts_with("| "))
        .collect();
    let quoted = |flag: &&str| format!("`{flag}`");
    let rows = ANYWAY.iter().chain(CP).map(|(flags, text)| {
        let flags: Vec<_> = flags.iter().map(quoted).collect();
        format!("| {} | {text} |", flags.join(", "))
    });
    assert_eq!(shown, rows.collect::<Vec<_>>());
}
