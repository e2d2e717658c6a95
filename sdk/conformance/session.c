/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions of the kit: planned, provisioned, looked up, released. Any thread of a rule; one session is one thread's at
 * a time. What created() reports is kept before it returns, so that a provision which fails afterwards still leaves
 * nothing behind.
 */
#include "kit.h"

#include "core/ident.h"

#define WORKSPACE "conformance"
#define RELEASE_TRIES 5

struct berth_str str(const char *text)
{
	return (struct berth_str){.ptr = text, .len = strlen(text)};
}

bool str_is(struct berth_str text, const char *word)
{
	return text.len == strlen(word) && !memcmp(text.ptr ? text.ptr : "", word, text.len);
}

bool is_invalid(int rc)
{
	return rc == ERR_PROVIDER || rc == ERR_INVALID_REQUEST;
}

static void copy(char *ret, size_t size, struct berth_str text)
{
	snprintf(ret, size, "%.*s", (int)text.len, text.ptr ? text.ptr : "");
}

void session_name(struct check *check, char ret_task[64])
{
	snprintf(ret_task, 64, "t-%s-%u", check->kit->tag, check->kit->serial++);
}

const char *session_warm(const struct check *check)
{
	return check->kit->capabilities & BERTH_CAP_NATIVE_POOL ? NULL : "";
}

struct session *session_plan(struct check *check, const char *task)
{
	struct session *session = calloc(1, sizeof(*session));
	char name[64];

	if (!session)
		abort();
	session_name(check, name);
	session->kit = check->kit;
	if (!task || *task) {
		snprintf(session->workspace, sizeof(session->workspace), "%s", WORKSPACE);
		snprintf(session->task, sizeof(session->task), "%s", task ? task : name);
	}
	ident_random(session->intent, "", 32);
	lock_take(&check->lock);
	session->next = check->sessions;
	check->sessions = session;
	lock_drop(&check->lock);
	return session;
}

struct berth_spec session_spec(const struct session *session)
{
	const struct target *target = session->kit->target;
	const struct conf_target *conf = target->conf;

	return (struct berth_spec){
		.struct_size = sizeof(struct berth_spec),
		.isolation = target->isolation_wanted,
		.deployment = str(session->kit->conf->deployment),
		.workspace_id = str(session->workspace),
		.task_id = str(session->task),
		.intent = str(session->intent),
		.region = str(conf->region),
		.pool_key = str("conformance"),
		.image = str(conf->image),
		.cpu_millis = (uint64_t)conf->cpu_millis,
		.memory_bytes = (uint64_t)conf->memory,
		.disk_bytes = (uint64_t)conf->disk,
		.internet_allowed = conf->allow_internet,
	};
}

/* A later word about the same session may leave out what an earlier one told. */
void session_take(struct session *session, const struct berth_session_info *info)
{
	size_t state_len = session->abi.state.len;

	copy(session->ref, sizeof(session->ref), info->ref);
	if (info->boot_id.len)
		copy(session->boot_id, sizeof(session->boot_id), info->boot_id);
	if (info->root.len)
		copy(session->root, sizeof(session->root), info->root);
	if (info->state.len) {
		memcpy(session->state, info->state.ptr, info->state.len);
		state_len = info->state.len;
	}
	session->phase = info->phase;
	session->isolation = info->isolation ? info->isolation : session->isolation;
	session->memory_bytes = info->memory_bytes ? info->memory_bytes : session->memory_bytes;
	session->expires_ms = info->expires_ms ? info->expires_ms : session->expires_ms;
	session->abi = (struct berth_session){
		.struct_size = sizeof(session->abi),
		.ref = str(session->ref),
		.state = {session->state, state_len},
		.root = str(session->root),
		.boot_id = str(session->boot_id),
	};
}

static int keep_created(void *arg, const struct berth_session_info *info)
{
	struct session *session = arg;

	session->created++;
	session_take(session, info);
	return 0;
}

int session_provision(struct check *check, struct session *session, const struct berth_spec *spec)
{
	return session_provision_ms(check, session, spec, kit_ms(check->kit, 60000));
}

int session_provision_ms(struct check *check, struct session *session, const struct berth_spec *spec, int64_t ms)
{
	const struct call_sink sink = {.created = keep_created, .arg = session};
	struct call *call = check_call_ms(check, ms, &sink);
	const struct berth_spec own = session_spec(session);

	session->rc = call_provision(call, spec ? spec : &own, &session->err);
	return session->rc;
}

int session_await(struct check *check, struct session *session)
{
	struct call *call = check_call_ms(check, kit_ms(check->kit, 120000), NULL);
	const struct berth_session_info *infos;
	size_t count;

	session->rc = call_await_ready(call, &session->abi, &session->err);
	infos = call_sessions(call, &count);
	if (!session->rc && count == 1)
		session_take(session, &infos[0]);
	return session->rc;
}

struct session *session_make(struct check *check, const char *task)
{
	struct session *session = session_plan(check, task);

	if (session_provision(check, session, NULL)) {
		check_fail(check, "provision " OK_RC(session->err));
		return NULL;
	}
	if (session_await(check, session)) {
		check_fail(check, "await_ready of a new session " OK_RC(session->err));
		return NULL;
	}
	return session;
}

struct session *session_shared(struct check *check)
{
	struct session *made, **at;

	if (check->kit->shared)
		return check->kit->shared;
	made = session_make(check, NULL);
	if (!made)
		return NULL;
	lock_take(&check->lock);
	for (at = &check->sessions; *at != made; at = &(*at)->next)
		;
	*at = made->next;
	lock_drop(&check->lock);
	made->next = NULL;
	check->kit->shared = made;
	return made;
}

void session_drop_shared(struct kit *kit)
{
	struct err err = {0};

	if (kit->shared && session_release(kit, kit->shared, &err))
		fprintf(stderr, "berth-conformance: session %s cannot be released: %s\n", kit->shared->ref, err.msg);
	free(kit->shared);
	kit->shared = NULL;
}

int session_release(struct kit *kit, struct session *session, struct err *err)
{
	int rc = ERR_PROVIDER_UNAVAILABLE;

	for (int i = 0; rc && i < RELEASE_TRIES; i++) {
		struct call *call = call_new(kit->target, clock_after_ms(kit_ms(kit, 30000)), NULL);

		if (!call)
			abort();
		rc = call_release(call, &session->abi, err);
		call_free(call);
		if (rc && !err->retryable)
			break;
	}
	session->gone = !rc;
	return rc;
}

const struct berth_session_info *session_among(const struct call *call, const char *ref, size_t *ret_times)
{
	size_t count, times = 0;
	const struct berth_session_info *infos = call_sessions(call, &count), *found = NULL;

	for (size_t i = 0; i < count; i++)
		if (str_is(infos[i].ref, ref)) {
			found = &infos[i];
			times++;
		}
	if (ret_times)
		*ret_times = times;
	return found;
}

bool session_wait_gone(struct check *check, struct session *session)
{
	const struct timespec tick = {.tv_nsec = 20000000};
	int64_t until = clock_after_ms(kit_ms(check->kit, 1000 * check->kit->opt->gone_s));

	do {
		struct call *call = check_call(check);
		struct err err = {0};
		const struct berth_session_info *infos;
		size_t count;
		int rc = call_inspect(call, &session->abi, &err);

		infos = call_sessions(call, &count);
		if (rc == ERR_NOT_FOUND || (!rc && count == 1 && phase_is_over(infos[0].phase)))
			return true;
		if (rc && !err.retryable) {
			check_fail(check, "inspect of a released session " OK_RC(err));
			return false;
		}
		nanosleep(&tick, NULL);
	} while (clock_boot_ns() < until);
	check_fail(check, "inspect still finds session %s long after its release was confirmed", session->ref);
	return false;
}

bool session_list(struct check *check, struct pages *pages)
{
	const char *cursor = pages->call ? call_cursor(pages->call) : NULL;
	struct err err = {0};

	if (pages->call && !cursor)
		return false;
	pages->failed = true;
	MUST_OR(check, !cursors_take(&pages->cursors, cursor, &err), false, "list " OK_RC(err));
	pages->call = check_call(check);
	MUST_OR(check, !call_list(pages->call, cursor, &err), false, "list " OK_RC(err));
	pages->failed = false;
	return true;
}

int session_listed(struct check *check, const char *ref)
{
	struct pages pages = {0};
	size_t times;
	int listed = 0;

	while (session_list(check, &pages)) {
		session_among(pages.call, ref, &times);
		listed += (int)times;
	}
	return pages.failed ? -1 : listed;
}
