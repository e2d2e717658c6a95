/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what a command is: its body and options, from the request that was just stored or from the store. The run's
 * owner enters. Keeps a body in memory only for a run that is about to use it.
 */
#include <string.h>

#include "core/limits.h"
#include "execution/execution_private.h"

static const char **copy_list(struct arena *arena, const char **list, size_t count)
{
	const char **copy = arena_alloc(arena, (count + 1) * sizeof(*copy));

	for (size_t i = 0; copy && i < count; i++) {
		copy[i] = arena_strdup(arena, list[i]);
		if (!copy[i])
			return NULL;
	}
	return copy;
}

static const char *copy_text(struct arena *arena, const char *text)
{
	return text && *text ? arena_strdup(arena, text) : NULL;
}

int plan_set(struct run *run, const struct record *r, const char *body, size_t len, struct err *err)
{
	const struct record_command *c = &r->command;
	struct arena *arena = arena_new(LIMIT_ROW);
	struct run_plan plan = {
		.arena = arena,
		.body_len = len,
		.artifact_count = c->artifact_count,
		.timeout_ms = c->timeout_seconds * 1000,
		.stdout_max = c->stdout_max_bytes,
		.stderr_max = c->stderr_max_bytes,
		.keep_descendants = c->keep_descendants,
	};

	if (!arena)
		return err_set(err, ERR_NOMEM, "no memory for a command");
	plan.body = body ? arena_strndup(arena, body, len) : NULL;
	plan.cwd = copy_text(arena, c->cwd ? c->cwd : ".");
	plan.env_ref = copy_text(arena, c->env_ref);
	plan.stdin_ref = copy_text(arena, c->stdin_ref);
	plan.artifact_paths = copy_list(arena, c->artifact_paths, c->artifact_count);
	if ((body && !plan.body) || !plan.cwd || !plan.artifact_paths || (c->env_ref && *c->env_ref && !plan.env_ref) ||
	    (c->stdin_ref && *c->stdin_ref && !plan.stdin_ref)) {
		arena_free(arena);
		return err_set(err, ERR_NOMEM, "no memory for a command");
	}
	arena_free(run->plan.arena);
	run->plan = plan;
	spool_limit(run->out, BERTH_STREAM_STDOUT, plan.stdout_max);
	spool_limit(run->out, BERTH_STREAM_STDERR, plan.stderr_max);
	return 0;
}

static int load_step(struct txn *txn, void *arg, struct err *err)
{
	struct run *run = arg;
	struct store_row row;
	struct record r;
	int rc = steps_load(txn, run->id, &r, NULL, err);

	if (rc == 0)
		rc = txn_get(txn, STORE_COMMAND, run->id, &row, err);
	if (rc == 0)
		rc = plan_set(run, &r, row.doc, row.doc_len, err);
	return rc || row.doc ? rc : err_set(err, ERR_CORRUPT, "execution %s: its command is missing", run->id);
}

int plan_load(struct run *run, struct err *err)
{
	return run->plan.body ? 0 : store_view(run->e->config.store, load_step, run, err);
}
