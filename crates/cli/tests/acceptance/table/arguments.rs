//! Cases of arguments.

use super::{
    BAD_INPUT, BETWEEN,
    By::{Otherwise, Refuses, Test},
    CP_LANES, CP_PIPES, CP_SEVERAL, CP_SHARDS, Row,
};

pub(super) const ARGUMENTS: &[Row] = &[
    Row(
        "no arguments, an unknown flag or command, an abbreviation",
        &[
            Refuses(&[], 2, "Usage"),
            Refuses(&["cp"], 2, "<SRC> [DST]"),
            Refuses(&["bnech"], 2, "bench"),
            Refuses(&["cp", "--exclud", "x", "f", "h::s"], 2, "--exclude"),
            Refuses(&["bench", "h", "--prot", "haul"], 2, "--protocol"),
            Refuses(&["cp", "--nonsense", "f", "h::s"], 2, "--nonsense"),
            Refuses(&["f", "h::s"], 2, "farhaul cp SRC DST"),
            Test(BAD_INPUT, "unknown_names_get_the_nearest_one"),
        ],
    ),
    Row(
        "both sides are local",
        &[
            Refuses(&["cp", "f", "g"], 2, "use cp(1)"),
            Refuses(&["cp", "f", "::s/"], 2, "the host is missing before ::"),
            Refuses(&["cp", "f", "ticket:x"], 2, "there is no ticket"),
            Otherwise("there is no --local: tests and users start a server on the loopback"),
        ],
    ),
    Row(
        "both sides are remote",
        &[
            Test(BAD_INPUT, "what_contradicts_itself_is_refused"),
            Refuses(&["cp", "h:a", "i::s/b"], 2, "farhaul ticket new"),
            Test(BETWEEN, "files_go_from_one_host_to_another"),
            Test(
                BETWEEN,
                "where_udp_is_blocked_between_them_this_machine_relays",
            ),
            Test(BETWEEN, "a_copy_that_is_not_to_be_relayed_fails"),
            Otherwise(
                "hosts of ssh send to each other; only a server sends to nobody but who fetches",
            ),
        ],
    ),
    Row(
        "sources on different hosts, or of different users",
        &[
            Refuses(&["cp", "a:x", "b:y", "."], 2, "a and b"),
            Refuses(&["cp", "me@a:x", "you@a:y", "."], 2, "me@a and you@a"),
            Test(
                BAD_INPUT,
                "flags_of_other_programs_are_answered_with_what_to_write",
            ),
        ],
    ),
    Row(
        "a shard that there is not, or of a copy that is not divided",
        &[
            Refuses(&["cp", "--shard", "0/4", "d", "h::s"], 2, "1/4 to 4/4"),
            Refuses(&["cp", "--shard", "5/4", "d", "h::s"], 2, "1/4 to 4/4"),
            Refuses(&["cp", "--shard", "1/0", "d", "h::s"], 2, "1 or more"),
            Refuses(&["cp", "--shard", "x", "d", "h::s"], 2, "as in 1/4"),
            Refuses(&["cp", "--shard", "-1/4", "d", "h::s"], 2, "as in 1/4"),
            Refuses(&["cp", "--shard=1/4", "h::s/x", "d"], 2, "have the files"),
            Refuses(
                &["cp", "--shard=1/4", "a:x", "b:y"],
                2,
                "another host sends",
            ),
            Refuses(&["cp", "--shard=1/4", "-", "h::s/x"], 2, "through a pipe"),
            Refuses(
                &["cp", "--shard=1/4", "--delete", "d", "h::s"],
                2,
                "once with --delete",
            ),
            Refuses(&["cp", "--shard=1/4", "-a", "d", "h::s"], 2, "hard links"),
        ],
    ),
    Row(
        "reports of shards that are missing, of several copies, or no reports",
        &[
            Refuses(&["cp", "--merge"], 2, "REPORT"),
            Refuses(&["cp", "--merge", "none.json"], 2, "none.json"),
            Refuses(&["cp", "--merge", "f"], 2, "not a report of a shard"),
            Refuses(&["cp", "--merge", "d"], 2, "d: "),
            Refuses(&["cp", "--merge", "--shard=1/2", "f"], 2, "--shard"),
            Test(CP_SHARDS, "in_any_order_and_what_is_missing_is_named"),
        ],
    ),
    Row(
        "a rate without a unit",
        &[
            Test(BAD_INPUT, "every_rate_needs_its_unit"),
            Otherwise(
                "a size without a unit is in bytes, as for every other program; only rates are in bits or bytes",
            ),
        ],
    ),
    Row(
        "1.5G",
        &[
            Refuses(
                &["cp", "--max-rate", "1.5G", "f", "h::s"],
                2,
                "1.5Gbit or 1.5GB",
            ),
            // As a size it is valid: the source is missing.
            Refuses(&["cp", "--max-size", "1.5G", "none", "h::s"], 3, "none"),
        ],
    ),
    Row(
        "negative, not a number, out of range",
        &[
            Refuses(
                &["cp", "--max-rate", "NaNMbit", "f", "h::s"],
                2,
                "not a rate",
            ),
            Refuses(
                &["cp", "--max-rate", "10Pbit", "f", "h::s"],
                2,
                "from 1bit to 1000Tbit",
            ),
            Refuses(&["cp", "--max-size", "-5", "f", "h::s"], 2, "negative"),
            Test(
                BAD_INPUT,
                "what_to_copy_and_how_is_checked_before_anything_is_connected",
            ),
            Test(BAD_INPUT, "sizes_times_shares_and_counts_are_checked"),
            Test(CP_LANES, "a_number_of_lanes_that_cannot_be_is_refused"),
        ],
    ),
    Row(
        "--rtt, --bandwidth or --window of a copy",
        &[
            Refuses(
                &["cp", "--rtt", "9ms", "f", "h::s"],
                2,
                "farhaul measures it",
            ),
            Refuses(
                &["cp", "--bandwidth", "9Mbit", "f", "h::s"],
                2,
                "farhaul measures it",
            ),
            Refuses(
                &["cp", "--window", "5", "f", "h::s"],
                2,
                "farhaul measures it",
            ),
        ],
    ),
    Row(
        "an empty path, a missing share, an invalid port",
        &[
            Refuses(&["cp", "", "h::s"], 2, "an empty path"),
            Refuses(&["cp", "f", "h::"], 2, "the share is missing"),
            Refuses(&["cp", "f", "h:0::s/x"], 2, "not a port"),
            Refuses(&["cp", "f", "farhaul://h:99999/s"], 2, "not a port"),
            Test(
                BAD_INPUT,
                "invalid_places_are_reported_with_the_correct_form",
            ),
            Test(
                CP_SEVERAL,
                "what_cannot_be_one_command_is_refused_with_what_to_do",
            ),
        ],
    ),
    Row(
        "flags that contradict each other, or that mean nothing with pipes and mirrors",
        &[
            Test(
                BAD_INPUT,
                "what_to_copy_and_how_is_checked_before_anything_is_connected",
            ),
            Test(BAD_INPUT, "what_contradicts_itself_is_refused"),
            Test(CP_PIPES, "names_and_folders"),
            Refuses(&["ls", "-R", "h::"], 2, "--recursive means nothing"),
            Refuses(
                &["ls", "--ticket-file", "f", "h::"],
                2,
                "write ticket: as the place",
            ),
            Refuses(
                &["ls", "-o", "Port=2", "h::"],
                2,
                "--ssh-option means nothing",
            ),
            Refuses(
                &["ls", "-6", "127.0.0.1::"],
                11,
                "127.0.0.1 has no IPv6 address",
            ),
        ],
    ),
    Row(
        "a pipe where a file is to be read",
        &[Test(
            BAD_INPUT,
            "a_pipe_in_place_of_a_file_is_not_waited_for",
        )],
    ),
];
