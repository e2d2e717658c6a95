/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations on commands: execute, reattach, forget, send_signal. The work is the SDK's supervised execution on the
 * session's run directory; here only sessions are found and outcomes judged. Entered by any thread. Commands run as the
 * daemon's own user with its view of the machine: this provider isolates nothing.
 */
#include "session.h"

#include "null.h"
#include "opcall.h"
#include "shim.h"
#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static void note_execution(struct opcall *oc, const struct berth_str *id, uint32_t attempt)
{
	char text[129];

	if (!oc->m->null && text_copy(text, sizeof(text), *id))
		snprintf(oc->note, sizeof(oc->note), attempt ? "%s#%u" : "%s", text, attempt);
}

/* A call that read the session before its release may make the group after it, and then nobody else would remove it.
 * While the release still kills, the group is not empty, and stays for it. */
static void leave_if_gone(struct opcall *oc)
{
	struct session s;

	if (*oc->m->limits.parent && store_load(&oc->m->store, oc->ref, &s) == -ENOENT)
		(void)limit_leave(&oc->m->limits, oc->ref);
}

static int32_t begin(struct opcall *oc, struct mock *m, struct berth_call *call, enum op op,
		     const struct berth_session *session, struct runner **ret_runner)
{
	int32_t rc = opcall_begin_session(oc, m, call, op, session);
	int err;

	if (!rc && m->null)
		return opcall_fail(oc, BERTH_UNSUPPORTED, "runtime_null", "nothing runs here");
	if (!rc)
		rc = opcall_alive(oc);
	if (rc)
		return rc;
	err = runner_new(m, &oc->s, ret_runner);
	if (err)
		leave_if_gone(oc);
	return err ? opcall_fail_errno(oc, err, "session") : BERTH_OK;
}

/* What the library could not do, it could not do because the session went meanwhile. */
static int32_t judge(struct opcall *oc, int32_t rc)
{
	leave_if_gone(oc);
	if (rc == BERTH_OK || rc == BERTH_CANCELLED || rc == BERTH_TIMEOUT || !oc->began || oc->flow.cut)
		return rc;
	opcall_reload(oc);
	return oc->found == BERTH_NOT_FOUND ? opcall_exists(oc) : rc;
}

static void count_started(struct opcall *oc, const struct runner *runner, const struct berth_command *command,
			  int32_t rc)
{
	char path[SESSION_PATH_MAX + 160], id[129];

	/* Refused for what it is or was before: another call's start. */
	if (rc == BERTH_CONFLICT || rc == BERTH_INVALID || !text_copy(id, sizeof(id), command->execution_id))
		return;
	snprintf(path, sizeof(path), "%s/%s/started", runner->run_dir, id);
	if (rc == BERTH_OK || !access(path, F_OK))
		tally_count(&oc->m->tally, TALLY_STARTED);
}

static int32_t execute(struct opcall *oc, struct mock *m, struct berth_call *call, const struct berth_session *session,
		       const struct berth_command *command)
{
	struct runner *runner = NULL;
	int32_t rc = begin(oc, m, call, OP_EXECUTE, session, &runner);

	note_execution(oc, &command->execution_id, command->attempt);
	if (!rc) {
		rc = berth_sup_execute(&shim_host, call, &runner->sup, command);
		count_started(oc, runner, command, rc);
		rc = judge(oc, rc);
	}
	runner_free(runner);
	return rc;
}

static int32_t execute_null(struct opcall *oc, struct mock *m, struct berth_call *call,
			    const struct berth_session *session, const struct berth_command *command)
{
	int32_t rc = opcall_begin_session(oc, m, call, OP_EXECUTE, session);

	if (!rc)
		rc = opcall_alive(oc);
	return rc ? rc : null_execute(oc, command);
}

int32_t mock_execute(void *inst, struct berth_call *call, const struct berth_session *session,
		     const struct berth_command *command)
{
	struct mock *m = inst;
	struct opcall oc;
	int32_t rc = m->null ? execute_null(&oc, m, call, session, command) : execute(&oc, m, call, session, command);

	return opcall_end(&oc, rc);
}

int32_t mock_reattach(void *inst, struct berth_call *call, const struct berth_session *session,
		      const struct berth_resume *resume)
{
	struct runner *runner = NULL;
	struct opcall oc;
	int32_t rc = begin(&oc, inst, call, OP_REATTACH, session, &runner);

	note_execution(&oc, &resume->execution_id, resume->attempt);
	oc.flow.stdout_at = resume->stdout_offset;
	if (!rc)
		rc = berth_sup_reattach(&shim_host, call, &runner->sup, resume);
	if (rc != BERTH_NOT_STARTED)
		rc = judge(&oc, rc);
	else
		leave_if_gone(&oc);
	runner_free(runner);
	return opcall_end(&oc, rc);
}

int32_t mock_forget(void *inst, struct berth_call *call, const struct berth_session *session,
		    const struct berth_execution *execution)
{
	struct runner *runner = NULL;
	struct opcall oc;
	int32_t rc = begin(&oc, inst, call, OP_FORGET, session, &runner);

	note_execution(&oc, &execution->id, execution->attempt);
	if (!rc)
		rc = judge(&oc, berth_sup_forget(&shim_host, call, &runner->sup, &execution->id));
	runner_free(runner);
	return opcall_end(&oc, rc);
}

int32_t mock_send_signal(void *inst, struct berth_call *call, const struct berth_session *session,
			 const struct berth_execution *execution, uint32_t signal)
{
	struct runner *runner = NULL;
	struct opcall oc;
	int32_t rc = begin(&oc, inst, call, OP_SEND_SIGNAL, session, &runner);

	note_execution(&oc, &execution->id, execution->attempt);
	if (!rc)
		rc = judge(&oc, berth_sup_signal(&shim_host, call, &runner->sup, &execution->id, signal));
	runner_free(runner);
	return opcall_end(&oc, rc);
}
