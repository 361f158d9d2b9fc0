//! Cases of the network and of ends that stop, with their messages.

use super::{
    BAD_INPUT, BETWEEN,
    By::{Otherwise, Test},
    CP_COPIES, CP_ENDS, CP_KILLS, CP_LANES, CP_LIMITS, CP_MESSAGES, CP_PIPES, CP_RETRY,
    CP_SELECTION, CP_SIGNALS, CP_UNREAD, CP_WATCHED, DOCTOR, ENDS, EXIT, FIRST_HOUR, LIVENESS,
    NETWORK, ROAM, Row, SSH, STUCK,
};

pub(super) const NETWORKS: &[Row] = &[
    Row(
        "a path that loses, damages, repeats and reorders, and goes dark",
        &[
            Test(
                NETWORK,
                "a_copy_through_damage_copies_loss_and_disorder_is_whole",
            ),
            Test(NETWORK, "a_copy_goes_on_after_ten_dark_seconds"),
        ],
    ),
    Row(
        "a path that no longer carries long packets",
        &[
            Test(LIVENESS, "a_path_that_shrinks_is_survived"),
            Test(
                "crates/haul/src/mtu.rs",
                "a_black_hole_leads_to_the_base_and_back",
            ),
        ],
    ),
    Row(
        "small socket buffers",
        &[
            Test(
                DOCTOR,
                "kernel_settings_are_written_to_a_file_of_ours_and_to_no_other",
            ),
            Otherwise("a copy does not warn: doctor tells, and writes the settings"),
        ],
    ),
    Row(
        "the kernel refuses offloads",
        &[
            Test(
                "crates/io/src/host.rs",
                "a_refused_offload_is_reported_and_a_disabled_one_is_not",
            ),
            Test(
                "crates/io/tests/loopback.rs",
                "everything_arrives_and_comes_back_with_and_without_offloads",
            ),
        ],
    ),
    Row(
        "the address of an end changes, or a machine sleeps",
        &[
            Test(LIVENESS, "a_client_that_moves_is_followed"),
            Test(LIVENESS, "a_forged_source_gets_little_and_changes_nothing"),
            Test(ROAM, "a_copy_goes_on_from_the_new_address_of_this_host"),
            Test(ROAM, "a_bench_goes_on_from_the_new_address_of_this_host"),
            Test(ROAM, "an_address_that_comes_back_is_used_again"),
            Test(NETWORK, "a_copy_goes_on_after_ten_dark_seconds"),
        ],
    ),
    Row(
        "an end is killed",
        &[
            Test(
                CP_ENDS,
                "a_client_of_a_dead_server_ends_by_itself_and_can_resume",
            ),
            Test(CP_KILLS, "killed_fifty_times_at_either_end_it_continues"),
            Test(BETWEEN, "a_copy_ends_with_the_machine_that_ordered_it"),
            Test(CP_RETRY, "a_copy_whose_server_is_started_again_ends_well"),
            Otherwise(
                "without --retry the copy ends (17) and is continued by the same command: only its user knows whether to try again",
            ),
        ],
    ),
    Row(
        "a server is stopped, ended or killed in any phase of a copy",
        &[
            Test(ENDS, "while_they_shake_hands"),
            Test(ENDS, "while_files_are_listed"),
            Test(ENDS, "while_content_is_sent"),
            Test(ENDS, "while_what_is_there_is_checked"),
            Test(ENDS, "when_the_last_file_is_there"),
        ],
    ),
    Row(
        "an end makes no progress",
        &[
            Test(
                STUCK,
                "a_disk_that_hangs_ends_the_copy_though_there_is_room",
            ),
            Test(
                "crates/transfer/src/hostile/idle.rs",
                "a_session_without_progress_ends_later",
            ),
            Test(
                "crates/haul/tests/all/credit.rs",
                "a_store_that_never_has_room_again_ends_the_session_with_its_reason",
            ),
            Otherwise(
                "there is no --idle-timeout: 30 s for a silent peer, and bounds for disks that hang",
            ),
        ],
    ),
    Row(
        "datagrams of strangers, replays, forged sources",
        &[
            Test(
                "crates/haul/tests/all/opening.rs",
                "the_listener_takes_any_bytes",
            ),
            Test(
                "crates/haul/tests/all/opening.rs",
                "tokens_make_one_session_and_only_at_their_address",
            ),
            Test(
                "crates/haul/src/hostile.rs",
                "an_abandoned_handshake_is_sent_three_times_the_bytes_received",
            ),
            Test(SSH, "a_strangers_bytes_start_nothing"),
        ],
    ),
    Row(
        "a clock that jumps",
        &[
            Test("crates/io/src/clock.rs", "never_goes_back"),
            Test(
                "crates/cli/src/tickets.rs",
                "an_expired_one_says_when_and_is_forgotten_in_the_end",
            ),
            Otherwise(
                "one clock decides about a ticket, the server's, so that none has to be allowed for",
            ),
        ],
    ),
    Row(
        "the reader of a pipe has enough",
        &[
            Test(CP_PIPES, "a_reader_that_has_enough_ends_the_copy_quietly"),
            Test(CP_UNREAD, "a_closed_pipe_ends_output_silently"),
        ],
    ),
    Row(
        "a pipe whose copy is not complete",
        &[
            Test(
                CP_PIPES,
                "what_was_not_complete_is_removed_and_the_old_file_stays",
            ),
            Test(
                CP_PIPES,
                "a_stream_that_is_closed_is_neither_empty_nor_a_place_for_content",
            ),
        ],
    ),
    Row(
        "Ctrl-C once, and twice",
        &[
            Test(CP_ENDS, "interrupted_while_it_sends_it_goes_on_later"),
            Test(
                CP_RETRY,
                "an_interrupt_ends_the_pause_and_the_same_command_continues",
            ),
            Test(
                ENDS,
                "interrupted_again_and_again_it_ends_and_goes_on_later",
            ),
            Test(CP_SIGNALS, "a_second_signal_ends_what_is_under_way"),
        ],
    ),
    Row(
        "a signal that is ignored at the start",
        &[Test(
            CP_LIMITS,
            "a_signal_that_was_ignored_at_the_start_ends_neither_a_copy_nor_a_server",
        )],
    ),
    Row(
        "SIGUSR1, SIGUSR2, SIGALRM, SIGXFSZ and the like",
        &[Test(
            CP_LIMITS,
            "signals_that_ask_for_nothing_end_nothing_and_usr1_prints_a_line_of_progress",
        )],
    ),
    Row(
        "limits of processor time, file length, descriptors",
        &[
            Test(
                CP_LIMITS,
                "a_limit_of_processor_time_ends_a_copy_as_termination_does",
            ),
            Test(
                CP_LIMITS,
                "a_file_that_is_longer_than_the_server_may_write_fails_alone",
            ),
            Test(CP_LIMITS, "more_typed_sources_than_descriptors_are_copied"),
            Test(
                CP_LIMITS,
                "many_open_files_and_folders_need_few_descriptors_at_both_ends",
            ),
        ],
    ),
    Row(
        "a signal at a question; a question while the input is a pipe",
        &[
            Test(
                CP_LIMITS,
                "a_signal_or_the_end_of_the_input_ends_a_question_and_nothing_is_stored",
            ),
            Test(
                CP_LIMITS,
                "a_question_is_asked_at_the_terminal_while_the_input_is_a_pipe",
            ),
        ],
    ),
    Row(
        "SIGTERM, SIGHUP",
        &[Test(CP_COPIES, "interrupted_it_prints_how_to_continue")],
    ),
    Row(
        "a lane is lost",
        &[
            Test(
                "crates/transfer/tests/transfer/lanes.rs",
                "a_lane_that_is_lost_leaves_its_part_to_the_others",
            ),
            Test(
                CP_LANES,
                "lanes_that_a_server_has_no_room_for_are_missed_and_no_more",
            ),
        ],
    ),
];

pub(super) const OUTPUT: &[Row] = &[
    Row(
        "every code has a name, and is explained",
        &[
            Test(EXIT, "the_documented_table_is_the_one_that_is_used"),
            Test(FIRST_HOUR, "exit_codes_and_reasons_are_explained"),
            Otherwise(
                "no FH-nnnn: the codes and their names are stable, and there is no second list; 21 and 23 have no use",
            ),
        ],
    ),
    Row(
        "a failure is one object",
        &[
            Test(EXIT, "a_failure_is_an_object_with_its_code"),
            Test(
                CP_MESSAGES,
                "a_failure_has_its_sentence_and_its_fix_for_programs_too",
            ),
            Test(
                "crates/transfer/src/summary/tests.rs",
                "a_failure_is_one_valid_object_too",
            ),
            Test(BAD_INPUT, "json_is_recognized_among_other_letters"),
        ],
    ),
    Row(
        "events end in the object of the summary",
        &[
            Test(
                CP_WATCHED,
                "a_stream_of_events_ends_in_the_summary_also_of_a_failure",
            ),
            Test(BETWEEN, "events_are_passed_on_and_the_last_is_the_summary"),
        ],
    ),
    Row(
        "figures of a server add up, and nothing printed steers a terminal",
        &[
            Test(CP_WATCHED, "metrics_add_up_to_what_was_copied"),
            Test(
                CP_WATCHED,
                "the_log_has_an_object_per_line_in_which_nothing_steers_a_terminal",
            ),
            Test("crates/cli/src/out.rs", "nothing_printed_steers_a_terminal"),
            Test(CP_WATCHED, "what_is_asked_wrongly_of_a_server_is_refused"),
        ],
    ),
    Row(
        "a limit that was set is reached",
        &[Test(
            CP_SELECTION,
            "a_limit_of_time_ends_it_and_it_goes_on_later",
        )],
    ),
];
