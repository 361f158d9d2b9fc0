//! Cases of destinations, and of their content.

use super::{
    By::{Otherwise, Test},
    CP_COPIES, CP_ENDS, CP_FAULTS, CP_FILE_SYSTEMS, CP_MIRROR, CP_ODD, CP_PIPES, CP_POLICY,
    CP_SELECTION, CP_UNREAD, FILES, HERE, LACKS, NAMES, RECEIVER_MIRROR, REFUSALS, Row, TRANSFERS,
};

pub(super) const DESTINATIONS: &[Row] = &[
    Row(
        "several sources and a destination that is a file",
        &[
            Test(CP_COPIES, "mistakes_have_their_codes"),
            Test(NAMES, "shares_have_a_direction_and_a_path"),
            Otherwise("4 and not 2: what the destination is, only the other end knows"),
        ],
    ),
    Row(
        "the destination is missing",
        &[
            Test(
                CP_FAULTS,
                "what_is_in_the_way_stays_and_missing_parents_are_made",
            ),
            Test(NAMES, "shares_have_a_direction_and_a_path"),
        ],
    ),
    Row(
        "the destination cannot be written",
        &[
            Test(CP_FAULTS, "a_read_only_destination_is_reported"),
            Test(
                HERE,
                "a_folder_here_that_cannot_be_written_is_named_before_anything_is_sent",
            ),
        ],
    ),
    Row(
        "something else has the name",
        &[
            Test(CP_SELECTION, "what_is_there_may_stay"),
            Test(CP_MIRROR, "what_is_replaced_or_deleted_keeps_another_name"),
            Test(
                CP_FAULTS,
                "what_is_in_the_way_stays_and_missing_parents_are_made",
            ),
            Test(CP_ODD, "a_link_on_the_way_is_called_one"),
            Test(
                FILES,
                "files_created_meanwhile_are_not_replaced_nor_saved_ones",
            ),
        ],
    ),
    Row(
        "a mirror after an error, or that would delete more than is allowed",
        &[
            Test(
                CP_MIRROR,
                "nothing_is_deleted_after_an_error_or_in_other_shares",
            ),
            Test(CP_MIRROR, "what_the_source_lacks_is_deleted_both_ways"),
        ],
    ),
    Row(
        "owners, attributes or links that the destination cannot have",
        &[
            Test(
                CP_MIRROR,
                "attributes_and_lists_are_preserved_where_that_is_permitted",
            ),
            Test(
                CP_MIRROR,
                "owners_are_preserved_by_root_alone_and_never_by_a_strangers_word",
            ),
        ],
    ),
    Row(
        "a file system without permissions, times, links or locks",
        &[
            Test(
                LACKS,
                "what_a_file_system_refuses_is_told_once_and_the_content_arrives",
            ),
            Test(
                LACKS,
                "links_that_cannot_be_made_are_left_out_with_one_warning",
            ),
            Test(
                LACKS,
                "a_hard_link_that_cannot_be_made_is_a_file_of_its_own_and_not_copied_again",
            ),
            Test(LACKS, "errors_of_the_disk_stay_errors"),
        ],
    ),
    Row(
        "a file system that stores less of a time than the source's",
        &[Test(
            CP_FILE_SYSTEMS,
            "a_second_run_sends_nothing_where_times_are_coarse",
        )],
    ),
    Row(
        "a folder that belongs to another user and may be written to",
        &[Test(
            CP_FILE_SYSTEMS,
            "folders_of_another_user_take_files_and_keep_their_times",
        )],
    ),
    Row(
        "a mirror where a folder became a file, a file a folder, or a folder is read-only",
        &[
            Test(
                RECEIVER_MIRROR,
                "a_folder_that_became_a_file_and_a_file_that_became_a_folder_are_replaced",
            ),
            Test(
                RECEIVER_MIRROR,
                "after_an_incomplete_listing_the_folder_stays_and_the_file_has_failed",
            ),
            Test(
                CP_FILE_SYSTEMS,
                "a_mirror_deletes_in_read_only_folders_of_its_own",
            ),
        ],
    ),
    Row(
        "the folder of a share was deleted while the server runs",
        &[Test(
            CP_FILE_SYSTEMS,
            "a_share_whose_folder_was_deleted_is_called_that",
        )],
    ),
    Row(
        "too little space, known before",
        &[
            Test(
                CP_FAULTS,
                "a_disk_too_small_is_refused_before_anything_is_sent",
            ),
            Test(CP_POLICY, "a_quota_is_for_all_that_lies_in_the_share"),
            Otherwise("there is no --force-space: what is free is known when a file is listed"),
        ],
    ),
    Row(
        "the disk fills up, at any write",
        &[
            Test(
                CP_FAULTS,
                "a_disk_that_fills_up_stops_the_file_and_it_continues_later",
            ),
            Test(
                CP_PIPES,
                "a_quota_holds_for_what_nobody_knows_the_length_of",
            ),
            Test(TRANSFERS, "what_was_found_once_stays_mended"),
            Test(CP_UNREAD, "a_closed_pipe_ends_output_silently"),
        ],
    ),
    Row(
        "the disk of the destination reports an error, at any call",
        &[
            Test(
                CP_FAULTS,
                "a_disk_that_fails_is_no_success_and_is_not_trusted_later",
            ),
            Test(
                "crates/transfer/src/receiver/tests.rs",
                "a_large_file_is_not_resumed_after_a_failed_sync",
            ),
            Test(TRANSFERS, "what_was_found_once_stays_mended"),
            Test(
                "crates/campaign/src/power_loss.rs",
                "what_was_found_once_stays_mended",
            ),
        ],
    ),
    Row(
        "the file system has no fallocate",
        &[
            Test(FILES, "a_sparse_file_is_quick_and_stays_sparse"),
            Otherwise("nothing is preallocated: a part gets its length, and blocks as they arrive"),
        ],
    ),
    Row(
        "another run writes there",
        &[
            Test(
                CP_ENDS,
                "a_target_that_another_run_writes_is_refused_with_its_process_or_server",
            ),
            Test(REFUSALS, "a_second_run_on_the_same_target_is_refused"),
        ],
    ),
];

pub(super) const CONTENT: &[Row] = &[
    Row(
        "the journal is of another source",
        &[Test(
            FILES,
            "a_damaged_part_is_noticed_and_a_foreign_journal_ignored",
        )],
    ),
    Row(
        "the part or the journal is damaged",
        &[
            Test(
                FILES,
                "a_damaged_part_is_noticed_and_a_foreign_journal_ignored",
            ),
            Test(
                "crates/transfer/src/receiver/journal/tests.rs",
                "a_journal_cut_or_damaged_says_what_it_said_before",
            ),
            Test(
                "crates/transfer/src/receiver/journal/tests.rs",
                "what_took_the_name_of_a_journal_is_not_waited_for_and_not_touched",
            ),
            Test(
                FILES,
                "what_was_put_in_the_place_of_a_part_does_not_get_the_name",
            ),
        ],
    ),
    Row(
        "the content differs at the end",
        &[
            Test(FILES, "wrong_content_is_repaired_once_and_then_set_aside"),
            Test(
                "crates/transfer/src/receiver/tests.rs",
                "what_the_disk_does_not_return_is_repaired_once_and_then_reported",
            ),
        ],
    ),
];
