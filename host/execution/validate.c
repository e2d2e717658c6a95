/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the rules of a create request. Pure functions, any thread. Never repairs what it is given: a value is taken as
 * it stands or the request is refused by the field's name.
 */
#include "execution/validate.h"

#include <string.h>

#include "core/limits.h"

static int check_label(const char *field, const char *text, struct err *err)
{
	size_t len = text ? strlen(text) : 0;

	if (!text)
		return 0;
	if (len == 0 || len > LIMIT_LABEL)
		return err_set(err, ERR_INVALID_REQUEST, "%s: must have 1 to %d bytes", field, LIMIT_LABEL);
	if (!ident_utf8_valid(text, len))
		return err_set(err, ERR_INVALID_REQUEST, "%s: is not valid UTF-8", field);
	for (size_t i = 0; i < len; i++) {
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			return err_set(err, ERR_INVALID_REQUEST, "%s: holds a control byte", field);
	}
	return 0;
}

static int check_path(const char *field, const char *path, bool dot_ok, struct err *err)
{
	return path ? ident_path_check(field, path, strlen(path), dot_ok, err) : 0;
}

static int check_body(const struct execution_create *in, struct err *err)
{
	if (!in->command_body || in->command_len == 0)
		return err_set(err, ERR_INVALID_REQUEST, "command.command_body: must not be empty");
	if (in->command_len > LIMIT_COMMAND_BODY)
		return err_set(err, ERR_PAYLOAD_TOO_LARGE,
			       "command.command_body: has %zu bytes; the limit is %zu (%zu KiB)", in->command_len,
			       LIMIT_COMMAND_BODY, LIMIT_COMMAND_BODY / LIMIT_KIB);
	if (memchr(in->command_body, '\0', in->command_len))
		return err_set(err, ERR_INVALID_REQUEST, "command.command_body: holds a NUL character");
	if (!ident_utf8_valid(in->command_body, in->command_len))
		return err_set(err, ERR_INVALID_REQUEST, "command.command_body: is not valid UTF-8");
	return 0;
}

static bool listed_before(const struct execution_create *in, size_t index)
{
	for (size_t i = 0; i < index; i++) {
		if (strcmp(in->artifact_paths[i], in->artifact_paths[index]) == 0)
			return true;
	}
	return false;
}

static int check_artifacts(const struct execution_create *in, struct err *err)
{
	size_t bytes = 0;
	int r = 0;

	if (in->artifact_count > LIMIT_ARTIFACT_PATHS)
		return err_set(err, ERR_INVALID_REQUEST, "command.artifact_paths: more than %d paths",
			       LIMIT_ARTIFACT_PATHS);
	for (size_t i = 0; r == 0 && i < in->artifact_count; i++) {
		r = check_path("command.artifact_paths", in->artifact_paths[i], false, err);
		bytes += strlen(in->artifact_paths[i]);
		if (r == 0 && listed_before(in, i))
			r = err_set(err, ERR_INVALID_REQUEST, "command.artifact_paths: names a path twice");
	}
	if (r == 0 && bytes > VALIDATE_ARTIFACT_BYTES)
		r = err_set(err, ERR_INVALID_REQUEST, "command.artifact_paths: more than %zu bytes together",
			    VALIDATE_ARTIFACT_BYTES);
	return r;
}

static int check_numbers(const struct conf *conf, const struct execution_create *in, struct err *err)
{
	int64_t most = (conf->exec_timeout_max_ms + 999) / 1000;

	if (in->timeout_seconds < 0 || in->timeout_seconds > most)
		return err_set(err, ERR_INVALID_REQUEST, "command.timeout_seconds: must be between 1 and %lld",
			       (long long)most);
	if (in->stdout_max < -1)
		return err_set(err, ERR_INVALID_REQUEST, "command.stdout_max_bytes: must not be negative");
	if (in->stderr_max < -1)
		return err_set(err, ERR_INVALID_REQUEST, "command.stderr_max_bytes: must not be negative");
	return 0;
}

int validate_create(const struct conf *conf, const struct execution_create *in, struct err *err)
{
	struct ident checked;
	int r = ident_make(&checked, in->ident.workspace, in->ident.task, err);

	if (r == 0)
		r = check_label("session_id", in->session_id, err);
	if (r == 0)
		r = check_label("workflow_id", in->workflow_id, err);
	if (r == 0)
		r = check_label("Idempotency-Key", in->idempotency_key, err);
	if (r == 0)
		r = check_body(in, err);
	if (r == 0)
		r = check_path("command.cwd", in->cwd, true, err);
	if (r == 0)
		r = check_path("command.env_ref", in->env_ref, false, err);
	if (r == 0)
		r = check_path("command.stdin_ref", in->stdin_ref, false, err);
	if (r == 0)
		r = check_path("command.command_path", in->command_path, false, err);
	if (r == 0)
		r = check_artifacts(in, err);
	if (r == 0)
		r = check_numbers(conf, in, err);
	return r;
}

static int64_t smaller_limit(int64_t asked, int64_t operators)
{
	return asked < 0 || asked > operators ? operators : asked;
}

void validate_record(const struct conf *conf, const struct execution_create *in, const char *id, struct record *ret)
{
	*ret = (struct record){
		.id = id,
		.session_id = in->session_id,
		.workflow_id = in->workflow_id,
		.workspace_id = in->ident.workspace,
		.task_id = in->ident.task,
		.runtime.region = in->region,
		.command =
			{
				.cwd = in->cwd,
				.env_ref = in->env_ref,
				.stdin_ref = in->stdin_ref,
				.command_path = in->command_path,
				.artifact_paths = in->artifact_paths,
				.artifact_count = in->artifact_count,
				.timeout_seconds = in->timeout_seconds ? in->timeout_seconds
								       : (conf->exec_timeout_ms + 999) / 1000,
				.stdout_max_bytes = smaller_limit(in->stdout_max, conf->output_max_bytes),
				.stderr_max_bytes = smaller_limit(in->stderr_max, conf->output_max_bytes),
				.keep_descendants = in->keep_descendants,
			},
		.idempotency_key = in->idempotency_key,
		.traceparent = in->traceparent,
	};
}
