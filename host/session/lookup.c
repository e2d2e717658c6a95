/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding a task's sessions at its provider and choosing among them. Entered by jobs on their own threads; the choice is pure.
 * Never takes a failure to look for an absence.
 */
#include "session/lookup.h"

#include <stdlib.h>
#include <string.h>

#include "plugin/call.h"

static int no_memory(struct err *err)
{
	return err_set(err, ERR_NOMEM, "no memory is left for what the provider told");
}

static const char *copy(struct arena *arena, struct berth_str str)
{
	return arena_strndup(arena, str.ptr, str.len);
}

int made_copy(struct arena *arena, const struct berth_session_info *info, struct made *ret, struct err *err)
{
	*ret = (struct made){
		.ref = copy(arena, info->ref),
		.state = copy(arena, info->state),
		.state_len = info->state.len,
		.boot_id = copy(arena, info->boot_id),
		.root = copy(arena, info->root),
		.intent = copy(arena, info->intent),
		.workspace = copy(arena, info->workspace_id),
		.task = copy(arena, info->task_id),
		.created_ms = info->created_ms,
		.expires_ms = info->expires_ms,
		.isolation = info->isolation,
		.phase = info->phase,
	};
	if (!ret->ref || !ret->state || !ret->boot_id || !ret->root || !ret->intent || !ret->workspace || !ret->task)
		return no_memory(err);
	return 0;
}

void made_merge(struct made *made, const struct made *told)
{
	const struct made was = *made;

	*made = *told;
	if (told->state_len == 0) {
		made->state = was.state;
		made->state_len = was.state_len;
	}
	made->boot_id = *told->boot_id ? told->boot_id : was.boot_id;
	made->root = *told->root ? told->root : was.root;
	made->intent = *told->intent ? told->intent : was.intent;
	made->created_ms = told->created_ms ? told->created_ms : was.created_ms;
	made->expires_ms = told->expires_ms ? told->expires_ms : was.expires_ms;
	made->isolation = told->isolation ? told->isolation : was.isolation;
}

int made_seal(struct job *job, const struct made *made, struct binding_session *ret, struct err *err)
{
	char *box = NULL;
	int r = 0;

	*ret = (struct binding_session){
		.ref = made->ref,
		.sealed_state = "",
		.boot_id = made->boot_id,
		.root = made->root,
		.isolation = isolation_word(made->isolation),
		.created_ms = made->created_ms,
		.provider_expires_ms = made->expires_ms,
		.renewable = target_can(job->target, BERTH_CAP_RENEW),
	};
	if (made->state_len == 0)
		return 0;
	r = seal_close_box(job->s->config.seal, job->key, made->state, made->state_len, &box, err);
	if (r)
		return r;
	ret->sealed_state = arena_strdup(job->arena, box);
	free(box);
	return ret->sealed_state ? 0 : no_memory(err);
}

bool lookup_superseded(const struct binding *row, const char *intent)
{
	for (size_t i = 0; *intent && i < row->superseded_count; i++) {
		if (strcmp(row->superseded[i], intent) == 0)
			return true;
	}
	return false;
}

static bool usable(const struct made *made, const struct binding *row, bool ours)
{
	if (phase_is_over(made->phase) || lookup_superseded(row, made->intent))
		return false;
	return !ours || strcmp(made->intent, row->intent) == 0;
}

static bool better(const struct made *a, const struct made *b, const struct binding *row)
{
	bool a_ours = strcmp(a->intent, row->intent) == 0;
	bool b_ours = strcmp(b->intent, row->intent) == 0;

	if (a_ours != b_ours)
		return a_ours;
	if (!a->created_ms || !b->created_ms)
		return a->created_ms > b->created_ms; /* a known age before none */
	return a->created_ms < b->created_ms;
}

const struct made *lookup_pick(const struct made *found, size_t count, const struct binding *row, bool ours)
{
	const struct made *best = NULL;

	for (size_t i = 0; i < count; i++) {
		if (usable(&found[i], row, ours) && (!best || better(&found[i], best, row)))
			best = &found[i];
	}
	return best;
}

int lookup_find(struct job *job, int64_t deadline_ns, struct made **ret, size_t *ret_count, struct err *err)
{
	const struct berth_session_info *sessions;
	struct call *call;
	size_t count = 0;
	int r = job_call(job, deadline_ns, NULL, call_find_task, &job->ident, &call, err);

	*ret = NULL;
	*ret_count = 0;
	if (r)
		goto out;
	sessions = call_sessions(call, &count);
	*ret = arena_alloc(job->arena, (count + 1) * sizeof(**ret));
	if (!*ret)
		r = no_memory(err);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = made_copy(job->arena, &sessions[i], &(*ret)[i], err);
	*ret_count = count;
out:
	job_done(job, call);
	return r;
}
