/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls by which a job makes a session and asks about one, and what their codes leave open. Entered by jobs on
 * their own threads. Never repeats a create, and never takes an error for an absence.
 */
#include <string.h>

#include "session/lookup.h"
#include "session/warm.h"

static struct berth_str str(const char *text)
{
	return (struct berth_str){text, strlen(text)};
}

static int op_provision(struct call *call, const void *arg, struct err *err)
{
	return call_provision(call, arg, err);
}

int call_await(struct call *call, const void *session, struct err *err)
{
	return call_await_ready(call, session, err);
}

int call_look(struct call *call, const void *session, struct err *err)
{
	return call_inspect(call, session, err);
}

int call_let_go(struct call *call, const void *session, struct err *err)
{
	return call_release(call, session, err);
}

int create_send(struct job *job, const struct ident *ident, const char *intent, const struct call_sink *sink,
		int64_t deadline_ns, struct err *err)
{
	const struct conf_target *conf = job->target->conf;
	char pool_key[65];
	struct berth_spec spec = {
		.struct_size = sizeof(spec),
		.isolation = job->target->isolation_wanted,
		.deployment = str(job->s->config.conf->deployment),
		.workspace_id = str(ident ? ident->workspace : ""),
		.task_id = str(ident ? ident->task : ""),
		.intent = str(intent),
		.region = str(conf->region),
		.image = str(conf->image ? conf->image : ""),
		.cpu_millis = (uint64_t)conf->cpu_millis,
		.memory_bytes = (uint64_t)conf->memory,
		.disk_bytes = (uint64_t)conf->disk,
		.internet_allowed = conf->allow_internet,
	};
	struct call *call = NULL;
	int64_t now;
	int r = store_now(job->s->config.store, &now, err);

	if (r)
		return r;
	warm_pool_key(job->target, pool_key);
	spec.pool_key = str(pool_key);
	spec.expires_ms = extend_wanted(job->s, job->target, now, now + job->s->rules.max_age_ms);
	r = job_call(job, deadline_ns, sink, op_provision, &spec, &call, err);
	job_done(job, call);
	return r;
}

int create_ask(struct job *job, struct made *made, int (*op)(struct call *, const void *, struct err *),
	       const struct call_sink *sink, int64_t deadline_ns, struct err *err)
{
	struct berth_session session = {
		.struct_size = sizeof(session),
		.ref = str(made->ref),
		.state = {made->state, made->state_len},
		.root = str(made->root),
		.boot_id = str(made->boot_id),
	};
	const struct berth_session_info *info;
	struct call *call;
	struct made told;
	size_t count = 0;
	int r = job_call(job, deadline_ns, sink, op, &session, &call, err);

	if (r)
		goto out;
	info = call_sessions(call, &count);
	if (count == 0)
		goto out;
	r = made_copy(job->arena, info, &told, err);
	if (r == 0 && strcmp(told.ref, made->ref) != 0) {
		r = err_set(err, ERR_INTERNAL, "the provider answered about another session");
		err_reason(err, "plugin_violation");
	}
	if (r == 0)
		made_merge(made, &told);
out:
	job_done(job, call);
	return r;
}

bool create_is_open(int code)
{
	switch (code) {
	case 0: /* "done", and nothing was named */
	case ERR_OUTCOME_UNKNOWN:
	case ERR_PROVIDER_TIMEOUT:
	case ERR_CANCELLED:
	case ERR_DETACHED:
	case ERR_INTERNAL:
	case ERR_NOMEM:
	case ERR_STORE:
	case ERR_CONFLICT: /* exists already: a race that another one won, or a create of our own that we forgot */
		return true;
	default:
		return false;
	}
}

bool create_is_transient(int code)
{
	return code == ERR_PROVIDER_UNAVAILABLE || code == ERR_PROVIDER_TIMEOUT || code == ERR_RATE_LIMITED ||
	       code == ERR_QUEUE_FULL;
}

bool create_is_dead(int code, const struct made *made)
{
	return code == ERR_SESSION_GONE || code == ERR_NOT_FOUND || (code == 0 && phase_is_over(made->phase));
}
