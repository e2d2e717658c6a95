/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results from a plugin: every length, number and text is checked before it is touched, then copied into the call. Runs
 * on the call's own thread, inside the plugin's operation. What does not fit the contract makes the whole call fail.
 */
#include "plugin/private.h"

#include "core/ident.h"
#include "core/limits.h"

#define STRUCT_SIZE_MAX 65536u

struct call *call_of(struct berth_call *abi)
{
	struct call *call = (struct call *)(void *)abi;

	return call && call->magic == CALL_MAGIC ? call : NULL;
}

struct call *call_enter(struct berth_call *abi, unsigned say)
{
	struct call *call = call_of(abi);
	unsigned bit = (unsigned)__builtin_ctz(say);

	if (!call)
		return NULL;
	if (!call->op || !pthread_equal(call->thread, pthread_self())) {
		call_violate(call, "used a call outside its operation or thread");
		return NULL;
	}
	if (!(call->op->says & say)) {
		call_violate(call, "used a service that this operation does not have (%u)", bit);
		return NULL;
	}
	if (atomic_load(&call->violated) || call->sink_code || call_is_gone(call))
		return NULL;
	call->counts[bit]++;
	if ((call->op->once & say) && call->counts[bit] > 1) {
		call_violate(call, "emitted twice what may be emitted once (%u)", bit);
		return NULL;
	}
	return call;
}

/* For a service that could not be entered: the code the plugin should give up with. */
static int32_t refused(struct berth_call *abi)
{
	struct call *call = call_of(abi);

	if (call && call_is_gone(call))
		return BERTH_CANCELLED;
	return call && call->sink_code ? call_code_of(call->sink_code) : BERTH_INTERNAL;
}

/* Copies the smaller size; what the plugin does not know stays zero. */
static bool take_struct(struct call *call, void *ret, size_t size, const void *from, const char *what)
{
	uint32_t theirs;

	memset(ret, 0, size);
	if (!from) {
		call_violate(call, "passed NULL for %s", what);
		return false;
	}
	memcpy(&theirs, from, sizeof(theirs));
	if (theirs < 2 * sizeof(uint32_t) || theirs > STRUCT_SIZE_MAX) {
		call_violate(call, "passed %s with struct_size %u", what, theirs);
		return false;
	}
	memcpy(ret, from, theirs < size ? theirs : size);
	return true;
}

bool call_text_fits(struct call *call, const char *what, struct berth_str text, size_t max, bool is_bytes)
{
	if (text.len > max || (text.len && !text.ptr))
		call_violate(call, "passed %s of %zu bytes, at most %zu are allowed", what, text.len, max);
	else if (!is_bytes && text.len && (memchr(text.ptr, '\0', text.len) || !ident_utf8_valid(text.ptr, text.len)))
		call_violate(call, "passed %s that is not UTF-8 text", what);
	else
		return true;
	return false;
}

/* Points *text to a copy that lives as long as the call, with a NUL after it. */
static bool keep_text(struct call *call, struct berth_str *text)
{
	char *copy = arena_strndup(call->results.arena, text->ptr ? text->ptr : "", text->len);

	if (!copy) {
		call_violate(call, "emitted more than %zu bytes", (size_t)LIMIT_CALL_ARENA);
		return false;
	}
	text->ptr = copy;
	return true;
}

/* What lies in a session is no plugin's doing: too much of it is the caller's to know. */
static bool keep_path(struct call *call, struct berth_str *path)
{
	char *copy = arena_strndup(call->results.arena, path->ptr, path->len);

	if (!copy)
		call->sink_code = ERR_PAYLOAD_TOO_LARGE;
	path->ptr = copy;
	return copy != NULL;
}

static bool has_room(struct call *call, size_t count)
{
	if (count >= BERTH_RESULTS_MAX)
		call->sink_code = ERR_PAYLOAD_TOO_LARGE;
	return count < BERTH_RESULTS_MAX;
}

static bool grow(struct call *call, void **array, size_t *room, size_t count, size_t size)
{
	size_t wanted = *room ? *room * 2 : 16;
	void *grown;

	if (count < *room)
		return true;
	grown = realloc(*array, wanted * size);
	if (!grown) {
		call->sink_code = ERR_NOMEM;
		return false;
	}
	*array = grown;
	*room = wanted;
	return true;
}

/* What the receiver refuses ends the call with the receiver's code. */
static int32_t pass_on(struct call *call, int rc)
{
	call_sink_leave(call);
	if (!rc)
		return BERTH_OK;
	call->sink_code = rc;
	return call_code_of(rc);
}

static bool identity_fits(struct call *call, const struct berth_session_info *info)
{
	const struct berth_identity *wanted = &call->args.identity;
	struct berth_str workspace = info->workspace_id, task = info->task_id;

	if (!workspace.len && !task.len)
		workspace.ptr = task.ptr = "";
	else if (!workspace.ptr || !task.ptr || !ident_part_valid(workspace.ptr, workspace.len) ||
		 !ident_part_valid(task.ptr, task.len)) {
		call_violate(call, "passed a session with an identity that is none");
		return false;
	}
	if (!wanted->struct_size || (workspace.len == wanted->workspace_id.len && task.len == wanted->task_id.len &&
				     !memcmp(workspace.ptr, wanted->workspace_id.ptr, workspace.len) &&
				     !memcmp(task.ptr, wanted->task_id.ptr, task.len)))
		return true;
	call_violate(call, "passed a session of another identity than was asked for");
	return false;
}

static bool session_fits(struct call *call, const struct berth_session_info *info)
{
	if (!info->ref.len) {
		call_violate(call, "passed a session without ref");
		return false;
	}
	if (!phase_is_known(info->phase) || !isolation_word(info->isolation) || info->reserved) {
		call_violate(call, "passed a session with phase %u, isolation %u, reserved %u", info->phase,
			     info->isolation, info->reserved);
		return false;
	}
	if (info->created_ms < 0 || info->expires_ms < 0) {
		call_violate(call, "passed a session with a negative time");
		return false;
	}
	return call_text_fits(call, "a ref", info->ref, BERTH_REF_MAX, false) &&
	       call_text_fits(call, "a state", info->state, BERTH_STATE_MAX, true) &&
	       call_text_fits(call, "an intent", info->intent, BERTH_INTENT_MAX, false) &&
	       call_text_fits(call, "a boot id", info->boot_id, BERTH_BOOT_ID_MAX, false) &&
	       call_text_fits(call, "a root", info->root, BERTH_PATH_MAX, false) &&
	       call_text_fits(call, "a reason", info->dead_reason, BERTH_REASON_MAX, false) &&
	       identity_fits(call, info);
}

static bool keep_session(struct call *call, const struct berth_session_info *info)
{
	struct berth_session_info copy = *info;
	void *array = call->results.sessions;
	bool ok;

	if (call->results.session_count >= BERTH_RESULTS_MAX) { /* it has pages for them */
		call_violate(call, "emitted more than %u results", BERTH_RESULTS_MAX);
		return false;
	}
	ok = grow(call, &array, &call->results.session_room, call->results.session_count, sizeof(copy));
	call->results.sessions = array;
	if (!ok || !keep_text(call, &copy.ref) || !keep_text(call, &copy.state) ||
	    !keep_text(call, &copy.workspace_id) || !keep_text(call, &copy.task_id) || !keep_text(call, &copy.intent) ||
	    !keep_text(call, &copy.boot_id) || !keep_text(call, &copy.root) || !keep_text(call, &copy.dead_reason))
		return false;
	call->results.sessions[call->results.session_count++] = copy;
	return true;
}

static bool take_session(struct call *call, const struct berth_session_info *info, struct berth_session_info *ret)
{
	if (!take_struct(call, ret, sizeof(*ret), info, "a session") || !session_fits(call, ret))
		return false;
	ret->struct_size = sizeof(*ret);
	return true;
}

int32_t emit_session(struct berth_call *abi, const struct berth_session_info *info)
{
	struct call *call = call_enter(abi, SAY_SESSION);
	struct berth_session_info copy;

	if (!call || !take_session(call, info, &copy))
		return refused(abi);
	if (call->sink.session && !call_sink_enter_in_time(call))
		return refused(abi);
	if (call->sink.session)
		return pass_on(call, call->sink.session(call->sink.arg, &copy));
	return keep_session(call, &copy) ? BERTH_OK : refused(abi);
}

int32_t emit_created(struct berth_call *abi, const struct berth_session_info *info)
{
	struct call *call = call_enter(abi, SAY_CREATED);
	struct berth_session_info copy;

	if (!call || !take_session(call, info, &copy) || !keep_session(call, &copy))
		return refused(abi);
	/* The kept copy: its texts end in NUL, as receivers like them. */
	if (call->sink.created && !call_sink_enter(call))
		return refused(abi);
	if (call->sink.created)
		return pass_on(
		    call, call->sink.created(call->sink.arg, &call->results.sessions[call->results.session_count - 1]));
	return BERTH_OK;
}

static int32_t keep_one(struct berth_call *abi, unsigned say, const char *what, const struct berth_str *text,
			size_t max, const char **ret)
{
	struct call *call = call_enter(abi, say);
	struct berth_str copy;

	if (!call)
		return refused(abi);
	if (!text || !text->len) {
		call_violate(call, "passed an empty %s", what);
		return BERTH_INTERNAL;
	}
	copy = *text;
	if (!call_text_fits(call, what, copy, max, false) || !keep_text(call, &copy))
		return BERTH_INTERNAL;
	*ret = copy.ptr;
	return BERTH_OK;
}

int32_t emit_cursor(struct berth_call *abi, const struct berth_str *cursor)
{
	struct call *call = call_of(abi);
	int32_t rc = call ? keep_one(abi, SAY_CURSOR, "cursor", cursor, BERTH_CURSOR_MAX, &call->cursor) : BERTH_INTERNAL;
	struct berth_str given;

	if (rc)
		return rc;
	given = call->args.text;
	if (cursor->len != given.len || memcmp(cursor->ptr, given.ptr, given.len) != 0)
		return BERTH_OK;
	call_violate(call, "gave the cursor that it was given");
	return BERTH_INTERNAL;
}

int32_t emit_token(struct berth_call *abi, const struct berth_str *token)
{
	struct call *call = call_of(abi);

	return call ? keep_one(abi, SAY_TOKEN, "token", token, BERTH_TOKEN_MAX, &call->token) : BERTH_INTERNAL;
}

int32_t emit_expiry(struct berth_call *abi, int64_t effective_ms)
{
	struct call *call = call_enter(abi, SAY_EXPIRY);

	if (!call)
		return refused(abi);
	if (effective_ms <= 0) {
		call_violate(call, "passed an expiry that is no time");
		return BERTH_INTERNAL;
	}
	call->expiry_ms = effective_ms;
	return BERTH_OK;
}

static bool ending_fits(struct call *call, const struct berth_ending *ending)
{
	if (ending->kind < BERTH_ENDING_EXIT || ending->kind > BERTH_ENDING_UNKNOWN ||
	    ending->quiescent > BERTH_QUIESCENT_NO) {
		call_violate(call, "passed an ending of kind %u, quiescent %u", ending->kind, ending->quiescent);
		return false;
	}
	if ((ending->kind == BERTH_ENDING_EXIT && (ending->exit_code < 0 || ending->exit_code > 255)) ||
	    (ending->kind == BERTH_ENDING_SIGNAL && (ending->signal < 0 || ending->signal > 64)) ||
	    ending->duration_ms < 0) {
		call_violate(call, "passed an ending with exit code %d, signal %d", ending->exit_code, ending->signal);
		return false;
	}
	return call_text_fits(call, "a reason", ending->reason, BERTH_REASON_MAX, false);
}

int32_t emit_ending(struct berth_call *abi, const struct berth_ending *ending)
{
	struct call *call = call_enter(abi, SAY_ENDING);
	struct berth_ending copy;

	if (!call || !take_struct(call, &copy, sizeof(copy), ending, "an ending") || !ending_fits(call, &copy) ||
	    !keep_text(call, &copy.reason))
		return refused(abi);
	copy.struct_size = sizeof(copy);
	call->ending = copy;
	return BERTH_OK;
}

/* Names inside a session may be any bytes; what leads out of the root is the plugin's mistake. */
static bool path_fits(struct call *call, struct berth_str path)
{
	const char *end = path.ptr + path.len;

	if (!call_text_fits(call, "a path", path, BERTH_PATH_MAX, true))
		return false;
	if (!path.len || path.ptr[0] == '/' || memchr(path.ptr, '\0', path.len)) {
		call_violate(call, "passed a path that is empty, absolute or holds a NUL");
		return false;
	}
	for (const char *part = path.ptr; part < end;) {
		const char *slash = memchr(part, '/', (size_t)(end - part));
		size_t len = (size_t)((slash ? slash : end) - part);

		if (len == 2 && part[0] == '.' && part[1] == '.') {
			call_violate(call, "passed a path with \"..\"");
			return false;
		}
		part += len + 1;
	}
	return true;
}

int32_t emit_file(struct berth_call *abi, const struct berth_file_info *info)
{
	struct call *call = call_enter(abi, SAY_FILE);
	struct berth_file_info copy;
	void *array;
	bool ok;

	if (!call || !take_struct(call, &copy, sizeof(copy), info, "a file") || !path_fits(call, copy.path))
		return refused(abi);
	if (copy.kind < BERTH_FILE_REGULAR || copy.kind > BERTH_FILE_OTHER || copy.mode > 07777 || copy.reserved) {
		call_violate(call, "passed a file of kind %u, mode %o, reserved %u", copy.kind, copy.mode,
			     copy.reserved);
		return BERTH_INTERNAL;
	}
	copy.struct_size = sizeof(copy);
	if (call->sink.file && !call_sink_enter_in_time(call))
		return refused(abi);
	if (call->sink.file)
		return pass_on(call, call->sink.file(call->sink.arg, &copy));
	array = call->results.files;
	ok = has_room(call, call->results.file_count) &&
	     grow(call, &array, &call->results.file_room, call->results.file_count, sizeof(copy));
	call->results.files = array;
	if (!ok || !keep_path(call, &copy.path))
		return refused(abi);
	call->results.files[call->results.file_count++] = copy;
	return BERTH_OK;
}

int32_t emit_change(struct berth_call *abi, const struct berth_change *change)
{
	struct call *call = call_enter(abi, SAY_CHANGE);
	struct berth_change copy;
	void *array;
	bool ok;

	if (!call || !take_struct(call, &copy, sizeof(copy), change, "a change") || !path_fits(call, copy.path))
		return refused(abi);
	if (copy.kind > BERTH_FILE_OTHER || copy.mode > 07777 || copy.reserved) {
		call_violate(call, "passed a change of kind %u, mode %o, reserved %u", copy.kind, copy.mode,
			     copy.reserved);
		return BERTH_INTERNAL;
	}
	copy.struct_size = sizeof(copy);
	array = call->results.changes;
	ok = has_room(call, call->results.change_count) &&
	     grow(call, &array, &call->results.change_room, call->results.change_count, sizeof(copy));
	call->results.changes = array;
	if (!ok || !keep_path(call, &copy.path))
		return refused(abi);
	call->results.changes[call->results.change_count++] = copy;
	return BERTH_OK;
}
