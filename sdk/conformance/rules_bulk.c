/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of many files at once: archives in and out, and what changed since a mark. */
#include "rules.h"

static void must_read(struct check *check, struct session *session, const char *path, const char *want)
{
	struct buf *back = check_buf(check);
	struct err err = {0};

	MUST(check, !file_get(check, session, path, 0, BERTH_SIZE_UNKNOWN, back, &err), "read of %s " OK_FMT, path,
	     OK_ARGS(err));
	MUST(check, back->len == strlen(want) && (!back->len || !memcmp(back->ptr, want, back->len)),
	     "%s holds \"%.40s\"", path, back->len ? back->ptr : "");
}

void rule_bulk_import(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check), *mode;
	struct buf *tar = check_buf(check);
	struct err err = {0};
	struct call *call = check_call(check);
	const struct berth_file_info *info;
	size_t count;

	if (!session)
		return;
	file_tar_entry(tar, "sub/", '5', "", 0755, NULL, 0);
	file_tar_entry(tar, "sub/one", '0', "", 0644, "1", 1);
	file_tar_entry(tar, "two", '0', "", 0755, "22", 2);
	file_tar_entry(tar, "empty", '0', "", 0644, NULL, 0);
	file_tar_end(tar);
	MUST(check, !file_import(check, session, dir, tar->ptr, tar->len, &err), "import " OK_RC(err));
	must_read(check, session, check_printf(check, "%s/sub/one", dir), "1");
	must_read(check, session, check_printf(check, "%s/two", dir), "22");
	must_read(check, session, check_printf(check, "%s/empty", dir), "");
	mode = check_printf(check, "%s/two", dir);
	MUST(check, !call_file_stat(call, &session->abi, mode, &err), "stat " OK_RC(err));
	info = call_files(call, &count);
	MUST(check, count == 1 && (info->mode & 0777) == 0755, "a file of mode 755 in the archive has mode %03o",
	     info->mode & 0777);
}

void rule_bulk_round(struct check *check)
{
	struct session *session = session_shared(check);
	const char *from = file_dir(check), *to = file_dir(check);
	char *bytes = check_alloc(check, 300000);
	struct buf *tar = check_buf(check), *back = check_buf(check);
	struct err err = {0};

	if (!session)
		return;
	file_fill(bytes, 300000, 4);
	MUST(check,
	     !file_put(check, session, check_printf(check, "%s/a/big", from), 0600, bytes, 300000, &err) &&
		     !file_put(check, session, check_printf(check, "%s/empty", from), 0644, "", 0, &err) &&
		     !file_put(check, session, check_printf(check, "%s/left", from), 0644, "left", 4, &err),
	     "write " OK_RC(err));
	MUST(check,
	     !file_export(
		     check, session,
		     (const char *const[]){check_printf(check, "%s/a", from), check_printf(check, "%s/empty", from)}, 2,
		     tar, &err),
	     "export " OK_RC(err));
	MUST(check, tar->len >= 1024 && tar->len % 512 == 0, "the archive has %zu bytes", tar->len);
	MUST(check, !file_import(check, session, to, tar->ptr, tar->len, &err), "import of an own export " OK_RC(err));
	MUST(check,
	     !file_get(check, session, check_printf(check, "%s/%s/a/big", to, from), 0, BERTH_SIZE_UNKNOWN, back, &err),
	     "a file of the archive is not there: " OK_RC(err));
	MUST(check, back->len == 300000 && !memcmp(back->ptr, bytes, 300000),
	     "300000 bytes came through the archive as %zu, or changed", back->len);
	must_read(check, session, check_printf(check, "%s/%s/empty", to, from), "");
	MUST(check,
	     call_file_stat(check_call(check), &session->abi, check_printf(check, "%s/%s/left", to, from), &err) ==
		     ERR_NOT_FOUND,
	     "the archive holds a file that was not asked for");
}

void rule_bulk_missing(struct check *check)
{
	struct session *session = session_shared(check);
	const char *path = file_dir(check);
	struct err err = {0};
	int rc = session ? file_export(check, session, &path, 1, check_buf(check), &err) : ERR_NOT_FOUND;

	MUST(check, rc == ERR_NOT_FOUND, "export of a missing path answers %s", kit_code(rc));
}

/* Refused, and nothing of it is in the folder. */
static void must_leave_nothing(struct check *check, struct session *session, struct source *source, const char *what)
{
	const char *dir = file_dir(check);
	struct call *call = check_call(check);
	struct err err = {0};
	size_t count;
	int rc = file_import_from(check, session, dir, source, &err);

	MUST(check, is_invalid(rc), "import of an archive that %s answers %s", what, kit_code(rc));
	rc = call_file_list(call, &session->abi, dir, BERTH_LIST_RECURSIVE, &err);
	call_files(call, &count);
	MUST(check, rc == ERR_NOT_FOUND || (!rc && !count), "of an archive that %s %zu files are there", what, count);
}

/* An archive that breaks off, or whose source takes it back at the end, after the last of its bytes. */
void rule_bulk_whole(struct check *check)
{
	struct session *session = session_shared(check);
	struct buf *tar = check_buf(check);
	struct source source;

	if (!session)
		return;
	file_tar_entry(tar, "one", '0', "", 0644, "1", 1);
	file_tar_entry(tar, "two", '0', "", 0644, "2", 1);
	source = (struct source){.ptr = tar->ptr, .len = 1024 + 512 + 100};
	must_leave_nothing(check, session, &source, "breaks off");
	file_tar_end(tar);
	source = (struct source){.ptr = tar->ptr, .len = tar->len, .end_rc = ERR_INVALID_REQUEST};
	if (!check_failed(check))
		must_leave_nothing(check, session, &source, "is taken back at its end");
}

/* A provider may take what changed within the last tick of the session's clock for changed: that tick has to pass
 * first. */
static const char *take_mark(struct check *check, struct session *session)
{
	struct call *call = check_call(check);
	struct err err = {0};

	if (!run_shell(check, session, "sleep 0.1"))
		return NULL;
	MUST_OR(check, !call_mark(call, &session->abi, &err), NULL, "mark " OK_RC(err));
	return check_printf(check, "%s", call_token(call));
}

static struct call *changes_since(struct check *check, struct session *session, const char *token)
{
	struct call *call = check_call(check);
	struct err err = {0};

	MUST_OR(check, !call_changes_since(call, &session->abi, token, &err), NULL, "changes " OK_RC(err));
	return call;
}

/* 0: deleted; -1: not reported. */
static int changed_kind(const struct call *call, const char *path)
{
	size_t count;
	const struct berth_change *changes = call_changes(call, &count);

	for (size_t i = 0; i < count; i++)
		if (str_is(changes[i].path, path))
			return (int)changes[i].kind;
	return -1;
}

void rule_changes_found(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check), *token;
	struct call *call;
	static const struct {
		const char *name;
		int kind;
	} want[] = {{"new", BERTH_FILE_REGULAR},     {"grown", BERTH_FILE_REGULAR},
		    {"mode", BERTH_FILE_REGULAR},    {"gone", 0},
		    {"sub/new", BERTH_FILE_REGULAR}, {"replaced", BERTH_FILE_REGULAR}};

	if (!session ||
	    !run_shell(check, session,
		       check_printf(check,
				    "mkdir %s && cd %s && for f in grown mode gone same replaced; do echo $f >$f; done",
				    dir, dir)))
		return;
	token = take_mark(check, session);
	if (!token ||
	    !run_shell(check, session,
		       check_printf(
			       check,
			       "cd %s && echo x >new && echo more >>grown && chmod 600 mode && rm gone && mkdir sub && "
			       "echo y >sub/new && echo REPLACED >r && mv r replaced",
			       dir)))
		return;
	call = changes_since(check, session, token);
	for (size_t i = 0; call && i < sizeof(want) / sizeof(*want); i++) {
		int kind = changed_kind(call, check_printf(check, "%s/%s", dir, want[i].name));

		MUST(check, kind == want[i].kind, "the change of \"%s\" is reported as %d instead of %d", want[i].name,
		     kind, want[i].kind);
	}
	MUST(check, !call || changed_kind(call, check_printf(check, "%s/same", dir)) < 0,
	     "a file that did not change is reported");
}

void rule_changes_hidden(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check), *token;
	struct call *call;

	if (!session ||
	    !run_shell(check, session,
		       check_printf(check, "mkdir %s && cd %s && echo aaaa >f && touch -d 2020-01-01 f", dir, dir)))
		return;
	token = take_mark(check, session);
	if (!token || !run_shell(check, session,
				 check_printf(check, "cd %s && printf 'bbbb\\n' >f && touch -d 2020-01-01 f", dir)))
		return;
	call = changes_since(check, session, token);
	MUST(check, !call || changed_kind(call, check_printf(check, "%s/f", dir)) == BERTH_FILE_REGULAR,
	     "an edit that kept size and modification time is not reported");
}

void rule_changes_none(struct check *check)
{
	struct session *session = session_make(check, NULL);
	const char *token;
	const struct berth_change *changes;
	struct call *call;
	struct err err = {0};
	size_t count;

	if (!session)
		return;
	MUST(check, !file_put(check, session, "a/b", 0644, "x", 1, &err), "write " OK_RC(err));
	token = take_mark(check, session);
	if (!token || file_get(check, session, "a/b", 0, BERTH_SIZE_UNKNOWN, check_buf(check), &err) ||
	    !run_shell(check, session, "cat a/b"))
		return;
	call = changes_since(check, session, token);
	if (!call)
		return;
	changes = call_changes(call, &count);
	MUST(check, count == 0, "%zu changes are reported though nothing changed, the first is %.60s, kind %u", count,
	     changes[0].path.ptr, changes[0].kind);
}
