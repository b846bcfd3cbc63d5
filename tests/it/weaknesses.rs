//! What the program before this one did wrong, as far as it is the host's, and the decisions about requests, names and
//! security, each with the test that keeps it. The numbers are those of the lists that this project keeps.
//!
//! | row | weakness of the predecessor | test |
//! | --- | --- | --- |
//! | 1 | engines are part of the binary | `plugins::a_second_plugin_built_after_the_host_is_served_by_it`, `plugins::bad_files_in_a_plugin_folder_are_each_told_and_the_good_one_serves` |
//! | 2 | a crash of the engine ends the API | `isolate::every_way_of_crashing_is_an_error_on_its_own_tasks_and_a_restart`, `hot::an_engine_that_failed_is_built_anew` |
//! | 3 | nobody can ask what an engine can do, and flags of another are ignored | `plugin_commands::list_and_describe_read_plugins_without_running_them`, `cli::options_of_a_named_plugin_are_flags_and_its_help_lists_them` |
//! | 4 | sampling fields are ignored | `choices::what_the_card_lacks_is_refused_by_its_name` |
//! | 5 | stop strings are not enforced in streams | `streams::a_stop_string_over_two_chunks_is_never_shown_in_part` |
//! | 6 | fields are accepted and dropped | `choices::what_no_engine_does_yet_is_refused_by_its_name_and_never_ignored`, `choices::a_chat_of_three_choices_is_three_generations_of_one_request`, `chat::the_token_limit_ends_an_answer_with_length_in_both_forms` |
//! | 7 | content parts are refused | `chat::what_clients_send_besides_is_accepted` |
//! | 8 | errors are texts | `errors::what_is_no_route_or_no_json_has_the_same_error_body_and_no_reason` |
//! | 9 | an error's text decides whether a link is over | `links::a_stage_that_goes_wrong_is_told_by_its_reason` |
//! | 10 | load, or the last error, takes readiness away | `weaknesses::neither_overload_nor_failed_requests_take_readiness_away` |
//! | 11 | there is no queue | `admission::a_full_queue_refuses_and_a_freed_slot_goes_to_the_first_who_waits`, `admission::a_wait_over_the_deadline_is_a_503_that_says_so` |
//! | 12 | other ranks show nothing | needs a pipeline |
//! | 13 | no request ids in logs, no JSON logs | `extensions::a_span_of_a_task_is_in_the_trace_that_the_log_has`; export of traces is another part |
//! | 14 | outcomes are booked twice or never | `mix::two_hundred_requests_of_every_kind_book_one_sample_each`, `cancel::a_lone_whole_answer_notices_that_its_client_left_although_the_engine_is_always_ready`, `metrics::a_client_that_left_before_its_answer_is_counted_as_499`, `metrics::closed_label_sets_stand_at_zero_before_the_first_request` |
//! | 15 | the model's label is its path | `metrics::every_family_of_the_contract_is_there_with_its_type_labels_and_buckets` |
//! | 16 | no keys, no TLS, open to every network | `security::an_address_that_others_can_reach_is_refused_without_keys`, `security::a_port_alone_is_loopback`, `api::with_keys_every_route_but_health_asks_for_one`, `tls::a_host_with_a_certificate_speaks_tls_and_nothing_else` |
//! | 17 | whoever connects first is the peer | `links::two_engines_answer_over_links_and_outlive_broken_peers` |
//! | 18 | one model, and a generation blocks its cancel | `config::several_models_of_several_plugins_come_from_one_file_with_options_of_their_own`, `cancel::stop_strings_and_cancels_meet_without_a_second_sample` |
//! | 19 | a slow client sets the pace of others | `flood::readers::output_to_slow_readers_is_bounded_and_others_are_unaffected`, `flood::two::a_stream_that_is_not_read_is_reset_and_the_others_of_its_connection_go_on` |
//! | 20 | three steps without a token end a stream | `weaknesses::steps_without_a_token_end_nothing_however_many_they_are` |
//! | 21 | the model's name is not looked at | `errors::an_unknown_model_is_a_404`, `chat::the_list_of_models_names_what_is_served` |
//! | 22 | streamed tool calls are buffered whole | later, with the tool parsers |
//! | 23 | reasoning is part of the text | later, with the tool parsers |
//! | 24 | a template that fails drops messages | `errors::messages_that_the_template_refuses_are_told_in_its_words` |
//! | 25 | SIGTERM fails what runs | `lifecycle::a_drain_lets_running_generations_end_and_refuses_new_ones`, `lifecycle::after_the_drain_deadline_what_still_runs_gets_an_error_and_books_teardown`, `lifecycle::a_second_signal_ends_at_once` |
//! | 28 | no timeouts and no bound on connections | `flood::connections::a_thousand_half_open_sockets_cost_nobody_else_anything_and_end`, `flood::bodies::bodies_that_do_not_come_end_at_their_deadline`, `flood::bodies::bodies_share_a_bounded_memory_and_promises_take_none_of_it`, `cancel::a_client_that_does_not_read_within_its_time_is_cut_off` |
//! | 29 | settings are sixty variables | `config::show_names_who_set_each_value`, `cli::flags_win_over_the_environment_and_that_over_the_file` |
//! | 34 | tests need the hardware | `plugin_commands::check_passes_the_mock_and_names_what_a_broken_one_does` |
//! | 35 | whole answers cannot be cancelled | `cancel::the_clients_own_id_cancels_a_stream_and_a_whole_answer` |
//! | 36 | colours in files, traces of stacks in errors | `cli::a_log_that_goes_to_a_file_has_no_colours_and_one_line_errors`, `operate::doctor_speaks_to_people_without_colours_in_a_file` |
//!
//! | decision | what happens | test |
//! | --- | --- | --- |
//! | 301 | bad JSON, types and values are a 400 or 413 | `errors::a_malformed_request_is_a_400_without_a_reason`, `errors::a_body_over_the_limit_is_a_413_that_names_the_flag` |
//! | 302 | nothing to answer to | `errors::an_empty_prompt_is_a_400` |
//! | 303 | too many choices | `errors::more_prompts_or_choices_than_allowed_are_a_400` |
//! | 304 | a rendered prompt over the body's limit | `errors::a_rendered_prompt_over_the_body_limit_is_a_413` |
//! | 305 | a prompt over the window | `errors::a_prompt_over_the_window_is_a_413_with_the_code_clients_know` |
//! | 306 | an unknown model | `errors::an_unknown_model_is_a_404` |
//! | 307 | no slot, no place, too long a wait, a full engine | `admission::without_a_queue_the_request_over_the_limit_is_refused_at_once`, `admission::a_wait_over_the_deadline_is_a_503_that_says_so`, `admission::a_full_queue_of_the_engine_is_capacity_too`, `admission::the_queue_holds_twice_the_slots_unless_told_otherwise` |
//! | 308 | no engine, or the end is near | `errors::after_its_engine_failed_a_model_is_unavailable_and_the_host_not_ready`, `lifecycle::a_drain_lets_running_generations_end_and_refuses_new_ones` |
//! | 309 | the engine refuses the task | `errors::a_submit_that_the_engine_refuses_books_its_reason_and_no_generation` |
//! | 310 | an answer to its end | `chat::a_chat_is_answered_whole_with_its_counts`, `chat::a_streamed_chat_is_role_text_finish_usage_done` |
//! | 311 | gone, cancelled, too slow | `cancel::aborted_requests_are_in_every_counter`, `cancel::who_left_the_queue_is_not_generated`, `cancel::a_client_that_leaves_before_the_first_token_books_no_first_token` |
//! | 312 | the engine fails | `streams::an_engine_that_dies_mid_stream_gives_an_error_frame_and_done`, `streams::an_engine_that_fails_before_the_first_token_is_a_real_500_to_a_stream_too` |
//! | 313 | the host ends | `lifecycle::after_the_drain_deadline_what_still_runs_gets_an_error_and_books_teardown` |
//! | 314 | times are those of delivery; warm-up moves nothing | `metrics::each_token_after_the_first_is_one_inter_token_sample_however_they_are_chunked`, `metrics::an_engine_that_gives_the_whole_answer_in_one_chunk_has_no_inter_token_samples`, `metrics::warm_up_moves_no_request_metric` |
//! | 315 | labels | `metrics::routes_are_labelled_by_template_and_unknown_ones_as_unmatched`, `metrics::closed_label_sets_stand_at_zero_before_the_first_request` |
//! | 316 | ids and heads | `streams::the_head_of_a_slow_stream_does_not_wait_for_its_first_token`, `cancel::a_running_request_id_cannot_be_used_twice`, `cancel::cancelling_an_unknown_id_is_a_200_and_leaves_nothing_behind`, `api::clients_with_different_keys_do_not_cancel_each_other` |
//! | 401 | where plugins are looked for | `plugins::a_plugin_is_found_by_its_bare_name_beside_the_host_and_not_in_the_working_directory`, `plugins::a_missing_plugin_is_told_with_the_places_that_were_looked_at` |
//! | 402 | flags of one engine with several | `plugins::two_plugins_of_one_id_are_refused_and_several_engines_need_a_choice` |
//! | 403 | commands and admin routes | `admin::the_commands_list_load_and_unload`, `admin::a_host_with_admin_keys_answers_who_shows_one`, `admin::web_pages_and_what_comes_through_a_proxy_are_not_answered`, `operate::completions_are_printed_for_each_shell` |
//! | 404 | variables; a port alone is loopback | `config::an_unknown_variable_or_setting_is_refused_with_the_one_that_was_meant`, `security::a_port_alone_is_loopback` |
//! | 405 | health | `lifecycle::while_the_engine_loads_the_host_lives_and_is_not_ready` |
//! | 501 | an open address needs keys | `security::an_address_that_others_can_reach_is_refused_without_keys` |
//! | 502 | health and metrics need none unless told | `api::with_keys_every_route_but_health_asks_for_one`, `api::metrics_ask_for_a_key_where_the_configuration_says_so` |
//! | 503 | names that are bound to loopback anew | `security::a_page_that_rebinds_its_name_to_loopback_is_refused` |

use anyhow::Result;
use cascadia_tests::Host;
use cascadia_tests::client::{CHAT, chat, order, streamed};
use serde_json::json;

use super::symptoms::each_has_a_test;

#[test]
fn each_weakness_and_each_decision_is_in_its_table_and_each_test_of_it_is_there() -> Result<()> {
    // What is missing is another part's: shards, rings, dashboards, other systems, relays.
    let weaknesses = (1..=25).chain([28, 29]).chain(34..=36);
    let decisions = (301..=316).chain(401..=405).chain(501..=503);
    each_has_a_test("weaknesses.rs", &weaknesses.chain(decisions).collect::<Vec<_>>())
}

#[test]
fn neither_overload_nor_failed_requests_take_readiness_away() -> Result<()> {
    let host = Host::mock(&["--max-concurrent", "1", "--max-queued", "0"]);
    let ready = |when: &str| -> Result<()> {
        for path in ["/readyz", "/health", "/livez"] {
            assert_eq!(host.get(path)?.status(), 200, "{path} {when}");
        }
        Ok(())
    };
    let failing = chat(&order("a b", &json!({"fail_after": 0, "error_message": "out of paper"})));
    for _ in 0..4 {
        assert_eq!(host.post(CHAT, &failing)?.error(500)["code"], "engine_error");
    }
    ready("after requests that the engine failed")?;
    let mut holder = host.stream(CHAT, &streamed(chat(&order("a b", &json!({"stall_after": 1})))))?;
    holder.pieces(1)?;
    for _ in 0..4 {
        assert_eq!(host.chat("x")?.error(503)["code"], "capacity");
        ready("while every slot is taken")?;
    }
    drop(holder);
    host.quiet();
    assert_eq!(host.chat("and now")?.content(), "and now");
    ready("afterwards")
}

#[test]
fn steps_without_a_token_end_nothing_however_many_they_are() -> Result<()> {
    let host = Host::mock(&[]);
    let steps = || host.scrape().sum("cascadia_engine_steps_total", &[]);
    let before = steps();
    // Each step gives the other a token, and this one nothing for most of the time.
    let mut busy =
        host.stream(CHAT, &streamed(chat(&order("w", &json!({"repeat": 100_000, "token_delay_ms": 1})))))?;
    busy.pieces(1)?;
    let slow = streamed(chat(&order("a b c", &json!({"token_delay_ms": 300}))));
    let told = host.told(CHAT, &slow)?;
    assert_eq!((told.text.as_str(), told.finish()), ("a b c", "stop"));
    assert!(steps() - before > 100.0, "{} steps", steps() - before);
    drop(busy);
    let metrics = host.quiet();
    assert_eq!((metrics.ended("stop"), metrics.ended("cancelled"), metrics.ended("error")), (1.0, 1.0, 0.0));
    Ok(())
}
