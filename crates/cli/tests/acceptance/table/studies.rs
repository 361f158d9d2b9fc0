//! Cases of emulator, simulator, laboratory and bench.

use super::{
    BAD_INPUT,
    By::{Otherwise, Refuses, Test},
    LAB, Row, SCENARIOS, STUDY, WAN,
};

pub(super) const STUDIES: &[Row] = &[
    Row(
        "a path that cannot be",
        &[
            Refuses(
                &["wan", "run", "--rtt", "-5ms", "--", "true"],
                2,
                "must not be negative",
            ),
            Refuses(&["sim", "--rtt", "100"], 2, "unit"),
            Test(BAD_INPUT, "sizes_times_shares_and_counts_are_checked"),
            Refuses(&["sim", "--rtt", "1000000s"], 2, "at most 1h"),
            Test(WAN, "bad_networks_are_refused_with_cause_and_fix"),
        ],
    ),
    Row(
        "a range of seeds that is none",
        &[
            Refuses(&["sim", "run", "x.toml", "--seed", "5..1"], 2, "5..1"),
            Test(SCENARIOS, "invalid_arguments_are_refused"),
        ],
    ),
    Row(
        "a run that would need more memory than there is",
        &[
            Refuses(&["sim", "--interval", "1ns"], 2, "at most 1000000 samples"),
            Refuses(
                &["sim", "--interval", "1us", "--secs", "2", "--flows", "4"],
                2,
                "a longer one",
            ),
            Refuses(&["sim", "--secs", "1000000"], 2, "from 1 to 100000"),
            Refuses(&["sim", "--flows", "100000"], 2, "1..=64"),
            Test(
                SCENARIOS,
                "a_mistake_is_refused_with_file_line_and_the_nearest_name",
            ),
        ],
    ),
    Row(
        "a rate above what this machine emulates",
        &[Test(
            WAN,
            "a_rate_above_the_calibrated_ceiling_needs_i_know",
        )],
    ),
    Row(
        "wan netem",
        &[
            Refuses(&["wan", "netem", "--dev", "eth1"], 2, "netem"),
            Test(WAN, "everything_it_started_goes_with_it_when_it_is_killed"),
            Otherwise(
                "no interface of this machine is touched: wan run makes namespaces of its own",
            ),
        ],
    ),
    Row(
        "flags of a bench that exclude each other, an unknown protocol or law",
        &[
            Test(BAD_INPUT, "what_contradicts_itself_is_refused"),
            Refuses(&["bench", "h", "--bidir", "-R"], 2, "cannot be used with"),
            Refuses(&["bench", "h", "--protocol", "ftp"], 2, "there are: haul"),
            Test(BAD_INPUT, "unknown_names_get_the_nearest_one"),
            Refuses(&["bench", "h", "-P", "0"], 2, "1..=64"),
            Test(
                LAB,
                "a_bench_request_above_the_allowed_limits_is_refused_permanently",
            ),
        ],
    ),
    Row(
        "a figure that cannot be drawn",
        &[
            Refuses(&["bench", "h", "--plot", "a.pdf"], 2, "give svg or png"),
            Refuses(&["sim", "--plot", "a"], 2, "as a.svg or a.png"),
            Refuses(
                &["sim", "--plot", "a.svg", "--interval", "0s"],
                2,
                "nothing to --plot",
            ),
            Test(
                SCENARIOS,
                "figures_that_cannot_be_are_refused_before_anything_runs",
            ),
        ],
    ),
    Row(
        "a study that is interrupted, or has a mistake",
        &[
            Test(STUDY, "a_signal_ends_a_study_and_what_was_made_is_kept"),
            Test(STUDY, "what_is_wrong_with_a_study_is_said_with_its_place"),
            Test(STUDY, "what_a_crash_leaves_does_not_block_a_study"),
        ],
    ),
];
