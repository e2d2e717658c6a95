/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of single files: bytes, modes, names, whole or not at all. */
#include "rules.h"

#define MIB ((size_t)1 << 20)

/* Sets kind 0 and returns the error when there is none. */
static int stat_file(struct check *check, struct session *session, const char *path, struct berth_file_info *ret)
{
	struct call *call = check_call(check);
	struct err err = {0};
	const struct berth_file_info *infos;
	size_t count;
	int rc = call_file_stat(call, &session->abi, path, &err);

	memset(ret, 0, sizeof(*ret));
	infos = call_files(call, &count);
	if (!rc && count == 1)
		*ret = infos[0];
	return rc;
}

static void round_trip(struct check *check, struct session *session, const char *path, const void *ptr, size_t len)
{
	struct berth_file_info info;
	struct buf *back = check_buf(check);
	struct err err = {0};

	MUST(check, !file_put(check, session, path, 0644, ptr, len, &err), "write of %zu bytes " OK_FMT, len,
	     OK_ARGS(err));
	MUST(check, !stat_file(check, session, path, &info) && info.kind == BERTH_FILE_REGULAR && info.size == len,
	     "stat reports kind %u, %llu bytes of a file of %zu", info.kind, (unsigned long long)info.size, len);
	MUST(check, !file_get(check, session, path, 0, BERTH_SIZE_UNKNOWN, back, &err), "read of %zu bytes " OK_FMT,
	     len, OK_ARGS(err));
	MUST(check, back->len == len && (!len || !memcmp(back->ptr, ptr, len)),
	     "%zu bytes came back as %zu, or changed", len, back->len);
}

void rule_file_exact(struct check *check)
{
	struct session *session = session_shared(check);
	size_t big = check->kit->opt->stress ? 64 * MIB : 3 * MIB + 1;
	const char *dir = file_dir(check);
	char all[256], *bytes = check_alloc(check, big);

	if (!session)
		return;
	for (unsigned i = 0; i < 256; i++)
		all[i] = (char)i;
	file_fill(bytes, big, 2);
	round_trip(check, session, check_printf(check, "%s/all", dir), all, sizeof(all));
	round_trip(check, session, check_printf(check, "%s/big", dir), bytes, big);
	round_trip(check, session, check_printf(check, "%s/crlf", dir), "a\r\nb\n\r", 6);
	round_trip(check, session, check_printf(check, "%s/empty", dir), "", 0);
	round_trip(check, session, check_printf(check, "%s/all", dir), "shorter", 7);
}

void rule_file_shell(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check), *text;
	struct buf *back = check_buf(check);
	struct err err = {0};

	if (!session)
		return;
	MUST(check, !file_put(check, session, check_printf(check, "%s/in", dir), 0644, "from outside", 12, &err),
	     "write " OK_RC(err));
	text = run_shell(check, session, check_printf(check, "cat %s/in; printf 'from inside' >%s/out", dir, dir));
	MUST(check, text && !strcmp(text, "from outside"), "a command reads \"%.60s\" of a file that was written",
	     text ? text : "");
	MUST(check, !file_get(check, session, check_printf(check, "%s/out", dir), 0, BERTH_SIZE_UNKNOWN, back, &err),
	     "read " OK_RC(err));
	MUST(check, back->len == 11 && !memcmp(back->ptr, "from inside", 11),
	     "a file that a command wrote is not read back");
}

void rule_file_owner(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	struct err err = {0};

	if (!session)
		return;
	MUST(check, !file_put(check, session, check_printf(check, "%s/a/b", dir), 0600, "x", 1, &err),
	     "write " OK_RC(err));
	run_shell(check, session, check_printf(check, "echo more >>%s/a/b && : >%s/a/c && rm %s/a/b", dir, dir, dir));
}

void rule_file_range(struct check *check)
{
	static const struct {
		uint64_t offset, length;
		const char *want;
	} ranges[] = {
		{0, 4, "0123"}, {3, 3, "345"}, {8, 100, "89"}, {9, BERTH_SIZE_UNKNOWN, "9"},
		{10, 5, ""},	{1000, 5, ""}, {2, 0, ""},
	};
	struct session *session = session_shared(check);
	const char *path = file_dir(check);
	struct err err = {0};

	MUST(check, !session || !file_put(check, session, path, 0644, "0123456789", 10, &err), "write " OK_RC(err));
	for (size_t i = 0; session && i < sizeof(ranges) / sizeof(*ranges); i++) {
		struct buf *back = check_buf(check);

		MUST(check, !file_get(check, session, path, ranges[i].offset, ranges[i].length, back, &err),
		     "read from %llu on " OK_FMT, (unsigned long long)ranges[i].offset, OK_ARGS(err));
		MUST(check,
		     back->len == strlen(ranges[i].want) &&
			     (!back->len || !memcmp(back->ptr, ranges[i].want, back->len)),
		     "read from %llu on gives \"%.20s\" instead of \"%s\"", (unsigned long long)ranges[i].offset,
		     back->len ? back->ptr : "", ranges[i].want);
	}
}

void rule_file_mode(struct check *check)
{
	static const unsigned modes[] = {0644, 0755, 0600, 0666, 0444, 0777};
	struct session *session = session_shared(check);
	const char *path = file_dir(check);
	struct err err = {0};

	for (size_t i = 0; session && i < sizeof(modes) / sizeof(*modes); i++) {
		struct berth_file_info info;

		MUST(check, !file_put(check, session, path, modes[i], "x", 1, &err), "write with mode %03o " OK_FMT,
		     modes[i], OK_ARGS(err));
		MUST(check, !stat_file(check, session, path, &info) && (info.mode & 07777) == modes[i],
		     "a file written with mode %03o has mode %03o", modes[i], info.mode);
	}
}

void rule_file_names(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	char part[256], deep[900] = "";

	if (!session)
		return;
	memset(part, 'n', 255);
	part[255] = '\0';
	for (int i = 0; i < 120; i++)
		memcpy(deep + 7 * (size_t)i, i ? "/folder" : "folders", 8);
	round_trip(check, session, check_printf(check, "%s/with space and 'quotes' $HOME *", dir), "1", 1);
	round_trip(check, session, check_printf(check, "%s/\xc3\xa9\xe2\x82\xac", dir), "2", 1);
	round_trip(check, session, check_printf(check, "%s/%s", dir, part), "3", 1);
	round_trip(check, session, check_printf(check, "%s/%s", dir, deep), "4", 1);
	round_trip(check, session, check_printf(check, "%s/-rf", dir), "5", 1);
}

static bool names_of(struct check *check, struct session *session, const char *path, uint32_t flags, struct call **ret)
{
	struct err err = {0};

	*ret = check_call(check);
	if (call_file_list(*ret, &session->abi, path, flags, &err)) {
		check_fail(check, "list of %s " OK_FMT, path, OK_ARGS(err));
		return false;
	}
	return true;
}

static bool has_entry(const struct call *call, const char *path, uint32_t kind, uint64_t size)
{
	size_t count, times = 0;
	const struct berth_file_info *infos = call_files(call, &count);

	for (size_t i = 0; i < count; i++)
		times += str_is(infos[i].path, path) && infos[i].kind == kind &&
			 (kind != BERTH_FILE_REGULAR || infos[i].size == size);
	return times == 1;
}

void rule_file_list(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	struct err err = {0};
	struct call *call;
	size_t count;

	if (!session)
		return;
	MUST(check,
	     !file_put(check, session, check_printf(check, "%s/one", dir), 0644, "1", 1, &err) &&
		     !file_put(check, session, check_printf(check, "%s/sub/two", dir), 0644, "22", 2, &err) &&
		     !file_put(check, session, check_printf(check, "%s/three", dir), 0644, "", 0, &err),
	     "write " OK_RC(err));
	if (!names_of(check, session, dir, 0, &call))
		return;
	call_files(call, &count);
	MUST(check,
	     count == 3 && has_entry(call, check_printf(check, "%s/one", dir), BERTH_FILE_REGULAR, 1) &&
		     has_entry(call, check_printf(check, "%s/three", dir), BERTH_FILE_REGULAR, 0) &&
		     has_entry(call, check_printf(check, "%s/sub", dir), BERTH_FILE_DIRECTORY, 0),
	     "list of a folder of 3 entries emits %zu, or others", count);
	if (!names_of(check, session, dir, BERTH_LIST_RECURSIVE, &call))
		return;
	call_files(call, &count);
	MUST(check, count == 4 && has_entry(call, check_printf(check, "%s/sub/two", dir), BERTH_FILE_REGULAR, 2),
	     "a recursive list of 4 entries emits %zu, or others", count);
	if (names_of(check, session, ".", 0, &call))
		MUST(check, has_entry(call, dir, BERTH_FILE_DIRECTORY, 0), "list of the root does not hold the folder");
}

void rule_file_remove(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check), *file = check_printf(check, "%s/sub/file", dir);
	struct berth_file_info info;
	struct err err = {0};
	int rc;

	if (!session)
		return;
	MUST(check, !file_put(check, session, file, 0644, "1", 1, &err), "write " OK_RC(err));
	rc = call_file_remove(check_call(check), &session->abi, dir, 0, &err);
	MUST(check, rc && !stat_file(check, session, file, &info),
	     "removing a folder with files in it, not recursively, answered %s", kit_code(rc));
	MUST(check, !call_file_remove(check_call(check), &session->abi, file, 0, &err), "remove of a file " OK_RC(err));
	MUST(check, stat_file(check, session, file, &info) == ERR_NOT_FOUND, "a removed file is still there");
	MUST(check, !call_file_remove(check_call(check), &session->abi, dir, BERTH_REMOVE_RECURSIVE, &err),
	     "remove of a folder, recursively " OK_RC(err));
	MUST(check, stat_file(check, session, dir, &info) == ERR_NOT_FOUND, "a removed folder is still there");
}

/* One that no minor will name soon. */
#define FLAG_UNKNOWN (UINT32_C(1) << 30)

void rule_file_flags(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check), *file = check_printf(check, "%s/file", dir);
	struct berth_file_info info;
	struct err err = {0};
	int rc;

	if (!session)
		return;
	MUST(check, !file_put(check, session, file, 0644, "1", 1, &err), "write " OK_RC(err));
	rc = call_file_list(check_call(check), &session->abi, dir, FLAG_UNKNOWN | BERTH_LIST_RECURSIVE, &err);
	MUST(check, rc == ERR_UNSUPPORTED, "list with an unknown flag answers %s", kit_code(rc));
	rc = call_file_remove(check_call(check), &session->abi, dir, FLAG_UNKNOWN | BERTH_REMOVE_RECURSIVE, &err);
	MUST(check, rc == ERR_UNSUPPORTED, "remove with an unknown flag answers %s", kit_code(rc));
	MUST(check, !stat_file(check, session, file, &info), "remove with an unknown flag removed the file");
}

void rule_file_move(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check), *from = check_printf(check, "%s/from", dir),
		   *to = check_printf(check, "%s/to/there", dir);
	struct buf *back = check_buf(check);
	struct berth_file_info info;
	struct err err = {0};

	if (!session)
		return;
	MUST(check,
	     !file_put(check, session, from, 0640, "moved", 5, &err) &&
		     !file_put(check, session, to, 0644, "old", 3, &err),
	     "write " OK_RC(err));
	MUST(check, !call_file_move(check_call(check), &session->abi, from, to, &err), "move over a file " OK_RC(err));
	MUST(check, stat_file(check, session, from, &info) == ERR_NOT_FOUND, "a moved file is still at its old place");
	MUST(check,
	     !file_get(check, session, to, 0, BERTH_SIZE_UNKNOWN, back, &err) && back->len == 5 &&
		     !memcmp(back->ptr, "moved", 5),
	     "a moved file has other bytes at its new place");
	MUST(check, !stat_file(check, session, to, &info) && (info.mode & 0777) == 0640,
	     "a moved file has mode %03o instead of 640", info.mode);
}

void rule_file_missing(struct check *check)
{
	struct session *session = session_shared(check);
	const char *path = check_printf(check, "%s/none", file_dir(check));
	struct berth_file_info info;
	struct err err = {0};
	int got[5];

	if (!session)
		return;
	got[0] = file_get(check, session, path, 0, BERTH_SIZE_UNKNOWN, check_buf(check), &err);
	got[1] = stat_file(check, session, path, &info);
	got[2] = call_file_list(check_call(check), &session->abi, path, 0, &err);
	got[3] = call_file_remove(check_call(check), &session->abi, path, BERTH_REMOVE_RECURSIVE, &err);
	got[4] = call_file_move(check_call(check), &session->abi, path, "elsewhere", &err);
	for (int i = 0; i < 5; i++)
		MUST(check, got[i] == ERR_NOT_FOUND, "%s of a missing path answers %s",
		     (const char *const[]){"read", "stat", "list", "remove", "move"}[i], kit_code(got[i]));
}

static bool nothing_else(struct check *check, struct session *session, const char *dir, size_t want)
{
	struct call *call;
	size_t count;

	if (!names_of(check, session, dir, BERTH_LIST_RECURSIVE, &call))
		return false;
	call_files(call, &count);
	MUST_OR(check, count == want, false, "after a refused write the folder holds %zu entries instead of %zu", count,
		want);
	return true;
}

/* A source that turns out not to be what it promised. */
void rule_file_lying(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check), *old = check_printf(check, "%s/old", dir),
		   *new = check_printf(check, "%s/new", dir);
	struct buf *back = check_buf(check);
	struct err err = {0};
	char bytes[5000];
	int rc;

	if (!session)
		return;
	file_fill(bytes, sizeof(bytes), 3);
	MUST(check, !file_put(check, session, old, 0644, "old", 3, &err), "write " OK_RC(err));
	for (int i = 0; i < 4; i++) {
		struct source source = {
			.ptr = bytes, .len = sizeof(bytes), .step = 1000, .end_rc = i < 2 ? ERR_INVALID_REQUEST : 0};

		rc = file_write(check, session, i % 2 ? old : new, 0644, i < 2 ? sizeof(bytes) : sizeof(bytes) + 1,
				&source, &err);
		MUST(check, is_invalid(rc), "a write whose source %s answers %s",
		     i < 2 ? "ends with a refusal" : "is shorter than promised", kit_code(rc));
	}
	MUST(check, !file_get(check, session, old, 0, BERTH_SIZE_UNKNOWN, back, &err) && back->len == 3,
	     "a refused write changed the file that was there");
	nothing_else(check, session, dir, 1);
}

struct peek {
	struct check *check;
	struct session *session;
	const char *path;
};

static void peek_old(struct source *source)
{
	struct peek *peek = source->arg;
	struct buf *back = check_buf(peek->check);
	struct err err = {0};

	MUST(peek->check, !file_get(peek->check, peek->session, peek->path, 0, BERTH_SIZE_UNKNOWN, back, &err),
	     "read of a file that is being replaced " OK_RC(err));
	MUST(peek->check, back->len == 3 && !memcmp(back->ptr, "old", 3),
	     "a reader sees %zu bytes of a write that has not ended", back->len);
}

void rule_file_atomic(struct check *check)
{
	struct session *session = session_shared(check);
	struct peek peek = {check, session, file_dir(check)};
	struct source source = {.len = MIB, .step = 65536, .peek = peek_old, .arg = &peek};
	struct berth_file_info info;
	struct err err = {0};

	/* Reading within a write takes a second call at once. */
	if (!(check->kit->capabilities & BERTH_CAP_THREADSAFE))
		source.peek = NULL;
	source.ptr = check_alloc(check, MIB);
	MUST(check, !session || !file_put(check, session, peek.path, 0644, "old", 3, &err), "write " OK_RC(err));
	if (!session)
		return;
	MUST(check, !file_write(check, session, peek.path, 0644, MIB, &source, &err), "write " OK_RC(err));
	MUST(check, !stat_file(check, session, peek.path, &info) && info.size == MIB,
	     "the new file is not there after the write");
}

void rule_file_not_regular(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	struct err err = {0};
	int rc[2];

	if (!session || !run_shell(check, session, check_printf(check, "mkdir %s && mkfifo %s/fifo", dir, dir)))
		return;
	rc[0] = file_get(check, session, dir, 0, BERTH_SIZE_UNKNOWN, check_buf(check), &err);
	rc[1] = file_get(check, session, check_printf(check, "%s/fifo", dir), 0, BERTH_SIZE_UNKNOWN, check_buf(check),
			 &err);
	MUST(check, is_invalid(rc[0]) && is_invalid(rc[1]), "read of a folder answers %s, of a FIFO %s",
	     kit_code(rc[0]), kit_code(rc[1]));
	rc[0] = file_put(check, session, dir, 0644, "x", 1, &err);
	MUST(check, rc[0] && rc[0] != ERR_INTERNAL, "a write over a folder answers %s", kit_code(rc[0]));
}

struct racing {
	struct session *session;
	const char *path;
	char *bytes[2];
};

static void write_or_read(struct check *check, void *arg, unsigned i)
{
	struct racing *racing = arg;

	for (int round = 0; round < 15 && !check_failed(check); round++) {
		struct buf *back = check_buf(check);
		struct err err = {0};

		if (i < 2) {
			MUST(check,
			     !file_put(check, racing->session, racing->path, 0644, racing->bytes[i], 100000 + i, &err),
			     "write beside another " OK_RC(err));
			continue;
		}
		MUST(check, !file_get(check, racing->session, racing->path, 0, BERTH_SIZE_UNKNOWN, back, &err),
		     "read beside writers " OK_RC(err));
		MUST(check,
		     (back->len == 100000 || back->len == 100001) &&
			     !memcmp(back->ptr, racing->bytes[back->len - 100000], back->len),
		     "a reader beside two writers sees %zu bytes, or a mixture", back->len);
	}
}

void rule_file_race(struct check *check)
{
	struct racing racing = {.session = session_shared(check), .path = file_dir(check)};
	struct err err = {0};

	if (!racing.session)
		return;
	for (unsigned i = 0; i < 2; i++) {
		racing.bytes[i] = check_alloc(check, 100001);
		file_fill(racing.bytes[i], 100001, 10 + i);
	}
	MUST(check, !file_put(check, racing.session, racing.path, 0644, racing.bytes[0], 100000, &err),
	     "write " OK_RC(err));
	check_threads(check, 4, write_or_read, &racing);
}

void rule_sessions_apart(struct check *check)
{
	struct session *one = session_shared(check), *two = one ? session_make(check, NULL) : NULL;
	const char *path = file_dir(check);
	struct berth_file_info info;
	struct err err = {0};
	int rc;

	if (!two)
		return;
	MUST(check, !file_put(check, one, path, 0644, "mine", 4, &err), "write " OK_RC(err));
	rc = stat_file(check, two, path, &info);
	MUST(check, rc == ERR_NOT_FOUND, "stat in one session of a file of another answers %s", kit_code(rc));
}
