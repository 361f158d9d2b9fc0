//! Cases of sources.

use super::{
    By::{Otherwise, Refuses, Test},
    CP_COPIES, CP_FAULTS, CP_LISTS, CP_MANY, CP_ODD, HERE, HOSTILE_CLIENT, MANY, NAMES, REFUSALS,
    Row, SENDER, TRANSFERS,
};

pub(super) const SOURCES: &[Row] = &[
    Row(
        "a source is missing",
        &[
            Refuses(&["cp", "no0", "no1", "h::s"], 3, "no1: No such file"),
            Test(
                HERE,
                "of_many_missing_sources_ten_are_named_and_of_some_each",
            ),
        ],
    ),
    Row(
        "a source cannot be read",
        &[
            Test(
                CP_FAULTS,
                "a_source_that_cannot_be_read_is_named_and_the_others_arrive",
            ),
            Test(CP_FAULTS, "if_no_source_can_be_read_nothing_is_made"),
            Otherwise("there is no --failures: with --json they are listed in `failures`"),
        ],
    ),
    Row(
        "a fifo, a socket, a device",
        &[
            Test(HERE, "fifos_and_devices_are_named_and_not_read"),
            Test(CP_ODD, "what_is_no_file_is_named_and_the_rest_arrives"),
            Test(CP_ODD, "pipes_and_sockets_are_not_replaced_by_files"),
            Test(
                CP_ODD,
                "what_the_kernel_makes_when_it_is_read_is_named_and_skipped",
            ),
            Otherwise(
                "neither --specials nor --copy-devices: a copy is of files, and - is for streams",
            ),
        ],
    ),
    Row(
        "links in circles; '..', an absolute path, NUL, 4096 bytes or a name of 256 in a list",
        &[
            Test(HERE, "links_in_circles_are_links_and_no_way"),
            Test(HERE, "a_path_that_no_system_call_takes_is_refused_alone"),
            Test(CP_LISTS, "names_that_cannot_be_are_named_with_the_reason"),
            Test(
                CP_LISTS,
                "where_names_end_in_nul_a_line_feed_is_part_of_one",
            ),
            Test(CP_LISTS, "a_list_of_nothing_but_such_names_is_no_success"),
        ],
    ),
    Row(
        "names of any bytes",
        &[
            Test(NAMES, "odd_names_arrive_byte_by_byte"),
            Test(HERE, "every_byte_that_a_name_may_have_arrives"),
            Otherwise("there is no Windows"),
        ],
    ),
    Row(
        "names that are one at the destination",
        &[
            Test(
                "crates/transfer/src/receiver/tests/names.rs",
                "names_that_a_directory_does_not_distinguish_are_reported",
            ),
            Test(
                "crates/transfer/src/receiver/tests/names.rs",
                "two_files_listed_by_one_name_are_not_mixed",
            ),
            Test(
                CP_COPIES,
                "of_two_files_for_one_name_the_first_arrives_whole",
            ),
            Otherwise(
                "there is no --rename-invalid: which of two names a file gets would depend on the order of a folder",
            ),
        ],
    ),
    Row(
        "a peer that sends paths out of the destination, twice, or sizes and counts that are lies",
        &[
            Test(
                "crates/transfer/src/requested.rs",
                "only_what_was_requested_may_be_listed",
            ),
            Test(
                HOSTILE_CLIENT,
                "a_delivery_writes_beneath_what_it_named_and_nowhere_else",
            ),
            Test(
                "crates/transfer/src/wire/path.rs",
                "paths_that_leave_the_tree_are_refused",
            ),
            Test(
                "crates/transfer/src/wire/message/tests.rs",
                "lies_are_refused",
            ),
            Test(
                "crates/transfer/src/fuzz.rs",
                "a_client_that_fetches_survives_any_server",
            ),
            Test(
                "crates/transfer/src/fuzz.rs",
                "a_server_survives_any_client",
            ),
            Test(NAMES, "nothing_leaves_a_share"),
            Test(
                "crates/cli/tests/compat_ttp.rs",
                "a_lying_server_gets_nothing_written",
            ),
        ],
    ),
    Row(
        "a file grows, shrinks, or changes while it is sent",
        &[
            Test(
                CP_FAULTS,
                "a_source_that_keeps_changing_is_not_left_under_its_name",
            ),
            Test(REFUSALS, "a_changing_source_is_tried_again_and_then_named"),
            Test(
                REFUSALS,
                "a_source_rewritten_in_place_with_its_time_put_back_is_no_mix",
            ),
        ],
    ),
    Row(
        "a file vanishes after it was listed, or while it is sent",
        &[
            Test(HERE, "files_that_vanish_are_named_and_the_others_arrive"),
            Test(
                "crates/transfer/src/receiver/tests/words.rs",
                "what_is_given_up_while_it_is_checked_is_over_and_not_asked_for_again",
            ),
        ],
    ),
    Row(
        "a tree that changes all the time",
        &[Test(
            HERE,
            "a_tree_that_never_rests_is_copied_without_a_wrong_file",
        )],
    ),
    Row(
        "the disk of the source reports an error",
        &[
            Test(
                SENDER,
                "what_the_disk_does_not_read_is_named_and_the_others_are_sent",
            ),
            Test(TRANSFERS, "what_was_found_once_stays_mended"),
            Test(TRANSFERS, "a_disk_that_lies_is_found_out"),
            Otherwise(
                "it is not read three times: the kernel has tried again, and the same command does",
            ),
        ],
    ),
    Row(
        "no file, empty folders and files, ten million files, folders 255 deep",
        &[
            Test(CP_ODD, "nothing_deep_and_empty_simply_work"),
            Test(
                CP_ODD,
                "thousands_of_small_files_arrive_each_with_its_content",
            ),
            Test(
                CP_MANY,
                "more_files_than_are_listed_ahead_arrive_and_are_found_there",
            ),
            Test(CP_MANY, "a_million_files_arrive_and_are_found_there"),
            Test(MANY, "each_of_them_arrives_once_with_its_content"),
        ],
    ),
    Row(
        "holes, and lengths beyond 2^53",
        &[
            Test(CP_ODD, "a_hundred_gib_of_holes_cost_what_is_in_them"),
            Test(
                "crates/transfer/src/digest.rs",
                "a_huge_hole_is_quick_and_differs_from_a_smaller_one",
            ),
            Test("crates/transfer/src/table.rs", "offsets_do_not_overflow"),
        ],
    ),
    Row(
        "a destination that is the source, or in it, or around it",
        &[
            Test(HERE, "a_copy_onto_itself_changes_nothing"),
            Test(HERE, "a_copy_into_its_own_source_ends_and_has_each_file"),
        ],
    ),
    Row(
        "times before 1970 and far ahead",
        &[Test(HERE, "times_of_any_year_arrive_and_are_recognized")],
    ),
];
