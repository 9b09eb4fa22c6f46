//! What every store has to do, run for memory, for SQLite and for a real PostgreSQL server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod concurrency;
mod feed;
mod identity;
mod managers;
mod model;
mod postgres_only;
mod reads;
mod rig;
mod sqlite_only;
mod writes;

use rig::{MemoryRig, PostgresRig, SqliteRig};

/// Makes one test for each case and adapter.
macro_rules! contract {
    ($($module:ident :: $case:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::$module::$case(&crate::SqliteRig::new()).await;
            })*
        }
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::$module::$case(&crate::MemoryRig::new()).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::$module::$case(&crate::PostgresRig::new()).await;
            })*
        }
    };
}

contract! {
    writes::what_is_put_is_got,
    writes::expectations_are_checked,
    writes::a_transaction_is_all_or_nothing,
    writes::later_writes_of_a_transaction_see_earlier_ones,
    writes::generation_follows_the_spec_alone,
    writes::what_changes_nothing_burns_no_revision,
    writes::awkward_content_comes_back_unchanged,
    writes::impossible_writes_are_refused,
    writes::an_idempotency_key_gives_the_first_result_again,
    writes::an_idempotency_key_belongs_to_one_request_and_is_looked_up,
    writes::everything_is_there_after_a_restart,
    reads::lists_are_ordered_filtered_and_paged,
    feed::the_feed_has_whole_revisions_in_order,
    feed::the_feed_shows_the_newest_content,
    feed::the_feed_names_entries_of_the_audit_log_without_their_content,
    feed::an_old_feed_is_compacted,
    feed::a_reader_ahead_of_the_store_is_told_so,
    feed::a_reader_of_what_was_set_back_is_told_so_however_far_the_store_is_now,
    feed::the_watch_follows_commits,
    managers::fences_let_only_members_write,
    managers::a_silent_manager_is_evicted,
    managers::a_manager_that_leaves_is_gone,
    managers::a_newer_incarnation_supersedes,
    managers::the_epoch_rises_with_every_change_of_ownership,
    managers::the_epoch_is_raised_above_one_that_was_heard_of,
    identity::every_kind_comes_back_as_it_was,
    identity::what_is_of_an_org_is_found_and_goes_without_that_of_others,
    identity::an_entry_is_there_with_its_change_or_not_at_all,
    identity::the_log_is_read_newest_first_and_cut_behind_while_it_grows,
    identity::a_session_is_made_only_for_the_password_that_was_looked_at,
    identity::of_claims_at_the_same_time_one_comes_first,
    concurrency::concurrent_commits_have_revisions_of_their_own,
    concurrency::compare_and_set_loses_no_update,
    concurrency::one_conflict_does_not_harm_others,
    concurrency::a_reader_misses_nothing,
    model::random_work_matches_a_naive_model,
}
