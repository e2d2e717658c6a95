/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations on sessions: find, list, provision, await_ready, assign, inspect, renew, release. All state is in the
 * store's files; nothing is cached here, so that any number of hosts may use one root. Entered by any thread.
 * Identities are not made unique: like a real provider it happily makes two sessions for one task, which is the host's
 * to prevent.
 */
#include "session.h"

#include "null.h"
#include "opcall.h"
#include "shim.h"
#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

/* Sessions looked at per page of list. */
#define PAGE 256
/* A removal this old has lost its maker: the next release finishes it. */
#define SWEEP_AGE_MS 60000
/* Killing goes on in slices, so that a cancel is noticed; a control group is busy a moment longer than its processes.
 */
#define RELEASE_SLICE_NS INT64_C(500000000)
#define RELEASE_PAUSE_NS INT64_C(10000000)
#define READY_SLICE_NS INT64_C(250000000)

static int32_t emit(struct opcall *oc, const struct session *s)
{
	struct berth_session_info info;
	char root[SESSION_PATH_MAX];

	session_info(oc->m, s, root, &info);
	return shim_host.emit_session(oc->call, &info);
}

/* Emits the session when it is one of this deployment that can be seen. An expired one is taken away instead. */
static int32_t emit_seen(struct opcall *oc, const char *ref, const struct berth_identity *identity)
{
	struct session s;
	int rc = store_load(&oc->m->store, ref, &s);

	if (rc == -ENOENT && identity)
		store_drop_stale(&oc->m->store, oc->s.workspace, oc->s.task, ref);
	if (rc == -ENOENT)
		return BERTH_OK;
	if (rc)
		return opcall_fail_errno(oc, rc, ref);
	if (strcmp(s.deployment, oc->m->deployment) || s.visible_ms > text_now_ms())
		return BERTH_OK;
	if (identity && (strcmp(s.workspace, oc->s.workspace) || strcmp(s.task, oc->s.task)))
		return BERTH_OK;
	if (session_expired(&s)) {
		session_remove(oc->m, ref, opcall_deadline_ns(oc));
		return BERTH_OK;
	}
	return emit(oc, &s);
}

static int32_t find(struct opcall *oc, const struct berth_identity *identity)
{
	struct store_refs refs;
	int32_t rc;
	int err;

	if (!text_ident(identity->workspace_id) || !text_ident(identity->task_id))
		return opcall_fail(oc, BERTH_INVALID, "identity", "not a task identity");
	err = store_by_task(&oc->m->store, oc->s.workspace, oc->s.task, &refs);
	if (err)
		return opcall_fail_errno(oc, err, "by-task");
	rc = BERTH_OK;
	for (size_t i = 0; !rc && i < refs.count; i++) {
		rc = emit_seen(oc, refs.ref[i], identity);
		if (!rc)
			rc = opcall_stopped(oc);
	}
	store_refs_free(&refs);
	return rc;
}

int32_t mock_find(void *inst, struct berth_call *call, const struct berth_identity *identity)
{
	struct opcall oc;
	int32_t rc = opcall_begin(&oc, inst, call, OP_FIND, identity->workspace_id, identity->task_id);

	if (!rc)
		rc = find(&oc, identity);
	return opcall_end(&oc, rc);
}

static int32_t list_page(struct opcall *oc, const struct store_refs *refs, const char *after)
{
	struct berth_str cursor;
	int32_t rc = BERTH_OK;
	size_t i = 0, end;

	while (i < refs->count && strcmp(refs->ref[i], after) <= 0)
		i++;
	end = refs->count - i > PAGE ? i + PAGE : refs->count;
	for (; !rc && i < end; i++) {
		rc = emit_seen(oc, refs->ref[i], NULL);
		if (!rc)
			rc = opcall_stopped(oc);
	}
	if (rc || end == refs->count)
		return rc;
	cursor = text_str(refs->ref[end - 1]);
	return shim_host.emit_cursor(oc->call, &cursor);
}

/* Every page reads the directory again: what exists throughout is listed, since the pages follow the order of refs. */
static int32_t list(struct opcall *oc, const struct berth_str *cursor)
{
	char after[STORE_REF_MAX + 1] = "";
	struct store_refs refs;
	int32_t rc;
	int err;

	if (cursor->len && (!store_ref_valid(cursor->ptr, cursor->len) || !text_copy(after, sizeof(after), *cursor)))
		return opcall_fail(oc, BERTH_INVALID, "cursor", "not a cursor of this provider");
	err = store_all(&oc->m->store, &refs);
	if (err)
		return opcall_fail_errno(oc, err, "sessions");
	rc = list_page(oc, &refs, after);
	store_refs_free(&refs);
	return rc;
}

int32_t mock_list(void *inst, struct berth_call *call, const struct berth_str *cursor)
{
	struct opcall oc;
	int32_t rc = opcall_begin(&oc, inst, call, OP_LIST, text_str(""), text_str(""));

	if (!rc)
		rc = list(&oc, cursor);
	return opcall_end(&oc, rc);
}

static void make_ref(char ret[STORE_REF_MAX + 1])
{
	unsigned char bytes[8];

	shim_host.random(bytes, sizeof(bytes));
	snprintf(ret, STORE_REF_MAX + 1, "mock-%02x%02x%02x%02x%02x%02x%02x%02x", bytes[0], bytes[1], bytes[2],
		 bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]);
}

/* What is granted of an expiry that is asked for, from now. */
static int64_t grant(const struct opcall *oc, int64_t asked_ms, int64_t now_ms)
{
	int64_t ttl = oc->m->session_ttl_ms;

	if (effect_has(&oc->fx, FX_CLAMP) && (!ttl || oc->fx.clamp_ms < ttl))
		ttl = oc->fx.clamp_ms;
	else if (!ttl)
		return asked_ms;
	return asked_ms < now_ms + ttl ? asked_ms : now_ms + ttl;
}

/* False: the spec cannot be kept as it is. */
static bool fill(struct opcall *oc, const struct berth_spec *spec)
{
	struct session *s = &oc->s;
	int64_t now_ms = text_now_ms();
	bool warm = !spec->workspace_id.len && !spec->task_id.len;

	if (!warm && (!text_ident(spec->workspace_id) || !text_ident(spec->task_id)))
		return false;
	if (!text_copy(s->deployment, sizeof(s->deployment), spec->deployment) ||
	    !text_copy(s->intent, sizeof(s->intent), spec->intent))
		return false;
	make_ref(s->ref);
	memcpy(s->boot, oc->m->store.boot, sizeof(s->boot));
	s->created_ms = now_ms;
	s->ready_ms = now_ms + oc->m->ready_delay_ms;
	s->expires_ms = spec->expires_ms ? grant(oc, spec->expires_ms, now_ms) : 0;
	if (effect_has(&oc->fx, FX_LATE))
		s->visible_ms = now_ms + oc->fx.late_ms;
	return true;
}

static int32_t provision(struct opcall *oc, const struct berth_spec *spec)
{
	struct berth_session_info info;
	char root[SESSION_PATH_MAX];
	int32_t rc;
	int err;

	if (!fill(oc, spec))
		return opcall_fail(oc, BERTH_INVALID, "spec", "deployment, identity or intent is malformed");
	if (spec->isolation > oc->m->isolation)
		return opcall_fail(oc, BERTH_INVALID, "isolation", "the wanted isolation is stronger than this target's");
	err = store_create(&oc->m->store, &oc->s, spec->env, spec->env_count);
	if (err)
		return opcall_fail_errno(oc, err, "provision");
	tally_count(&oc->m->tally, TALLY_CREATED);
	session_info(oc->m, &oc->s, root, &info);
	rc = shim_host.created(oc->call, &info);
	if (effect_has(&oc->fx, FX_VANISH))
		session_remove(oc->m, oc->s.ref, opcall_deadline_ns(oc));
	return rc;
}

int32_t mock_provision(void *inst, struct berth_call *call, const struct berth_spec *spec)
{
	struct opcall oc;
	int32_t rc = opcall_begin(&oc, inst, call, OP_PROVISION, spec->workspace_id, spec->task_id);

	if (!rc)
		rc = provision(&oc, spec);
	return opcall_end(&oc, rc);
}

/* To change the session: keeps other writers out until let_go. */
static int32_t hold(struct opcall *oc, int *ret_fd)
{
	*ret_fd = store_hold(&oc->m->store, oc->ref, &oc->s);
	if (*ret_fd >= 0)
		return BERTH_OK;
	return *ret_fd == -ENOENT ? opcall_fail(oc, BERTH_SESSION_LOST, "deleted", "the session is not there")
				  : opcall_fail_errno(oc, *ret_fd, oc->ref);
}

static void let_go(struct opcall *oc, int fd)
{
	close(fd);
	if (oc->m->null)
		null_forget(oc->m, oc->ref);
}

/* The executor of a session that is said to be ready refuses for a while. */
static int32_t ready_early(struct opcall *oc)
{
	int fd, err;
	int32_t rc = hold(oc, &fd);

	if (rc)
		return rc;
	oc->s.ready_ms = text_now_ms();
	oc->s.deaf_ms = oc->s.ready_ms + oc->fx.ready_early_ms;
	err = store_save(&oc->m->store, fd, &oc->s);
	let_go(oc, fd);
	return err ? opcall_fail_errno(oc, err, oc->ref) : BERTH_OK;
}

static int32_t await_ready(struct opcall *oc)
{
	bool told = false;
	int32_t rc = opcall_exists(oc);

	if (!rc && effect_has(&oc->fx, FX_READY_EARLY))
		rc = ready_early(oc);
	while (!rc && oc->s.ready_ms > text_now_ms()) {
		int64_t left_ns = (oc->s.ready_ms - text_now_ms()) * 1000000;

		if (!told)
			shim_host.progress(oc->call, BERTH_PHASE_STARTING, "waits for ready_delay");
		told = true;
		/* In slices, so that a session that goes meanwhile is noticed. */
		rc = opcall_wait(oc, text_boot_ns() + (left_ns < READY_SLICE_NS ? left_ns : READY_SLICE_NS));
		if (rc)
			return rc;
		opcall_reload(oc);
		rc = opcall_exists(oc);
	}
	return rc ? rc : emit(oc, &oc->s);
}

int32_t mock_await_ready(void *inst, struct berth_call *call, const struct berth_session *session)
{
	struct opcall oc;
	int32_t rc = opcall_begin_session(&oc, inst, call, OP_AWAIT_READY, session);

	if (!rc)
		rc = await_ready(&oc);
	return opcall_end(&oc, rc);
}

/* With the session held. */
static int32_t assign_held(struct opcall *oc, int fd, const struct berth_identity *identity)
{
	char workspace[sizeof(oc->s.workspace)], task[sizeof(oc->s.task)];
	int rc;

	text_copy(workspace, sizeof(workspace), identity->workspace_id);
	text_copy(task, sizeof(task), identity->task_id);
	if (*oc->s.task && (strcmp(oc->s.workspace, workspace) || strcmp(oc->s.task, task)))
		return opcall_fail(oc, BERTH_CONFLICT, "assigned", "the session belongs to another task");
	memcpy(oc->s.workspace, workspace, sizeof(workspace));
	memcpy(oc->s.task, task, sizeof(task));
	rc = store_index(&oc->m->store, &oc->s);
	if (!rc)
		rc = store_save(&oc->m->store, fd, &oc->s);
	return rc ? opcall_fail_errno(oc, rc, oc->ref) : emit(oc, &oc->s);
}

static int32_t assign(struct opcall *oc, const struct berth_identity *identity)
{
	int32_t rc = opcall_exists(oc);
	int fd;

	if (rc)
		return rc;
	if (!text_ident(identity->workspace_id) || !text_ident(identity->task_id))
		return opcall_fail(oc, BERTH_INVALID, "identity", "not a task identity");
	rc = hold(oc, &fd);
	if (rc)
		return rc;
	rc = assign_held(oc, fd, identity);
	let_go(oc, fd);
	return rc;
}

int32_t mock_assign(void *inst, struct berth_call *call, const struct berth_session *session,
		    const struct berth_identity *identity)
{
	struct opcall oc;
	int32_t rc = opcall_begin_session(&oc, inst, call, OP_ASSIGN, session);

	if (!rc)
		rc = assign(&oc, identity);
	return opcall_end(&oc, rc);
}

static int32_t inspect(struct opcall *oc)
{
	/* Not through the cache of the null runtime: the answer must be certain. */
	int err = *oc->ref ? store_load(&oc->m->store, oc->ref, &oc->s) : -ENOENT;

	if (err == -ENOENT)
		return opcall_fail(oc, BERTH_NOT_FOUND, "deleted", "the session is not there");
	if (err)
		return opcall_fail_errno(oc, err, oc->ref);
	if (session_expired(&oc->s))
		return opcall_fail(oc, BERTH_NOT_FOUND, "expired", "the provider's expiry of the session passed");
	return emit(oc, &oc->s);
}

int32_t mock_inspect(void *inst, struct berth_call *call, const struct berth_session *session)
{
	struct opcall oc;
	int32_t rc = opcall_begin_session(&oc, inst, call, OP_INSPECT, session);

	if (!rc)
		rc = inspect(&oc);
	return opcall_end(&oc, rc);
}

static int32_t renew(struct opcall *oc, int64_t until_ms)
{
	int32_t rc = opcall_exists(oc);
	int64_t until;
	int fd, err = 0;

	if (!rc)
		rc = hold(oc, &fd);
	if (rc)
		return rc;
	until = grant(oc, until_ms, text_now_ms());
	if (oc->s.expires_ms && until > oc->s.expires_ms) {
		oc->s.expires_ms = until;
		err = store_save(&oc->m->store, fd, &oc->s);
	}
	let_go(oc, fd);
	return err ? opcall_fail_errno(oc, err, oc->ref) : shim_host.emit_expiry(oc->call, session_expiry(&oc->s));
}

int32_t mock_renew(void *inst, struct berth_call *call, const struct berth_session *session, int64_t until_ms)
{
	struct opcall oc;
	int32_t rc = opcall_begin_session(&oc, inst, call, OP_RENEW, session);

	if (!rc)
		rc = renew(&oc, until_ms);
	return opcall_end(&oc, rc);
}

static int32_t release(struct opcall *oc)
{
	int64_t deadline_ns = opcall_deadline_ns(oc);
	int32_t rc = BERTH_OK;
	bool busy = true;
	int err = 0;

	if (!*oc->ref)
		return opcall_fail(oc, BERTH_NOT_FOUND, "deleted", "not a session of this provider");
	session_sweep(oc->m, SWEEP_AGE_MS, text_boot_ns() + RELEASE_SLICE_NS);
	while (!rc && busy) {
		int64_t slice_ns = text_boot_ns() + RELEASE_SLICE_NS;

		err = session_remove(oc->m, oc->ref, slice_ns < deadline_ns ? slice_ns : deadline_ns);
		busy = err == -ETIMEDOUT || err == -EBUSY;
		if (busy)
			rc = opcall_wait(oc, text_boot_ns() + RELEASE_PAUSE_NS);
	}
	if (rc)
		return rc;
	if (err == -ENOENT)
		return opcall_fail(oc, BERTH_NOT_FOUND, "deleted", "the session is not there");
	return err ? opcall_fail_errno(oc, err, oc->ref) : BERTH_OK;
}

int32_t mock_release(void *inst, struct berth_call *call, const struct berth_session *session)
{
	struct opcall oc;
	int32_t rc = opcall_begin_session(&oc, inst, call, OP_RELEASE, session);

	if (!rc)
		rc = release(&oc);
	return opcall_end(&oc, rc);
}
