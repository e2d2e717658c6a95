/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the stored and the shown form of executions: field tables and what no table can say. Pure functions, any thread,
 * no store. Never lets a command's body or its output into the record's row.
 */
#include "execution/record.h"

#include <stdio.h>
#include <string.h>


static const struct {
	const char *word;
	bool terminal;
} statuses[RECORD_STATUS_COUNT] = {
#define X(name, text, end) [RECORD_##name] = {.word = text, .terminal = end},
	RECORD_STATUSES(X)
#undef X
};

#define FIELD(owner, member, key, kind, bits)                                                                          \
	{                                                                                                              \
		.name = (key), .type = (kind), .flags = (bits), .off = offsetof(struct owner, member)                  \
	}
#define NESTED(owner, member, key, bits, table)                                                                        \
	{                                                                                                              \
		.name = (key), .type = JSON_OBJ, .flags = (bits), .off = offsetof(struct owner, member),               \
		.sub = (table), .sub_size = sizeof(((struct owner *)0)->member)                                        \
	}
#define LIST(owner, member, count, key, kind, bits, table)                                                             \
	{                                                                                                              \
		.name = (key), .type = (kind), .flags = (bits), .off = offsetof(struct owner, member),                 \
		.count_off = offsetof(struct owner, count), .sub = (table),                                            \
		.sub_size = sizeof(*((struct owner *)0)->member)                                                       \
	}
#define END                                                                                                            \
	{                                                                                                              \
		0                                                                                                      \
	}

static const struct json_field runtime_fields[] = {
	FIELD(record_runtime, region, "region", JSON_STR, JSON_OMIT),
	END,
};

static const struct json_field command_fields[] = {
	FIELD(record_command, command_body, "command_body", JSON_STR, 0),
	FIELD(record_command, cwd, "cwd", JSON_STR, JSON_OMIT),
	FIELD(record_command, env_ref, "env_ref", JSON_STR, JSON_OMIT),
	FIELD(record_command, stdin_ref, "stdin_ref", JSON_STR, JSON_OMIT),
	FIELD(record_command, command_path, "command_path", JSON_STR, JSON_OMIT),
	LIST(record_command, artifact_paths, artifact_count, "artifact_paths", JSON_STRV, JSON_OMIT, NULL),
	FIELD(record_command, timeout_seconds, "timeout_seconds", JSON_I64, 0),
	FIELD(record_command, stdout_max_bytes, "stdout_max_bytes", JSON_I64, 0),
	FIELD(record_command, stderr_max_bytes, "stderr_max_bytes", JSON_I64, 0),
	FIELD(record_command, keep_descendants, "keep_descendants", JSON_BOOL, JSON_OMIT),
	END,
};

static const struct json_field artifact_fields[] = {
	FIELD(record_artifact, path, "path", JSON_STR, 0),
	FIELD(record_artifact, name, "name", JSON_STR, JSON_OMIT),
	FIELD(record_artifact, content_type, "content_type", JSON_STR, JSON_OMIT),
	FIELD(record_artifact, size, "size", JSON_I64, JSON_OMIT),
	FIELD(record_artifact, sha256, "sha256", JSON_STR, JSON_OMIT),
	FIELD(record_artifact, error, "error", JSON_STR, JSON_OMIT),
	END,
};

#define RESULT_FIELDS                                                                                                  \
	FIELD(record_result, inline_stdout, "stdout", JSON_STR, 0),                                                    \
		FIELD(record_result, inline_stderr, "stderr", JSON_STR, 0),                                            \
		FIELD(record_result, stdout_ref, "stdout_ref", JSON_STR, 0),                                           \
		FIELD(record_result, stderr_ref, "stderr_ref", JSON_STR, 0),                                           \
		FIELD(record_result, stdout_bytes, "stdout_bytes", JSON_I64, 0),                                       \
		FIELD(record_result, stderr_bytes, "stderr_bytes", JSON_I64, 0),                                       \
		FIELD(record_result, stdout_sha256, "stdout_sha256", JSON_STR, 0),                                     \
		FIELD(record_result, stderr_sha256, "stderr_sha256", JSON_STR, 0),                                     \
		FIELD(record_result, stdout_truncated, "stdout_truncated", JSON_BOOL, 0),                              \
		FIELD(record_result, stderr_truncated, "stderr_truncated", JSON_BOOL, 0),                              \
		FIELD(record_result, stdout_dropped, "stdout_dropped", JSON_I64, JSON_OMIT),                           \
		FIELD(record_result, stderr_dropped, "stderr_dropped", JSON_I64, JSON_OMIT),                           \
		FIELD(record_result, truncated_reason, "truncated_reason", JSON_STR, JSON_OMIT),                       \
		FIELD(record_result, execution_time_ms, "execution_time_ms", JSON_I64, 0),                             \
		LIST(record_result, artifacts, artifact_count, "artifacts", JSON_ARR, JSON_OMIT, artifact_fields)

/* An absent exit code must not read as 0, hence the tables without one. */
static const struct json_field result_plain[] = {RESULT_FIELDS, END};
static const struct json_field result_exit[] = {
	RESULT_FIELDS,
	FIELD(record_result, exit_code, "exit_code", JSON_I64, 0),
	END,
};

static const struct json_field ending_plain[] = {
	FIELD(record_ending, kind, "kind", JSON_STR, JSON_OMIT),
	FIELD(record_ending, signal, "signal", JSON_I64, JSON_OMIT),
	END,
};
static const struct json_field ending_exit[] = {
	FIELD(record_ending, kind, "kind", JSON_STR, JSON_OMIT),
	FIELD(record_ending, exit_code, "exit_code", JSON_I64, 0),
	FIELD(record_ending, signal, "signal", JSON_I64, JSON_OMIT),
	END,
};

static const struct json_field lost_fields[] = {
	FIELD(record_lost, stream, "stream", JSON_STR, 0),
	FIELD(record_lost, from, "from", JSON_I64, 0),
	FIELD(record_lost, to, "to", JSON_I64, JSON_OMIT),
	END,
};

#define RECORD_FIELDS(result_table, ending_table)                                                                      \
	{                                                                                                              \
		FIELD(record, id, "id", JSON_STR, JSON_REQUIRED),                                                      \
			FIELD(record, revision, "revision", JSON_I64, JSON_REQUIRED),                                  \
			FIELD(record, session_id, "session_id", JSON_STR, 0),                                          \
			FIELD(record, workflow_id, "workflow_id", JSON_STR, 0),                                        \
			FIELD(record, task_id, "task_id", JSON_STR, JSON_REQUIRED),                                    \
			FIELD(record, workspace_id, "workspace_id", JSON_STR, JSON_REQUIRED),                          \
			NESTED(record, runtime, "runtime", JSON_OMIT, runtime_fields),                                 \
			FIELD(record, status_word, "status", JSON_STR, JSON_REQUIRED),                                 \
			NESTED(record, command, "command", 0, command_fields),                                         \
			LIST(record, output_refs, output_ref_count, "output_refs", JSON_STRV, JSON_OMIT, NULL),        \
			NESTED(record, result, "result", JSON_OMIT, result_table),                                     \
			NESTED(record, ending, "ending", JSON_OMIT, ending_table),                                     \
			FIELD(record, survivors, "survivors", JSON_I64, JSON_OMIT),                                    \
			LIST(record, output_lost, lost_count, "output_lost", JSON_ARR, JSON_OMIT, lost_fields),        \
			FIELD(record, reason, "reason", JSON_STR, JSON_OMIT),                                          \
			FIELD(record, error, "error", JSON_STR, JSON_OMIT),                                            \
			FIELD(record, retry_after_ms, "retry_after_ms", JSON_I64, JSON_OMIT),                          \
			FIELD(record, attempt, "attempt", JSON_I64, JSON_OMIT),                                        \
			FIELD(record, incarnation, "incarnation", JSON_I64, JSON_OMIT),                                \
			FIELD(record, target, "target", JSON_STR, JSON_OMIT),                                          \
			FIELD(record, created_ms, "created_at", JSON_TIME, JSON_REQUIRED),                             \
			FIELD(record, updated_ms, "updated_at", JSON_TIME, 0),                                         \
			FIELD(record, queue_expires_ms, "queue_expires_at", JSON_TIME, 0),                             \
			FIELD(record, started_ms, "started_at", JSON_TIME, 0),                                         \
			FIELD(record, execution_expires_ms, "execution_expires_at", JSON_TIME, 0),                     \
			FIELD(record, completed_ms, "completed_at", JSON_TIME, 0),                                     \
			FIELD(record, cancel_requested_ms, "cancel_requested_at", JSON_TIME, 0),                       \
			FIELD(record, idempotency_key, "idempotency_key", JSON_STR, JSON_OMIT | JSON_HIDDEN),          \
			FIELD(record, traceparent, "traceparent", JSON_STR, JSON_OMIT | JSON_HIDDEN), END,             \
	}

static const struct json_field record_plain[] = RECORD_FIELDS(result_plain, ending_plain);
static const struct json_field record_code[] = RECORD_FIELDS(result_exit, ending_plain);
static const struct json_field record_exit[] = RECORD_FIELDS(result_exit, ending_exit);

static const struct json_field status_fields[] = {
	FIELD(record, status_word, "status", JSON_STR, JSON_REQUIRED),
	END,
};

static const struct json_field claim_fields[] = {
	FIELD(claim, runner, "runner", JSON_STR, 0),
	FIELD(claim, attempt, "attempt", JSON_I64, 0),
	FIELD(claim, claim_until_ms, "claim_until", JSON_TIME, 0),
	FIELD(claim, sent_attempt, "sent_attempt", JSON_I64, JSON_OMIT),
	FIELD(claim, deliveries, "deliveries", JSON_I64, JSON_OMIT),
	FIELD(claim, handle, "handle", JSON_STR, JSON_OMIT),
	FIELD(claim, target, "target", JSON_STR, JSON_OMIT),
	FIELD(claim, incarnation, "incarnation", JSON_I64, JSON_OMIT),
	FIELD(claim, fence, "fence", JSON_I64, JSON_OMIT),
	FIELD(claim, cancel_requested_ms, "cancel_requested_at", JSON_TIME, 0),
	FIELD(claim, cancel_reason, "cancel_reason", JSON_STR, JSON_OMIT),
	FIELD(claim, live_attempt, "live_attempt", JSON_I64, JSON_OMIT),
	FIELD(claim, live_stdout, "live_stdout", JSON_I64, JSON_OMIT),
	FIELD(claim, live_stderr, "live_stderr", JSON_I64, JSON_OMIT),
	END,
};

const char *record_status_word(enum record_status status)
{
	return status > RECORD_NONE && status < RECORD_STATUS_COUNT ? statuses[status].word : "none";
}

enum record_status record_status_parse(const char *word)
{
	for (unsigned i = RECORD_NONE + 1; word && i < RECORD_STATUS_COUNT; i++) {
		if (strcmp(word, statuses[i].word) == 0)
			return i;
	}
	return RECORD_NONE;
}

bool record_status_terminal(enum record_status status)
{
	return statuses[status].terminal;
}

static bool kind_is(const struct record *r, const char *kind)
{
	return r->ending.kind && strcmp(r->ending.kind, kind) == 0;
}

static const struct json_field *table_of(const struct record *r)
{
	if (kind_is(r, "exit"))
		return record_exit;
	return kind_is(r, "signal") || kind_is(r, "timeout") ? record_code : record_plain;
}

static int check_result(const struct record *r, struct err *err)
{
	if (r->result.inline_stdout || r->result.inline_stderr)
		return err_set(err, ERR_INVALID_REQUEST, "result.%s: output is stored by reference, never inline",
			       r->result.inline_stdout ? "stdout" : "stderr");
	return 0;
}

static int encode(const struct record *r, struct buf *buf, unsigned flags, struct err *err)
{
	struct record shown = *r;
	int rc = check_result(r, err);

	if (rc)
		return rc;
	shown.status_word = record_status_word(r->status);
	rc = json_encode(buf, table_of(r), &shown, flags);
	return rc ? err_set(err, rc, "the record of %s does not fit", r->id) : 0;
}

int record_encode(const struct record *r, struct buf *buf, struct err *err)
{
	struct record stored = *r;

	stored.command.command_body = NULL;
	stored.cancel_requested_ms = 0;
	return encode(&stored, buf, 0, err);
}

int record_encode_public(const struct record *r, struct buf *buf, struct err *err)
{
	return encode(r, buf, JSON_PUBLIC, err);
}

static int check_decoded(const char *id, const struct record *r, struct err *err)
{
	const char *what = NULL;

	if (strcmp(r->id, id) != 0)
		what = "it carries another id";
	else if (r->status == RECORD_NONE)
		what = "its status is unknown";
	else if (r->revision < 1)
		what = "its revision is below 1";
	else if (!ident_part_valid(r->workspace_id, strlen(r->workspace_id)) ||
		 !ident_part_valid(r->task_id, strlen(r->task_id)))
		what = "its task identity is not valid";
	else if (r->command.command_body || r->result.inline_stdout || r->result.inline_stderr)
		what = "it carries a body or output inline";
	return what ? err_set(err, ERR_CORRUPT, "execution %s: %s", id, what) : 0;
}

int record_decode(struct arena *arena, const char *id, const char *doc, size_t len, struct record *ret, struct err *err)
{
	int r;

	memset(ret, 0, sizeof(*ret));
	r = json_decode_text(arena, record_exit, doc, len, ret, sizeof(*ret), err);
	if (r) {
		err_prefix(err, "execution %s", id);
		return r;
	}
	ret->status = record_status_parse(ret->status_word);
	return check_decoded(id, ret, err);
}

int record_decode_status(struct arena *arena, const char *id, const char *doc, size_t len, enum record_status *ret,
			 struct err *err)
{
	struct record r = {0};
	int rc = json_decode_text(arena, status_fields, doc, len, &r, sizeof(r), err);

	*ret = rc ? RECORD_NONE : record_status_parse(r.status_word);
	if (rc)
		err_prefix(err, "execution %s", id);
	else if (*ret == RECORD_NONE)
		rc = err_set(err, ERR_CORRUPT, "execution %s: its status is unknown", id);
	return rc;
}

const char *claim_cancel(const struct claim *c)
{
	if (!c->cancel_requested_ms)
		return "";
	return c->cancel_reason ? c->cancel_reason : "cancelled";
}

int claim_encode(const struct claim *c, struct buf *buf)
{
	return json_encode(buf, claim_fields, c, 0);
}

int claim_decode(struct arena *arena, const char *id, const char *doc, size_t len, struct claim *ret, struct err *err)
{
	int r;

	memset(ret, 0, sizeof(*ret));
	if (!doc)
		return 0;
	r = json_decode_text(arena, claim_fields, doc, len, ret, sizeof(*ret), err);
	if (r)
		err_prefix(err, "claim of execution %s", id);
	return r;
}

void record_first_id(int64_t ms, char ret_id[IDENT_ID_MAX + 1])
{
	if (ms < 0)
		ms = 0;
	snprintf(ret_id, IDENT_ID_MAX + 1, RECORD_ID_PREFIX "%011llx", (unsigned long long)ms & 0xfffffffffffULL);
}

void record_new_id(int64_t now_ms, char ret_id[IDENT_ID_MAX + 1])
{
	char prefix[IDENT_ID_MAX + 1];

	record_first_id(now_ms, prefix);
	ident_random(ret_id, prefix, 13);
}

bool record_id_valid(const char *id)
{
	return ident_is_random(id, RECORD_ID_PREFIX, 24);
}

void record_output_key(const char *id, int64_t attempt, unsigned stream, char ret_key[RECORD_OUTPUT_KEY_MAX])
{
	const char *name = stream == 1 ? "stdout" : "stderr";

	if (attempt > 1)
		snprintf(ret_key, RECORD_OUTPUT_KEY_MAX, "executions/%s/%lld/%s", id, (long long)attempt, name);
	else
		snprintf(ret_key, RECORD_OUTPUT_KEY_MAX, "executions/%s/%s", id, name);
}

/* A damaged row must not lead to what another task wrote. */
const char *record_output_ref(const struct record *r, unsigned stream)
{
	const char *ref = stream == 1 ? r->result.stdout_ref : r->result.stderr_ref;
	char own[RECORD_OUTPUT_KEY_MAX];
	int len = snprintf(own, sizeof(own), "executions/%s/", r->id);

	return ref && strncmp(ref, own, (size_t)len) == 0 && strlen(ref) < RECORD_OUTPUT_KEY_MAX ? ref : NULL;
}
