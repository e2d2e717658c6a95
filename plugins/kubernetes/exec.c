/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands through a session's executor: execute, reattach, signal, forget. The executor keeps output and ending in
 * files, so that nothing here depends on one connection: a cut stream is UNKNOWN and asked for again, a cancel is a
 * signal on a second connection and a reattach. Any thread. Never invents an ending.
 */
#include "exec.h"

#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "fate.h"
#include "peer.h"

/* ---- replies ---- */

/* A command that is run or followed, and what its stream has brought so far. */
struct stream {
	struct kube *k;
	struct berth_call *call;
	struct session *session;
	const char *id;
	uint32_t attempt;
	bool touched;	    /* it may have begun */
	bool unmet, met;    /* its stop found no command; but there is one */
	uint64_t offset[3]; /* by BERTH_STREAM_*: where the next byte belongs */
	bool ended;
	struct berth_ending ending;
	char reason[BERTH_REASON_MAX + 1];
};

static int32_t take_output(struct stream *s, uint32_t stream, const struct frame *frame, struct kerr *err)
{
	uint64_t offset = 0;
	size_t len;

	if (frame->len < 8)
		return kerr_set(err, BERTH_UNKNOWN, "bad_reply", "output without an offset");
	for (unsigned i = 0; i < 8; i++)
		offset = offset << 8 | frame->ptr[i];
	len = frame->len - 8;
	if (offset != s->offset[stream])
		return kerr_set(err, BERTH_UNKNOWN, "bad_reply", "output at an offset that was not expected");
	s->offset[stream] += len;
	return len ? kube_host->sink_write(s->call, stream, frame->ptr + 8, len) : BERTH_OK;
}

static struct json_object *parse(const struct frame *frame)
{
	struct json_tokener *tokener = json_tokener_new_ex(8);
	struct json_object *tree = tokener && frame->len
					   ? json_tokener_parse_ex(tokener, (const char *)frame->ptr, (int)frame->len)
					   : NULL;

	if (tokener)
		json_tokener_free(tokener);
	return tree;
}

static int32_t take_gap(struct stream *s, const struct frame *frame, struct kerr *err)
{
	struct json_object *tree = parse(frame);
	uint32_t stream = !strcmp(api_text(tree, "stream"), "stderr") ? BERTH_STREAM_STDERR : BERTH_STREAM_STDOUT;
	int64_t from = api_number(tree, "from"), to = api_number(tree, "to");

	json_object_put(tree);
	if (from < 0 || to <= from || (uint64_t)from != s->offset[stream])
		return kerr_set(err, BERTH_UNKNOWN, "bad_reply", "a gap that makes no sense");
	s->offset[stream] = (uint64_t)to;
	return kube_host->gap(s->call, stream, (uint64_t)from, (uint64_t)to);
}

static const struct word {
	const char *word;
	uint32_t value;
} kinds[] =
	{
		{"exit", BERTH_ENDING_EXIT},	   {"signal", BERTH_ENDING_SIGNAL},
		{"timeout", BERTH_ENDING_TIMEOUT}, {"cancelled", BERTH_ENDING_CANCELLED},
		{"oom", BERTH_ENDING_OOM},	   {"session_lost", BERTH_ENDING_SESSION_LOST},
		{"unknown", BERTH_ENDING_UNKNOWN}, {NULL, 0},
},
  quiescents[] = {
	  {"yes", BERTH_QUIESCENT_YES}, {"no", BERTH_QUIESCENT_NO}, {"unknown", BERTH_QUIESCENT_UNKNOWN}, {NULL, 0}};

static bool value_of(const struct word *words, const char *text, uint32_t *ret)
{
	for (; words->word; words++)
		if (!strcmp(words->word, text)) {
			*ret = words->value;
			return true;
		}
	return false;
}

static uint64_t count_of(struct json_object *tree, const char *key)
{
	int64_t value = api_number(tree, key);

	return value > 0 ? (uint64_t)value : 0;
}

static int32_t take_ending(struct stream *s, const struct frame *frame, struct kerr *err)
{
	struct json_object *tree = parse(frame);
	struct berth_ending *ending = &s->ending;
	const char *reason = api_text(tree, "reason");
	bool known;

	*ending = (struct berth_ending){.struct_size = sizeof(*ending)};
	known = !s->ended && value_of(kinds, api_text(tree, "kind"), &ending->kind) &&
		value_of(quiescents, api_text(tree, "quiescent"), &ending->quiescent);
	ending->exit_code = (int32_t)api_number(tree, "exit_code");
	ending->signal = (int32_t)api_number(tree, "signal");
	ending->survivors = (uint32_t)count_of(tree, "survivors");
	ending->duration_ms = (int64_t)count_of(tree, "duration_ms");
	ending->stdout_dropped = count_of(tree, "stdout_dropped");
	ending->stderr_dropped = count_of(tree, "stderr_dropped");
	for (size_t i = 0; i < BERTH_REASON_MAX && reason[i]; i++)
		s->reason[i] = reason[i];
	json_object_put(tree);
	s->ended = known;
	return known ? BERTH_OK : kerr_set(err, BERTH_UNKNOWN, "bad_reply", "the executor's ending is none");
}

/* ---- requests ---- */

static struct json_object *arguments_of(const char *execution_id, uint32_t attempt)
{
	struct json_object *arguments = json_object_new_object();

	json_object_object_add(arguments, "execution_id", json_object_new_string(execution_id));
	json_object_object_add(arguments, "attempt", json_object_new_int64(attempt));
	return arguments;
}

static int32_t signal_once(struct kube *k, struct berth_call *call, struct session *session, const char *id,
			   uint32_t attempt, const char *word, struct kerr *err)
{
	struct json_object *arguments = arguments_of(id, attempt);
	const struct peer_request request = {
		.path = "/v1/signal", .execution_id = id, .attempt = attempt, .arguments = arguments};
	bool touched;
	int32_t rc;

	json_object_object_add(arguments, "signal", json_object_new_string(word));
	rc = peer_send(k, call, session, &request, &touched, err);
	json_object_put(arguments);
	return rc;
}

/* The command may run, whatever was said to the signal or the reattach: a refusal of those is none of the command, but
 * as the answer of execute the host would take it for one. */
static int32_t not_stopped(int32_t rc, struct kerr *err)
{
	const struct kerr why = *err;

	if (rc == BERTH_OK || rc == BERTH_CANCELLED || rc == BERTH_TIMEOUT || rc == BERTH_SESSION_LOST)
		return rc;
	return kerr_set(err, BERTH_UNKNOWN, "stop", "the command may run on, its stop failed: %.500s", why.text);
}

static int32_t take_frame(void *arg, const struct frame *frame, struct kerr *err)
{
	struct stream *s = arg;

	/* No request may be made from here, so the stream ends; what it was about to bring is asked for again. */
	s->met = s->unmet && frame->type != 'X';
	if (s->met)
		return kerr_set(err, BERTH_CANCELLED, "cancelled", "the command is to be stopped now");
	switch (frame->type) {
	case 'O':
		return take_output(s, BERTH_STREAM_STDOUT, frame, err);
	case 'E':
		return take_output(s, BERTH_STREAM_STDERR, frame, err);
	case 'G':
		return take_gap(s, frame, err);
	case 'X':
		return take_ending(s, frame, err);
	default:
		/* H, what later versions add, and S: a launched command may still be refused (its cwd, say), and after
		 * a sign of life the host believes no refusal. No handle is needed to find it again. */
		return BERTH_OK;
	}
}

static struct json_object *number(uint64_t value)
{
	return json_object_new_int64(value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

static int32_t read_stdin(void *arg, void *buf, size_t cap, size_t *ret_len, struct kerr *err)
{
	struct stream *s = arg;

	(void)err; /* what the host refuses it explains itself */
	return kube_host->source_read(s->call, buf, cap, ret_len);
}

static int32_t emit(struct stream *s)
{
	s->ending.reason = str_of(s->reason);
	return kube_host->emit_ending(s->call, &s->ending);
}

/* The command ended with the session's memory: the kernel took the whole container. */
static int32_t emit_oom(struct stream *s)
{
	s->ending = (struct berth_ending){.struct_size = sizeof(s->ending), .kind = BERTH_ENDING_OOM};
	memcpy(s->reason, "container", sizeof("container"));
	return emit(s);
}

/* After a stream's request came back with rc. */
static int32_t conclude(struct stream *s, int32_t rc, struct kerr *err)
{
	if (rc == BERTH_OK && s->ended)
		return emit(s);
	if (rc == BERTH_OK)
		return kerr_set(err, BERTH_UNKNOWN, "bad_reply", "the executor's reply has no ending");
	/* The command goes on; whoever asks again will hear of it. */
	if (rc == BERTH_UNKNOWN && text_boot_ns() >= kube_deadline_ns(s->call))
		return kerr_set(err, BERTH_TIMEOUT, "deadline", "the call's deadline passed while the command ran");
	rc = fate_after(s->k, s->call, s->session, rc, err);
	/* What did not begin has no ending, whoever took the memory. */
	if (rc == BERTH_SESSION_LOST && s->touched && !strcmp(err->reason, "oom"))
		return emit_oom(s);
	return rc;
}

static int32_t follow(struct stream *s, struct kerr *err)
{
	struct json_object *arguments = arguments_of(s->id, s->attempt);
	const struct peer_request request = {.path = "/v1/reattach",
					     .execution_id = s->id,
					     .attempt = s->attempt,
					     .arguments = arguments,
					     .frame = take_frame,
					     .arg = s,
					     .waiting = true};
	bool touched;
	int32_t rc;

	json_object_object_add(arguments, "stdout_offset", number(s->offset[BERTH_STREAM_STDOUT]));
	json_object_object_add(arguments, "stderr_offset", number(s->offset[BERTH_STREAM_STDERR]));
	rc = peer_send(s->k, s->call, s->session, &request, &touched, err);
	json_object_put(arguments);
	return rc;
}

/* The call is to be stopped: the tree is ended through a second connection, and the command followed to its ending. A
 * stop between the start's last look for one and its mark finds nothing, and the command runs all the same: then it is
 * repeated at the first sign of it. */
static int32_t stop(struct stream *s, struct kerr *err)
{
	int32_t rc = signal_once(s->k, s->call, s->session, s->id, s->attempt, "TERM", err);

	s->unmet = rc == BERTH_NOT_FOUND;
	if (!rc || s->unmet)
		rc = follow(s, err);
	if (s->met) {
		s->unmet = s->met = false;
		rc = signal_once(s->k, s->call, s->session, s->id, s->attempt, "TERM", err);
		if (!rc || rc == BERTH_NOT_FOUND)
			rc = follow(s, err);
	}
	if (rc != BERTH_NOT_STARTED)
		return not_stopped(rc, err);
	/* It never began, and cannot any more. */
	s->ended = true;
	s->ending = (struct berth_ending){
		.struct_size = sizeof(s->ending), .kind = BERTH_ENDING_CANCELLED, .quiescent = BERTH_QUIESCENT_YES};
	return BERTH_OK;
}

static int32_t stop_if_told(struct stream *s, int32_t rc, struct kerr *err)
{
	if (rc != BERTH_CANCELLED || kube_host->cancel_state(s->call) != BERTH_CANCEL_STOP)
		return rc;
	return stop(s, err);
}

/* Cancelled before a byte of it went out: there is nothing to stop, nor to ask for. */
static int32_t unsent(struct berth_call *call, struct kerr *err)
{
	if (kube_host->cancel_state(call) != BERTH_CANCEL_STOP)
		return BERTH_CANCELLED;
	return kerr_set(err, BERTH_UNAVAILABLE, "not_sent", "cancelled before the command was sent");
}

static struct json_object *execute_arguments(const struct kube *k, const char *id, const struct berth_command *command)
{
	struct json_object *arguments = arguments_of(id, command->attempt);

	json_object_object_add(arguments, "cwd",
			       json_object_new_string_len(command->cwd.len ? command->cwd.ptr : ".",
							  command->cwd.len ? (int)command->cwd.len : 1));
	json_object_object_add(arguments, "timeout_ms", json_object_new_int64(command->timeout_ms));
	json_object_object_add(arguments, "stdout_max", number(command->stdout_max));
	json_object_object_add(arguments, "stderr_max", number(command->stderr_max));
	json_object_object_add(arguments, "kill_grace_ms", json_object_new_int64(k->kill_grace_ms));
	json_object_object_add(arguments, "keep_descendants", json_object_new_boolean((int)command->keep_descendants));
	json_object_object_add(arguments, "has_stdin", json_object_new_boolean((int)command->has_stdin));
	return arguments;
}

/* Adds what is to be forgotten beside. */
static unsigned put_forget(struct json_object *arguments, const struct owed_command *list)
{
	struct json_object *array = list ? json_object_new_array() : NULL;
	unsigned count = 0;

	for (; list; list = list->next, count++)
		json_object_array_add(array, arguments_of(list->id, list->attempt));
	if (array)
		json_object_object_add(arguments, "forget", array);
	return count;
}

/* Script and environment as frames. */
static int32_t put_command(struct buf *body, const struct berth_command *command, struct kerr *err)
{
	struct buf env = {.max = (size_t)2 * 1024 * 1024};

	for (size_t i = 0; i < command->env_count; i++) {
		buf_put(&env, command->env[i].name.ptr, command->env[i].name.len);
		buf_put(&env, "=", 1);
		buf_put(&env, command->env[i].value.ptr, command->env[i].value.len);
		buf_put(&env, "", 1);
	}
	peer_put(body, 'C', command->script.ptr, command->script.len);
	if (env.len)
		peer_put(body, 'V', env.ptr, env.len);
	body->bad = body->bad || env.bad;
	buf_wipe(&env);
	return body->bad ? kerr_set(err, BERTH_INVALID, "limit", "script and environment are too large") : BERTH_OK;
}

/* An executor has answered to the list. What it passed over (a lock was held, or its time was over) may go later. */
static void settle(struct kube *k, struct berth_call *call, struct session *session, struct owed_command *list,
		   bool all)
{
	if (all)
		owed_list_free(list);
	else if (!owed_passed(k->owed, session, list))
		kube_log(k, call, BERTH_LOG_INFO, "an executor did not forget commands", "pod", session->pod);
}

/* Sends an execute request together with what is owed. */
static int32_t send_with_owed(struct kube *k, struct berth_call *call, struct session *session,
			      const struct peer_request *asked, bool *ret_touched, struct kerr *err)
{
	/* What was read for one request cannot be sent again. */
	struct owed_command *list = asked->source ? NULL : owed_take(k->owed, session);
	int64_t count = put_forget(asked->arguments, list), forgotten = -1;
	struct peer_request request = *asked;
	int32_t rc;

	request.ret_forgotten = &forgotten;
	rc = peer_send(k, call, session, &request, ret_touched, err);
	if (rc == BERTH_INVALID && list && forgotten < 0 && !strcmp(err->reason, "arguments")) {
		/* An executor that does not know lists has come into its place: nothing was done. */
		json_object_object_del(request.arguments, "forget");
		*err = (struct kerr){0};
		rc = peer_send(k, call, session, &request, ret_touched, err);
	}
	if (forgotten < 0) {
		owed_again(k->owed, session, list);
		return rc;
	}
	owed_can(k->owed, session);
	settle(k, call, session, list, forgotten >= count);
	return rc;
}

int32_t exec_run(struct kube *k, struct berth_call *call, struct session *session, const char *id,
		 const struct berth_command *command, struct kerr *err)
{
	struct stream *s = calloc(1, sizeof(*s));
	struct json_object *arguments = execute_arguments(k, id, command);
	struct buf body = {.max = (size_t)4 * 1024 * 1024};
	struct peer_request request = {.path = "/v1/execute",
				       .execution_id = id,
				       .attempt = command->attempt,
				       .arguments = arguments,
				       .more = &body,
				       .frame = take_frame,
				       .arg = s,
				       .waiting = true};
	int32_t rc = s ? put_command(&body, command, err) : kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory");

	if (!rc)
		rc = fate_before(k, call, session, err);
	if (rc)
		goto out;
	*s = (struct stream){.k = k, .call = call, .session = session, .id = id, .attempt = command->attempt};
	if (command->has_stdin)
		request.source = read_stdin;
	rc = send_with_owed(k, call, session, &request, &s->touched, err);
	if (rc == BERTH_CANCELLED && !s->touched)
		rc = unsent(call, err);
	rc = stop_if_told(s, rc, err);
	rc = conclude(s, rc, err);
out:
	json_object_put(arguments);
	buf_wipe(&body);
	free(s);
	return rc;
}

/* The host has forgotten it already. */
static int32_t pay(struct kube *k, struct berth_call *call, struct session *session, const char *id, struct kerr *err)
{
	struct owed_command *list = owed_has(k->owed, session, id) ? owed_take(k->owed, session) : NULL;
	int32_t rc = list ? exec_forget_all(k, call, session, list, err) : BERTH_OK;

	if (rc)
		owed_again(k->owed, session, list);
	return rc;
}

/* A look that broke on its way, or a stop that did, says nothing of the command. UNKNOWN would: that its executor does
 * not know, which the host believes after a few times. */
static int32_t not_seen(int32_t rc, struct kerr *err)
{
	static const char *const ways[] = {"stop", "cut", "unreachable", "wrong_peer"};
	const struct kerr why = *err;
	bool on_its_way = err->told;

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		on_its_way = on_its_way || !strcmp(err->reason, ways[i]);
	if (rc != BERTH_UNKNOWN || !on_its_way)
		return rc;
	return kerr_set(err, BERTH_UNAVAILABLE, why.told ? "cut" : why.reason, "%s",
			why.told ? "the way to the executor broke" : why.text);
}

int32_t exec_follow(struct kube *k, struct berth_call *call, struct session *session, const char *id,
		    const struct berth_resume *resume, struct kerr *err)
{
	struct stream *s = calloc(1, sizeof(*s));
	int32_t rc;

	if (!s)
		return kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory");
	*s = (struct stream){
		.k = k, .call = call, .session = session, .id = id, .attempt = resume->attempt, .touched = true};
	s->offset[BERTH_STREAM_STDOUT] = resume->stdout_offset;
	s->offset[BERTH_STREAM_STDERR] = resume->stderr_offset;
	rc = pay(k, call, session, id, err);
	if (!rc)
		rc = follow(s, err);
	rc = stop_if_told(s, rc, err);
	rc = not_seen(conclude(s, rc, err), err);
	free(s);
	return rc;
}

int32_t exec_signal(struct kube *k, struct berth_call *call, struct session *session, const char *id, uint32_t attempt,
		    const char *word, struct kerr *err)
{
	return fate_after(k, call, session, signal_once(k, call, session, id, attempt, word, err), err);
}

/* *ret_passed: how many of the others are left; -1: it said nothing of them. */
static int32_t forget(struct kube *k, struct berth_call *call, struct session *session, const char *id, uint32_t attempt,
		      const struct owed_command *others, int64_t *ret_passed, struct kerr *err)
{
	struct json_object *arguments = arguments_of(id, attempt);
	int64_t count = put_forget(arguments, others), forgotten = -1;
	const struct peer_request request = {.path = "/v1/forget",
					     .execution_id = id,
					     .attempt = attempt,
					     .arguments = arguments,
					     .ret_forgotten = &forgotten};
	bool touched;
	int32_t rc = peer_send(k, call, session, &request, &touched, err);

	*ret_passed = forgotten < 0 ? -1 : count - forgotten;
	json_object_put(arguments);
	return rc;
}

int32_t exec_forget(struct kube *k, struct berth_call *call, struct session *session, const char *id, uint32_t attempt,
		    struct kerr *err)
{
	int64_t passed;

	if (owed_add(k->owed, session, id, attempt))
		return BERTH_OK;
	return fate_after(k, call, session, forget(k, call, session, id, attempt, NULL, &passed, err), err);
}

int32_t exec_forget_all(struct kube *k, struct berth_call *call, struct session *session, struct owed_command *list,
			struct kerr *err)
{
	int64_t passed;
	int32_t rc = forget(k, call, session, list->id, list->attempt, list->next, &passed, err);

	if (rc && passed < 0)
		return rc;
	/* Of the first alone it gives a reason. */
	*err = (struct kerr){0};
	settle(k, call, session, list, !rc && passed <= 0);
	return BERTH_OK;
}
