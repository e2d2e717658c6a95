/* SPDX-License-Identifier: Apache-2.0 */
/* The functions behind the table of rules, by file, and what their files share. */
#ifndef CONFORMANCE_RULES_H
#define CONFORMANCE_RULES_H

#include "kit.h"

/* A script that starts three children which are hard to end, says "ready", and goes on with `rest`; tree_gone looks for
 * them. */
char *stubborn_tree(struct check *check, const char *dir, const char *rest);
bool tree_gone(struct check *check, struct session *session, const char *dir);

/* rules_lifecycle.c */
void rule_find_none(struct check *check);
void rule_created(struct check *check);
void rule_agree(struct check *check);
void rule_listed_exactly(struct check *check);
void rule_ready(struct check *check);
void rule_identity_exact(struct check *check);
void rule_find_every(struct check *check);
void rule_warm(struct check *check);
void rule_assign(struct check *check);
void rule_list_complete(struct check *check);
void rule_release(struct check *check);
void rule_release_running(struct check *check);
void rule_not_found(struct check *check);
void rule_not_found_certain(struct check *check);
void rule_lost_session(struct check *check);
void rule_nothing_left(struct check *check);

/* rules_idempotence.c */
void rule_one_create(struct check *check);
void rule_release_twice(struct check *check);
void rule_release_race(struct check *check);
void rule_race_tasks(struct check *check);
void rule_race_list(struct check *check);
void rule_race_commands(struct check *check);
void rule_race_cancels(struct check *check);
void rule_execute_once(struct check *check);
void rule_execute_attempt(struct check *check);

/* rules_ending.c */
void rule_exit(struct check *check);
void rule_script_forms(struct check *check);
void rule_signal_ending(struct check *check);
void rule_timeout(struct check *check);
void rule_timeout_tree(struct check *check);
void rule_background(struct check *check);
void rule_oom(struct check *check);
void rule_keep(struct check *check);
void rule_quiescent(struct check *check);
void rule_started(struct check *check);
void rule_many(struct check *check);

/* rules_output.c */
void rule_output_bytes(struct check *check);
void rule_output_big(struct check *check);
void rule_output_burst(struct check *check);
void rule_output_both(struct check *check);
void rule_output_silent(struct check *check);
void rule_output_limit(struct check *check);
void rule_output_streams(struct check *check);
void rule_output_refused(struct check *check);

/* rules_input.c */
void rule_stdin_empty(struct check *check);
void rule_stdin_exact(struct check *check);
void rule_stdin_unread(struct check *check);
void rule_script_file(struct check *check);
void rule_script_big(struct check *check);
void rule_script_bytes(struct check *check);
void rule_env_exact(struct check *check);
void rule_env_session(struct check *check);
void rule_env_clean(struct check *check);
void rule_cwd(struct check *check);
void rule_cwd_refused(struct check *check);

/* rules_file.c */
void rule_file_exact(struct check *check);
void rule_file_shell(struct check *check);
void rule_file_owner(struct check *check);
void rule_file_range(struct check *check);
void rule_file_mode(struct check *check);
void rule_file_names(struct check *check);
void rule_file_list(struct check *check);
void rule_file_remove(struct check *check);
void rule_file_flags(struct check *check);
void rule_file_move(struct check *check);
void rule_file_missing(struct check *check);
void rule_file_lying(struct check *check);
void rule_file_atomic(struct check *check);
void rule_file_not_regular(struct check *check);
void rule_file_race(struct check *check);
void rule_sessions_apart(struct check *check);

/* rules_escape.c */
void rule_escape_links(struct check *check);
void rule_escape_last(struct check *check);
void rule_escape_dots(struct check *check);
void rule_escape_swapped(struct check *check);
void rule_escape_tar(struct check *check);
void rule_escape_tar_link(struct check *check);

/* rules_bulk.c */
void rule_bulk_import(struct check *check);
void rule_bulk_round(struct check *check);
void rule_bulk_missing(struct check *check);
void rule_bulk_whole(struct check *check);
void rule_changes_found(struct check *check);
void rule_changes_hidden(struct check *check);
void rule_changes_none(struct check *check);

/* rules_cancel.c */
void rule_cancel_stop(struct check *check);
void rule_cancel_flood(struct check *check);
void rule_detach(struct check *check);
void rule_deadline(struct check *check);
void rule_deadline_others(struct check *check);

/* rules_many.c */
void rule_deadline_files(struct check *check);

/* rules_reattach.c */
void rule_reattach_running(struct check *check);
void rule_reattach_ended(struct check *check);
void rule_reattach_signal(struct check *check);
void rule_reattach_cancel(struct check *check);
void rule_reattach_detach(struct check *check);
void rule_poison(struct check *check);
void rule_poison_race(struct check *check);
void rule_forget(struct check *check);
void rule_forget_running(struct check *check);
void rule_signal_term(struct check *check);
void rule_signal_kill(struct check *check);
void rule_signal_none(struct check *check);
void rule_signal_unknown(struct check *check);
void rule_renew(struct check *check);

/* rules_honest.c */
void rule_check(struct check *check);
void rule_declared(struct check *check);
void rule_undeclared(struct check *check);
void rule_isolation(struct check *check);
void rule_isolation_stronger(struct check *check);
void rule_process(struct check *check);
void rule_leak_descriptors(struct check *check);
void rule_leak_threads(struct check *check);
void rule_leak_memory(struct check *check);

/* rules_lost_look.c, rules_lost.c, rules_lost_answer.c, rules_lost_file.c */
/* Of every answer while exchanges go wrong: no secret in its text, no broken rule of the host. */
bool lost_said(struct check *check, int rc, const struct err *err, const char *what);
void rule_lost_looks(struct check *check);
void rule_lost_provision(struct check *check);
void rule_lost_assign(struct check *check);
void rule_lost_reads(struct check *check);
void rule_lost_writes(struct check *check);
void rule_lost_release(struct check *check);
void rule_lost_refused(struct check *check);
void rule_lost_later(struct check *check);
void rule_lost_errors(struct check *check);
void rule_lost_redirect(struct check *check);
void rule_lost_secrets(struct check *check);

/* rules_lost_run.c */
void rule_lost_execute(struct check *check);
void rule_lost_stream(struct check *check);
void rule_lost_reattach(struct check *check);
void rule_lost_cancel(struct check *check);

#endif
