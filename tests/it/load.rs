//! What can be wrong with a plugin's file, its layout, its start and its neighbours, and the one line that the host says.
//!
//! | case | test |
//! | --- | --- |
//! | a field in the middle of a table, a field at its end, same hashes | `layout::a_layout_that_its_hashes_do_not_tell_is_refused_by_its_proof` |
//! | the same, told by the hashes (a stale draft) | `layout::a_stale_draft_is_refused_by_the_name_of_the_table` |
//! | a new variant | tables have no enums; a number that the host does not know: `layout::a_number_that_the_host_does_not_know_costs_one_chunk` |
//! | newer plugin in older host, older in newer | `frozen::*` |
//! | a plugin of a newer compiler | `compilers::a_plugin_of_another_compiler_loads_and_its_errors_and_panics_arrive` |
//! | text file, empty file, 64 bytes, 200 kB of more, another machine, a directory, no file | `files::each_unsound_file_is_refused_in_one_line` |
//! | the tail cut | the same: the manifest is found through the section table, which is the tail |
//! | bytes behind the end | `hot::a_newer_plugin_takes_over_under_load_and_no_request_fails` |
//! | a needed library is missing, an undefined symbol, no entry | `files::each_library_that_cannot_be_opened_is_refused_in_one_line` |
//! | init answers an error, init panics (Rust), init throws (C++) | `files::a_start_that_fails_is_refused_with_its_own_words` |
//! | many plugins of one type; a bad one before a good one | `layout::a_plugin_refused_for_its_layout_does_not_spoil_the_next` |
//! | a new version by rename | `bundles::a_new_version_under_the_same_name_is_the_new_code` |
//! | overwritten in place | `hot::an_overwrite_in_place_of_a_running_plugin_does_not_touch_the_running_one` |
//! | two bundles, each with its own build of one SONAME | `bundles::a_second_build_under_one_soname_is_refused_naming_both` |
//! | an upgrade with its own build of one SONAME | `bundles::an_upgrade_that_brings_its_own_libraries_needs_a_process_of_its_own` |
//! | a copy in another folder loses `$ORIGIN` | both: their libraries are found beside the original |
//! | `panic = "abort"` | `compilers::a_plugin_whose_panics_abort_does_not_compile` |
//! | an abort, a bad memory access | `isolate::every_way_of_crashing_is_an_error_on_its_own_tasks_and_a_restart` |
//! | a copy that is not at its end | `hot::a_copy_that_stalls_is_left_alone_until_it_is_whole` |
//! | a panic in a call | `contain::a_panic_is_code_13_and_the_engine_is_built_anew` |
//! | an exception in C++ | `contain::an_exception_is_code_13_and_the_engine_is_built_anew` |
//! | every stage has its counter | `stages::each_stage_is_counted_under_its_name` (`find` in `fleet::choose`) |

mod bundles;
mod compilers;
mod contain;
mod files;
mod layout;
mod stages;

use std::path::Path;

use cascadia_tests::host::Ended;

/// The path as an argument.
fn text(path: &Path) -> &str {
    path.to_str().expect("PANIC: temporary paths are text")
}

/// What a host says at last when it gives up over `plugin`: one line, which is answered without its beginning.
#[track_caller]
fn last_words(ended: &Ended, plugin: &Path) -> String {
    assert_eq!(ended.status.code(), Some(1), "{}{}", ended.output, ended.complaint);
    let begin = format!("cascadia-host: plugin {}: ", plugin.display());
    let words: Vec<_> = ended.complaint.lines().filter_map(|line| line.strip_prefix(&begin)).collect();
    assert_eq!(words.len(), 1, "one line about {}: {}{}", plugin.display(), ended.output, ended.complaint);
    assert!(ended.complaint.ends_with(&format!("{}\n", words[0])), "it is the last: {}", ended.complaint);
    words[0].to_owned()
}
