/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people see of bindings: one task, a list, and which workspace has a task. Any thread that may block. Reads only: nothing
 * here renews a lease or shows a provider's secrets.
 */
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "session/session_private.h"

struct view {
	const char *id, *workspace_id, *task_id, *stage, *state, *cause, *doom, *provider, *target, *region, *isolation, *phase;
	int64_t incarnation, created_ms, lease_until_ms, ceiling_ms, provider_expires_ms, teardown_ms;
	struct view_resources {
		int64_t cpu_millis, memory_bytes, disk_bytes;
	} resources;
	struct view_op {
		const char *id, *kind;
		int64_t until_ms;
		bool waiting;
	} *ops;
	size_t op_count;
	int64_t operation_count;
	struct view_failure {
		const char *code, *reason, *message;
		int64_t until_ms, count;
	} failure;
	struct view_release {
		int64_t tries, next_ms, strays;
		const char *error;
	} release;
};

#define FIELD(type, name, kind, flags, field) {name, kind, flags, offsetof(struct type, field)}
static const struct json_field resource_fields[] = {
	FIELD(view_resources, "cpu_millis", JSON_I64, JSON_OMIT, cpu_millis),
	FIELD(view_resources, "memory_bytes", JSON_I64, JSON_OMIT, memory_bytes),
	FIELD(view_resources, "disk_bytes", JSON_I64, JSON_OMIT, disk_bytes),
	{0},
};
static const struct json_field op_fields[] = {
	FIELD(view_op, "id", JSON_STR, 0, id),
	FIELD(view_op, "kind", JSON_STR, 0, kind),
	FIELD(view_op, "until", JSON_TIME, 0, until_ms),
	FIELD(view_op, "waiting", JSON_BOOL, JSON_OMIT, waiting),
	{0},
};
static const struct json_field failure_fields[] = {
	FIELD(view_failure, "code", JSON_STR, JSON_OMIT, code),
	FIELD(view_failure, "reason", JSON_STR, JSON_OMIT, reason),
	FIELD(view_failure, "message", JSON_STR, JSON_OMIT, message),
	FIELD(view_failure, "until", JSON_TIME, JSON_OMIT, until_ms),
	FIELD(view_failure, "count", JSON_I64, JSON_OMIT, count),
	{0},
};
static const struct json_field release_fields[] = {
	FIELD(view_release, "tries", JSON_I64, JSON_OMIT, tries),
	FIELD(view_release, "next_at", JSON_TIME, JSON_OMIT, next_ms),
	FIELD(view_release, "strays", JSON_I64, JSON_OMIT, strays),
	FIELD(view_release, "error", JSON_STR, JSON_OMIT, error),
	{0},
};
#define SUB(name, kind, field, table) {name, kind, JSON_OMIT, offsetof(struct view, field), 0, table}
#define COMMON                                                                                                      \
	FIELD(view, "id", JSON_STR, JSON_OMIT, id), FIELD(view, "provider", JSON_STR, JSON_OMIT, provider),          \
		FIELD(view, "workspace_id", JSON_STR, 0, workspace_id), FIELD(view, "task_id", JSON_STR, 0, task_id), \
		FIELD(view, "state", JSON_STR, 0, state), FIELD(view, "stage", JSON_STR, 0, stage),                  \
		FIELD(view, "target", JSON_STR, JSON_OMIT, target), FIELD(view, "region", JSON_STR, JSON_OMIT, region), \
		FIELD(view, "incarnation", JSON_I64, JSON_OMIT, incarnation),                                        \
		FIELD(view, "created_at", JSON_TIME, JSON_OMIT, created_ms),                                         \
		FIELD(view, "isolation", JSON_STR, JSON_OMIT, isolation),                                            \
		SUB("resources", JSON_OBJ, resources, resource_fields),                                              \
		FIELD(view, "phase", JSON_STR, JSON_OMIT, phase)

static const struct json_field item_fields[] = {
	COMMON,
	FIELD(view, "expires_at", JSON_TIME, JSON_OMIT, lease_until_ms),
	FIELD(view, "operations", JSON_I64, 0, operation_count),
	{0},
};

static const struct json_field task_fields[] = {
	COMMON,
	FIELD(view, "cause", JSON_STR, JSON_OMIT, cause),
	FIELD(view, "ends_with", JSON_STR, JSON_OMIT, doom),
	FIELD(view, "lease_until", JSON_TIME, JSON_OMIT, lease_until_ms),
	FIELD(view, "ceiling_at", JSON_TIME, JSON_OMIT, ceiling_ms),
	FIELD(view, "provider_expires_at", JSON_TIME, JSON_OMIT, provider_expires_ms),
	FIELD(view, "teardown_at", JSON_TIME, JSON_OMIT, teardown_ms),
	{"operations", JSON_ARR, 0, offsetof(struct view, ops), offsetof(struct view, op_count), op_fields,
	 sizeof(struct view_op)},
	SUB("failure", JSON_OBJ, failure, failure_fields),
	SUB("release", JSON_OBJ, release, release_fields),
	{0},
};

static void view_session(struct sessions *s, const struct binding *b, struct view *ret)
{
	const struct target *target = registry_find(s->config.registry, b->target);

	*ret = (struct view){
		.id = b->ref,
		.workspace_id = b->workspace_id,
		.task_id = b->task_id,
		.state = b->state_word,
		.stage = binding_stage(b),
		.cause = b->cause_word,
		.doom = b->doom_word,
		.provider = target ? target->conf->provider : "",
		.target = b->target,
		.region = b->region,
		.isolation = b->isolation,
		.phase = b->phase,
		.incarnation = b->incarnation,
		.created_ms = b->created_ms,
		.lease_until_ms = b->lease_until_ms,
		.ceiling_ms = b->ceiling_ms,
		.provider_expires_ms = b->provider_expires_ms,
		.teardown_ms = b->teardown_ms,
		.operation_count = (int64_t)b->op_count,
		.release = {b->release_tries, b->release_tries ? b->release_next_ms : 0, (int64_t)b->stray_count,
			    b->release_error},
	};
	if (target)
		ret->resources = (struct view_resources){target->conf->cpu_millis, target->conf->memory, target->conf->disk};
	if (b->fail_count)
		ret->failure = (struct view_failure){b->fail_code, b->fail_reason, b->fail_message, b->fail_until_ms,
						     b->fail_count};
}

static int view_ops(struct arena *arena, const struct binding *b, struct view *view)
{
	view->ops = arena_alloc(arena, (b->op_count + 1) * sizeof(*view->ops));
	if (!view->ops)
		return ERR_NOMEM;
	view->op_count = b->op_count;
	for (size_t i = 0; i < b->op_count; i++)
		view->ops[i] = (struct view_op){b->ops[i].id, b->ops[i].kind, b->ops[i].until_ms, b->ops[i].waiting};
	return 0;
}

struct describe {
	struct sessions *s;
	const struct ident *ident;
	struct buf *buf;
	size_t start; /* of our text in buf */
};

static int describe_step(struct txn *txn, void *arg, struct err *err)
{
	struct describe *describe = arg;
	struct view view;
	struct row row;
	int r = row_get(describe->s, txn, describe->ident, &row, err);

	if (r)
		return r;
	if (!row.existed)
		return err_set(err, ERR_NOT_FOUND, "the task is not known");
	view_session(describe->s, &row.b, &view);
	if (view_ops(txn_arena(txn), &row.b, &view))
		return err_set(err, ERR_NOMEM, "no memory is left to describe a task");
	describe->buf->len = describe->start; /* it may run again */
	r = json_encode(describe->buf, task_fields, &view, 0);
	return r ? err_set(err, r, "the task's description does not fit") : 0;
}

int session_describe(struct sessions *s, const struct ident *ident, struct buf *buf, struct err *err)
{
	struct describe describe = {s, ident, buf, buf->len};

	return store_view(s->config.store, describe_step, &describe, err);
}

struct list {
	struct sessions *s;
	struct buf *buf;
	size_t limit, count;
	char *last; /* key of the last item */
	bool more;
};

static bool list_row(const struct ident *ident, const struct binding *b, void *arg)
{
	struct list *list = arg;
	char key[IDENT_KEY_MAX + 1];
	struct view view;

	if (b->state == BINDING_GONE)
		return true; /* no session */
	if (list->count == list->limit) {
		list->more = true;
		return false;
	}
	view_session(list->s, b, &view);
	if (list->count++)
		buf_puts(list->buf, ",");
	json_encode(list->buf, item_fields, &view, 0);
	ident_key(ident, key);
	free(list->last);
	list->last = strdup(key);
	return list->last && !list->buf->error;
}

int session_list(struct sessions *s, const char *workspace, const char *after, size_t limit, struct buf *buf,
		 size_t *ret_count, char **ret_next, struct err *err)
{
	struct list list = {.s = s, .buf = buf, .limit = limit < LIMIT_PAGE ? limit : LIMIT_PAGE};
	int r = rows_each(s, workspace, after, list_row, &list, err);

	if (r == 0 && buf->error)
		r = err_set(err, buf->error, "the list of sessions does not fit");
	if (r == 0 && list.count && !list.last)
		r = err_set(err, ERR_NOMEM, "no memory is left to list sessions");
	*ret_count = list.count;
	*ret_next = NULL;
	if (r == 0 && list.more) {
		*ret_next = list.last;
		list.last = NULL;
	}
	free(list.last);
	return r;
}

struct search {
	const char *task;
	char found[IDENT_PART_MAX + 1];
	int64_t incarnation;
	bool here, several;
};

/* Of those that are gone the latest is meant, and by nobody who has one that is not. */
static bool match_task(const struct ident *ident, const struct binding *b, void *arg)
{
	struct search *search = arg;
	bool here = b->state != BINDING_GONE;

	if (strcmp(ident->task, search->task) != 0 ||
	    (!here && (search->here || b->incarnation < search->incarnation)))
		return true;
	search->several = here && search->here;
	search->here = here;
	search->incarnation = b->incarnation;
	memcpy(search->found, ident->workspace, sizeof(search->found));
	return !search->several;
}

int session_find_workspace(struct sessions *s, const char *task, char ret_workspace[IDENT_PART_MAX + 1], struct err *err)
{
	struct search search = {.task = task};
	int r = rows_each(s, NULL, "", match_task, &search, err);

	if (r)
		return r;
	if (search.several)
		return err_set(err, ERR_INVALID_REQUEST, "workspace_id: several workspaces have a task of this name");
	if (!search.found[0])
		return err_set(err, ERR_NOT_FOUND, "the task is not known");
	memcpy(ret_workspace, search.found, sizeof(search.found));
	return 0;
}
