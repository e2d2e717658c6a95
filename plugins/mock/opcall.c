/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every operation does around its own work. Entered by every thread that runs an operation; an opcall belongs to
 * its thread and lives on its stack. Faults that come before the work act here, those that change answers act in
 * shim.c. Only the fault "stall" may make a call outlive its deadline.
 */
#include "opcall.h"

#include "null.h"
#include "session.h"
#include "shim.h"
#include "text.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>

#define POLL_MS 250 /* without a descriptor to wait on */

static uint32_t retryable_by_nature(int32_t code)
{
	return code == BERTH_UNAVAILABLE || code == BERTH_CAPACITY || code == BERTH_RATE_LIMITED;
}

int32_t opcall_fail(struct opcall *oc, int32_t code, const char *reason, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return shim_host.fail(oc->call, code, reason, retryable_by_nature(code), 0, text);
}

int32_t opcall_fail_errno(struct opcall *oc, int err, const char *what)
{
	char buf[128];
	int32_t code = BERTH_UNAVAILABLE;

	if (err == -ENOSPC || err == -EDQUOT)
		code = BERTH_STORAGE_FULL;
	else if (err == -EACCES || err == -EPERM || err == -EROFS)
		code = BERTH_FORBIDDEN;
	else if (err == -EBADMSG)
		code = BERTH_INTERNAL;
	return opcall_fail(oc, code, err == -EBADMSG ? "session_file" : "provider_disk", "%s: %s", what,
			   strerror_r(-err, buf, sizeof(buf)));
}

int64_t opcall_deadline_ns(struct opcall *oc)
{
	struct berth_call_info info = {.struct_size = sizeof(info)};

	shim_host.info(oc->call, &info);
	return info.deadline_ns > 0 ? info.deadline_ns : INT64_MAX;
}

int32_t opcall_stopped(struct opcall *oc)
{
	if (shim_host.cancel_state(oc->call) != BERTH_CANCEL_NONE)
		return BERTH_CANCELLED;
	return text_boot_ns() >= opcall_deadline_ns(oc) ? BERTH_TIMEOUT : BERTH_OK;
}

static void nap(int fd, int64_t until_ns)
{
	struct pollfd entry = {.fd = fd, .events = POLLIN};
	int64_t left_ns = until_ns - text_boot_ns();
	struct timespec ts;

	if (left_ns <= 0)
		return;
	if (fd < 0 && left_ns > POLL_MS * INT64_C(1000000))
		left_ns = POLL_MS * INT64_C(1000000);
	ts.tv_sec = left_ns / 1000000000;
	ts.tv_nsec = left_ns % 1000000000;
	ppoll(&entry, fd < 0 ? 0 : 1, &ts, NULL);
}

int32_t opcall_wait(struct opcall *oc, int64_t until_ns)
{
	int64_t deadline_ns = opcall_deadline_ns(oc);
	int32_t rc = opcall_stopped(oc);
	int fd = -1;

	if (!rc && text_boot_ns() < until_ns)
		fd = shim_host.cancel_fd(oc->call);
	while (!rc && text_boot_ns() < until_ns) {
		nap(fd, until_ns < deadline_ns ? until_ns : deadline_ns);
		rc = opcall_stopped(oc);
	}
	return rc;
}

/* Deaf to everything, as a provider's client library may be. 0 = for ever. */
static void stall(int64_t stall_ms)
{
	int64_t end_ns = text_boot_ns() + stall_ms * 1000000;

	while (!stall_ms || text_boot_ns() < end_ns)
		poll(NULL, 0, stall_ms ? POLL_MS < stall_ms ? POLL_MS : (int)stall_ms : POLL_MS);
}

/* The faults that come before the work, in the order of docs/mock.md. */
static int32_t act(struct opcall *oc)
{
	const struct effect *fx = &oc->fx;
	int32_t rc = BERTH_OK;

	if (effect_has(fx, FX_VANISH) && *oc->ref)
		session_remove(oc->m, oc->ref, opcall_deadline_ns(oc));
	if (effect_has(fx, FX_DELAY))
		rc = opcall_wait(oc, text_boot_ns() + fx->delay_ms * 1000000);
	if (!rc && effect_has(fx, FX_STALL))
		stall(fx->stall_ms);
	if (!rc && effect_has(fx, FX_HANG))
		rc = opcall_wait(oc, INT64_MAX);
	if (rc || !effect_has(fx, FX_CODE) || fx->code == BERTH_OK)
		return rc;
	return shim_host.fail(oc->call, fx->code, *fx->reason ? fx->reason : "injected",
			      effect_has(fx, FX_RETRYABLE) ? (uint32_t)fx->retryable : retryable_by_nature(fx->code),
			      fx->retry_after_ms, "a rule of the fault file");
}

static void report_fault_file(struct mock *m, struct berth_call *call)
{
	char error[FAULT_ERROR_MAX], text[FAULT_ERROR_MAX + 64];
	struct berth_pair path = {text_str("file"), text_str(m->fault_file)};
	struct berth_str line = {.ptr = text};

	if (!fault_news(&m->faults, error))
		return;
	line.len = (size_t)snprintf(text, sizeof(text), "the fault file is refused: %s", error);
	shim_host.log(m->target, call, BERTH_LOG_ERROR, &line, &path, 1);
}

static int32_t begin(struct opcall *oc, const char *workspace, const char *task)
{
	struct mock *m = oc->m;
	int32_t rc = BERTH_OK;

	tally_count(&m->tally, oc->op);
	if (fault_take(&m->faults, oc->op, workspace, task, &oc->fx)) {
		tally_count(&m->tally, TALLY_FAULTS);
		rc = act(oc);
	}
	report_fault_file(m, oc->call);
	if (!rc)
		rc = opcall_stopped(oc);
	oc->began = rc == BERTH_OK;
	shim_enter(oc);
	return rc;
}

int32_t opcall_begin(struct opcall *oc, struct mock *m, struct berth_call *call, enum op op, struct berth_str workspace,
		     struct berth_str task)
{
	*oc = (struct opcall){.m = m, .call = call, .op = op};
	/* What does not fit is no identity and matches no rule; the operation refuses it. */
	if (!text_copy(oc->s.workspace, sizeof(oc->s.workspace), workspace) ||
	    !text_copy(oc->s.task, sizeof(oc->s.task), task))
		oc->s.workspace[0] = oc->s.task[0] = '\0';
	return begin(oc, oc->s.workspace, oc->s.task);
}

void opcall_reload(struct opcall *oc)
{
	int rc = *oc->ref ? -EAGAIN : -ENOENT;

	if (*oc->ref)
		rc = oc->m->null ? null_load(oc->m, oc->ref, &oc->s) : store_load(&oc->m->store, oc->ref, &oc->s);
	oc->found = !rc ? BERTH_OK : rc == -ENOENT ? BERTH_NOT_FOUND : opcall_fail_errno(oc, rc, oc->ref);
}

int32_t opcall_begin_session(struct opcall *oc, struct mock *m, struct berth_call *call, enum op op,
			     const struct berth_session *session)
{
	int32_t rc;

	*oc = (struct opcall){.m = m, .call = call, .op = op};
	if (store_ref_valid(session->ref.ptr, session->ref.len))
		text_copy(oc->ref, sizeof(oc->ref), session->ref);
	opcall_reload(oc);
	rc = begin(oc, oc->s.workspace, oc->s.task);
	if (oc->fx.set)
		opcall_reload(oc); /* time passed, or the session went */
	return rc;
}

int32_t opcall_end(struct opcall *oc, int32_t rc)
{
	struct tally_line line = {.op = oc->op,
				  .ref = *oc->ref ? oc->ref : oc->s.ref,
				  .workspace = oc->s.workspace,
				  .task = oc->s.task,
				  .note = oc->note};

	shim_leave();
	if (oc->began && oc->flow.cut)
		rc = opcall_fail(oc, oc->op == OP_EXECUTE || oc->op == OP_REATTACH ? BERTH_UNKNOWN : BERTH_UNAVAILABLE,
				 "cut", "a rule of the fault file cut the stream");
	else if (oc->began && effect_has(&oc->fx, FX_LOST_REPLY))
		rc = opcall_fail(oc, BERTH_UNKNOWN, "lost_reply", "a rule of the fault file lost the reply");
	if (oc->began && (oc->fx.garbage & GARBAGE_CODE))
		rc = 99;
	line.code = rc;
	if (op_table[oc->op].changes)
		tally_log(&oc->m->tally, &line);
	return rc;
}

int32_t opcall_exists(struct opcall *oc)
{
	if (oc->found == BERTH_NOT_FOUND)
		return opcall_fail(oc, BERTH_SESSION_LOST, "deleted", "the session is not there");
	if (oc->found)
		return oc->found;
	if (session_expired(&oc->s))
		return opcall_fail(oc, BERTH_SESSION_LOST, "expired", "the provider's expiry of the session passed");
	if (session_rebooted(oc->m, &oc->s))
		return opcall_fail(oc, BERTH_SESSION_LOST, "rebooted", "the machine was started again since");
	return BERTH_OK;
}

int32_t opcall_alive(struct opcall *oc)
{
	int32_t rc = opcall_exists(oc);

	if (!rc && oc->s.deaf_ms > text_now_ms())
		return opcall_fail(oc, BERTH_UNAVAILABLE, "executor_not_listening", "connection refused");
	return rc;
}
