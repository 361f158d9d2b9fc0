//! Cases of reaching the other end, and of its limits.

use super::{
    BAD_INPUT, BETWEEN, BLOCKED,
    By::{Otherwise, Refuses, Test},
    CP_COPIES, CP_FAULTS, CP_LANES, CP_MESSAGES, CP_POLICY, CP_SIGNALS, CP_TICKETS, CP_VERSIONS,
    FIRST_HOUR, LOCAL, MACHINE, NAMES, NETWORK, REFUSALS, Row, SSH,
};

pub(super) const REACHING: &[Row] = &[
    Row(
        "the host is unknown",
        &[
            Refuses(
                &["cp", "f", "no.such.host.invalid::s/"],
                11,
                "no.such.host.invalid",
            ),
            Refuses(
                &["ls", "no.such.host.invalid::s/"],
                11,
                "no.such.host.invalid",
            ),
            Refuses(
                &["bench", "no.such.host.invalid"],
                11,
                "check the name and the resolver",
            ),
            Refuses(
                &["doctor", "no.such.host.invalid"],
                11,
                "check the name and the resolver",
            ),
        ],
    ),
    Row(
        "ssh fails",
        &[
            Test(SSH, "what_can_go_wrong_there_has_its_code"),
            Test(SSH, "an_ssh_that_does_not_end_is_not_waited_for"),
        ],
    ),
    Row(
        "farhaul is missing there, for another machine, or too old",
        &[
            Test(SSH, "what_can_go_wrong_there_has_its_code"),
            Test(SSH, "another_version_there_is_called_one"),
            Test(SSH, "a_program_that_would_not_run_there_is_not_copied"),
            Test(
                "crates/cli/src/ssh/install/tests.rs",
                "what_is_whole_and_runs_gets_the_name_and_nothing_else_does",
            ),
            Test(BETWEEN, "an_older_farhaul_there_is_called_one"),
        ],
    ),
    Row(
        "a version that cannot do what is asked for",
        &[
            Test(CP_VERSIONS, "files_and_trees_go_both_ways"),
            Test(
                CP_VERSIONS,
                "pipes_are_refused_by_an_older_server_unless_it_need_not_know_them",
            ),
            Test(
                "crates/transfer/src/agreed.rs",
                "without_a_common_version_both_ranges_and_the_older_end_are_named",
            ),
        ],
    ),
    Row(
        "the login shell prints something",
        &[Test(SSH, "what_a_login_shell_prints_is_skipped")],
    ),
    Row(
        "UDP is blocked",
        &[
            Test(SSH, "where_udp_is_blocked_ssh_carries_the_copy"),
            Test(
                SSH,
                "a_copy_that_is_not_to_go_through_ssh_fails_where_udp_is_blocked",
            ),
            Test(
                SSH,
                "a_copy_goes_on_through_ssh_when_udp_is_blocked_meanwhile",
            ),
            Test(BLOCKED, "where_udp_is_blocked_tcp_carries_the_copy"),
            Test(
                BLOCKED,
                "a_server_that_takes_no_tcp_is_not_reached_and_the_message_names_the_remedy",
            ),
            Test(
                BLOCKED,
                "a_copy_goes_on_over_tcp_when_udp_is_blocked_meanwhile",
            ),
        ],
    ),
    Row(
        "a firewall, a route or a short link here keeps datagrams in",
        &[Test(
            LOCAL,
            "what_this_host_does_not_send_is_told_as_its_own_cause_and_at_once",
        )],
    ),
    Row(
        "nobody answers, or nothing listens",
        &[
            Test(
                BAD_INPUT,
                "a_port_in_use_and_a_foreign_address_are_not_usage_errors",
            ),
            Test(
                NETWORK,
                "a_server_that_answers_and_stops_is_not_reported_as_blocked",
            ),
        ],
    ),
    Row(
        "a port is in use, not allowed, or a range that is none",
        &[
            Test(
                BAD_INPUT,
                "what_to_copy_and_how_is_checked_before_anything_is_connected",
            ),
            Refuses(
                &["cp", "--remote-port", "100-70000", "f", "h:"],
                2,
                "a port or a range",
            ),
            Test(
                BAD_INPUT,
                "a_port_in_use_and_a_foreign_address_are_not_usage_errors",
            ),
        ],
    ),
    Row(
        "the server is full, busy or stopping",
        &[
            Test(CP_FAULTS, "a_full_server_and_a_stopping_one_send_a_close"),
            Test(
                CP_SIGNALS,
                "a_server_that_stops_takes_nobody_new_and_finishes_what_is_under_way",
            ),
            Test(CP_POLICY, "a_peer_has_as_many_sessions_as_it_may"),
            Test(CP_POLICY, "a_source_has_as_many_sessions_as_it_may"),
            Test(
                CP_LANES,
                "lanes_that_a_server_has_no_room_for_are_missed_and_no_more",
            ),
            Otherwise("there is no queue: 18 says that the same command may succeed later"),
        ],
    ),
];

pub(super) const RIGHTS: &[Row] = &[
    Row(
        "the key of the server is unknown, or another one, and nobody can be asked",
        &[
            Test(CP_COPIES, "a_server_is_trusted_once_known"),
            Test(
                CP_MESSAGES,
                "a_changed_key_and_a_refused_client_are_distinguished",
            ),
        ],
    ),
    Row(
        "a key file is missing, malformed, or others can read it",
        &[
            Refuses(&["cp", "-i", "none", "f", "h::s"], 10, "no such key file"),
            Refuses(&["cp", "-i", "no.key", "f", "h::s"], 10, "no.key"),
            Refuses(&["cp", "-i", "open.key", "f", "h::s"], 10, "chmod 600"),
            Refuses(&["bench", "h", "--identity", "open.key"], 10, "chmod 600"),
            Test(
                CP_MESSAGES,
                "advice_about_another_key_file_does_not_touch_the_users_own",
            ),
            Otherwise("keys have no passphrase"),
        ],
    ),
    Row(
        "a mistake in the configuration",
        &[
            Test(
                MACHINE,
                "a_mistake_in_the_configuration_has_its_line_and_what_to_write",
            ),
            Test(
                MACHINE,
                "what_is_configured_for_copies_holds_for_lists_of_shares",
            ),
            Test(
                FIRST_HOUR,
                "a_mistake_in_the_configuration_does_not_take_help_and_keys_away",
            ),
            Test(
                FIRST_HOUR,
                "a_variable_that_means_nothing_is_warned_of_once",
            ),
            Test(CP_POLICY, "a_file_with_a_mistake_is_refused_with_its_line"),
            Test(
                CP_SIGNALS,
                "a_reload_changes_what_new_sessions_may_and_a_mistake_changes_nothing",
            ),
        ],
    ),
    Row(
        "a ticket is expired, used, revoked, cut off or mistyped",
        &[
            Test(
                CP_TICKETS,
                "a_ticket_that_is_over_says_why_and_one_that_is_spoilt_how",
            ),
            Test(
                CP_TICKETS,
                "a_ticket_is_for_one_place_and_for_so_many_copies",
            ),
            Test(
                CP_TICKETS,
                "an_interrupted_copy_goes_on_under_the_use_it_began",
            ),
        ],
    ),
    Row(
        "a ticket that would be of no use",
        &[
            Test(CP_TICKETS, "tickets_are_made_for_shares_that_take_them"),
            Test(
                MACHINE,
                "a_ticket_of_which_nothing_is_known_is_made_with_a_warning",
            ),
        ],
    ),
    Row(
        "a share is unknown, or not allowed",
        &[
            Test(REFUSALS, "unknown_and_forbidden_sound_the_same"),
            Test(
                CP_POLICY,
                "each_peer_sees_its_own_shares_and_of_others_not_even_the_name",
            ),
            Test(NAMES, "shares_have_a_direction_and_a_path"),
        ],
    ),
];
