/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life and death of one session: expired, rebooted, reported, removed. Removal first takes the session out of sight by
 * a rename and then kills and deletes at leisure, so it may be interrupted and repeated by any process on the root. Any
 * thread; must never report a session as gone while a process of it may still run.
 */
#include "session.h"

#include "null.h"
#include "text.h"

#include <errno.h>
#include <stdio.h>

bool session_expired(const struct session *s)
{
	return s->expires_ms && text_now_ms() >= s->expires_ms;
}

int64_t session_expiry(const struct session *s)
{
	return s->expires_ms ? s->expires_ms : BERTH_EXPIRES_NEVER;
}

bool session_rebooted(const struct mock *m, const struct session *s)
{
	return strcmp(m->store.boot, s->boot);
}

static uint32_t phase_of(const struct mock *m, const struct session *s)
{
	if (session_rebooted(m, s))
		return BERTH_PHASE_DEAD;
	return s->ready_ms > text_now_ms() ? BERTH_PHASE_STARTING : BERTH_PHASE_READY;
}

void session_info(const struct mock *m, const struct session *s, char root[SESSION_PATH_MAX],
		  struct berth_session_info *ret)
{
	*ret = (struct berth_session_info){
	    .struct_size = sizeof(*ret),
	    .phase = phase_of(m, s),
	    .ref = text_str(s->ref),
	    .workspace_id = text_str(s->workspace),
	    .task_id = text_str(s->task),
	    .intent = text_str(s->intent),
	    .boot_id = text_str(s->boot),
	    .created_ms = s->created_ms,
	    .expires_ms = session_expiry(s),
	    .isolation = BERTH_ISOLATION_NONE,
	    .memory_bytes = m->limits.memory_max,
	};
	if (ret->phase == BERTH_PHASE_DEAD)
		ret->dead_reason = text_str("rebooted");
	snprintf(root, SESSION_PATH_MAX, m->null ? "/" : "%s/sessions/%s/work", m->store.root, s->ref);
	ret->root = text_str(root);
}

static int kill_trashed(struct mock *m, const char *ref, int64_t deadline_ns)
{
	struct berth_sup sup = {.struct_size = sizeof(sup), .helper = m->supervise, .uid = -1, .gid = -1};
	char run_dir[SESSION_PATH_MAX];
	int32_t rc;

	snprintf(run_dir, sizeof(run_dir), "%s/trash/%s/run", m->store.root, ref);
	sup.run_dir = run_dir;
	rc = berth_sup_kill_all(&sup, deadline_ns);
	return !rc || rc == BERTH_NOT_FOUND ? 0 : rc == BERTH_TIMEOUT ? -ETIMEDOUT : -EAGAIN;
}

int session_remove(struct mock *m, const char *ref, int64_t deadline_ns)
{
	int rc = store_trash(&m->store, ref);

	if (m->null)
		null_forget(m, ref);
	if (rc < 0)
		return rc;
	if (!rc)
		tally_count(&m->tally, TALLY_REMOVED);
	if (!m->null) {
		rc = kill_trashed(m, ref, deadline_ns);
		if (!rc)
			rc = limit_leave(&m->limits, ref);
		if (rc)
			return rc;
	}
	return store_reap(&m->store, ref);
}

void session_sweep(struct mock *m, int64_t age_ms, int64_t deadline_ns)
{
	struct store_refs refs;

	if (store_trashed(&m->store, &refs))
		return;
	for (size_t i = 0; i < refs.count && text_boot_ns() < deadline_ns; i++)
		if (store_trash_old(&m->store, refs.ref[i], age_ms))
			session_remove(m, refs.ref[i], deadline_ns);
	store_refs_free(&refs);
}
