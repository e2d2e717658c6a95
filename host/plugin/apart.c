/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that run apart: on a thread of the target's own, while the caller waits. When the watchdog gives such a call up
 * the caller goes on, and the thread puts the call away when the plugin comes back, if ever. Entered by callers and by
 * the pool's threads. Must never let the plugin see anything that the caller may free, nor the late thread touch the
 * caller's sink.
 */
#include "plugin/private.h"

#include "core/limits.h"
#include "core/log.h"

/* ---- copies ---- */

static bool keep(struct call_args *args, struct berth_str *text)
{
	char *copy;

	if (!text->len)
		return true;
	copy = arena_strndup(args->arena, text->ptr, text->len);
	text->ptr = copy;
	return copy != NULL;
}

static bool keep_pairs(struct call_args *args)
{
	struct berth_spec *spec = &args->spec;
	struct berth_pair *env = spec->env_count ? arena_alloc(args->arena, spec->env_count * sizeof(*env)) : NULL;
	bool ok = true;

	if (!spec->env_count)
		return true;
	for (size_t i = 0; env && ok && i < spec->env_count; i++) {
		env[i] = spec->env[i];
		ok = keep(args, &env[i].name) && keep(args, &env[i].value);
	}
	spec->env = env;
	return env && ok;
}

static bool keep_paths(struct call_args *args)
{
	struct berth_str *paths = args->path_count ? arena_alloc(args->arena, args->path_count * sizeof(*paths)) : NULL;
	bool ok = true;

	if (!args->path_count)
		return true;
	for (size_t i = 0; paths && ok && i < args->path_count; i++) {
		paths[i] = args->paths[i];
		ok = keep(args, &paths[i]);
	}
	args->paths = paths;
	return paths && ok;
}

int args_keep(struct call *call, struct err *err)
{
	struct call_args *args = &call->args;
	struct berth_str *texts[] = {
		&args->session.ref,
		&args->session.state,
		&args->session.root,
		&args->session.boot_id,
		&args->spec.deployment,
		&args->spec.workspace_id,
		&args->spec.task_id,
		&args->spec.intent,
		&args->spec.region,
		&args->spec.pool_key,
		&args->spec.image,
		&args->identity.workspace_id,
		&args->identity.task_id,
		&args->write.path,
		&args->write.sha256,
		&args->execution.id,
		&args->execution.handle,
		&args->text,
		&args->other,
	};
	bool ok;

	if (!call->apart || args->command)
		return 0;
	if (args->arena)
		arena_reset(args->arena);
	else
		args->arena = arena_new(LIMIT_CALL_ARENA);
	ok = args->arena != NULL;
	for (size_t i = 0; ok && i < sizeof(texts) / sizeof(texts[0]); i++)
		ok = keep(args, texts[i]);
	ok = ok && keep_pairs(args) && keep_paths(args);
	return ok ? 0 : err_set(err, ERR_NOMEM, "memory is out");
}

/* ---- the thread ---- */

/* The plugin is back. True: the caller did not wait for it. */
static bool come_back(struct call *call, int32_t code)
{
	bool late;

	lock_take(&call->lock);
	call->code = code;
	call->returned = true;
	late = call->ends_apart = call->gone;
	cond_wake_all(&call->back);
	lock_drop(&call->lock);
	return late;
}

/* The caller went on. Its memory goes with whoever is the last to need it. */
static void put_away(struct call *call)
{
	bool orphan;

	(void)call_end(call, call->code, NULL);
	lock_take(&call->lock);
	call->over = true;
	orphan = call->orphan;
	lock_drop(&call->lock);
	if (orphan)
		call_destroy(call);
}

static void apart_main(void *arg)
{
	struct call *call = arg;
	int32_t code;

	log_set_request(call->request_id[0] ? call->request_id : NULL);
	log_set_trace(call->traceparent);
	call_inside(call);
	code = call->run(call);
	call_outside(call);
	if (come_back(call, code))
		put_away(call); /* else it is the caller's again, and may be gone already */
	log_set_trace("");
}

/* ---- the caller ---- */

static bool wait_back(struct call *call)
{
	bool ours;

	lock_take(&call->lock);
	while (!call->returned && !call->gone)
		cond_wait_until(&call->back, &call->lock, INT64_MAX);
	ours = call->returned && !call->ends_apart;
	lock_drop(&call->lock);
	return ours;
}

static int run_here(struct call *call, int32_t (*run)(struct call *call), struct err *err)
{
	int32_t code;

	call_inside(call);
	code = run(call);
	call_outside(call);
	return call_end(call, code, err);
}

int call_run(struct call *call, int32_t (*run)(struct call *call), struct err *err)
{
	struct target_state *ts = call->target->state;

	if (!call->apart)
		return run_here(call, run, err);
	call->run = run;
	if (pool_submit(ts->apart, apart_main, call))
		return call_not_run(call, err);
	if (wait_back(call))
		return call_end(call, call->code, err);
	call->left = true;
	return call_gave_up(call, err);
}
