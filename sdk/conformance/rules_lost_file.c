/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of files and archives whose answers are lost: bytes that did not come, and writes that may have worked. */
#include "rules_lost.h"

#define BIG 300000

/* ---- reads ---- */

struct read {
	const char *word;
	uint64_t capability;
	int (*fn)(struct check *check, const struct scene *scene, struct buf *ret, struct err *err);
};

static int read_file(struct check *check, const struct scene *scene, struct buf *ret, struct err *err)
{
	return file_get(check, scene->session, scene->file, 0, BERTH_SIZE_UNKNOWN, ret, err);
}

static int read_archive(struct check *check, const struct scene *scene, struct buf *ret, struct err *err)
{
	return file_export(check, scene->session, &scene->file, 1, ret, err);
}

static const struct read reads[] = {
	{"file_read", 0, read_file},
	{"export", BERTH_CAP_BULK, read_archive},
};

/* A body that ends as if it were whole cannot be told from a short file; one that breaks off can. */
static const struct misfortune cuts[] = {
	{"whose connection broke before the answer", {.kind = FAULT_LOSE}, false},
	{"whose answer was lost", {.kind = FAULT_LOSE_LATE}, false},
	{"whose answer broke off at once", {.kind = FAULT_CUT}, false},
	{"whose answer broke off", {.kind = FAULT_CUT}, true},
	{"that was answered with 500", {.kind = FAULT_ANSWER, .status = 500, .body = LOST_HTML}, false},
	{"that was answered by a stranger's 404", {.kind = FAULT_ANSWER, .status = 404, .body = LOST_HTML}, false},
	{"that was answered with 206", {.kind = FAULT_ANSWER, .status = 206, .body = "part"}, false},
};

static void must_read_rightly(struct check *check, const struct read *one, const struct scene *scene,
			      const struct misfortune *misfortune, unsigned at, const struct buf *want)
{
	struct fault fault = misfortune->fault;
	struct buf *got = check_buf(check);
	struct err err = {0};
	int rc;

	fault.at = at;
	if (misfortune->half)
		fault.bytes = want->len / 2;
	fault_arm(&fault);
	rc = one->fn(check, scene, got, &err);
	fault_disarm();
	if (!lost_said(check, rc, &err, one->word))
		return;
	MUST(check, rc != ERR_NOT_FOUND && rc != ERR_SESSION_GONE,
	     "%s, %s (exchange %u), says %s of a file that is there", one->word, misfortune->words, at, kit_code(rc));
	MUST(check, rc || (got->len == want->len && !memcmp(got->ptr, want->ptr, want->len)),
	     "%s, %s (exchange %u), answers OK with %zu bytes, not the %zu of the file", one->word, misfortune->words,
	     at, got->len, want->len);
}

static void read_with(struct check *check, const struct read *one, const struct scene *scene)
{
	struct buf *want = check_buf(check);
	struct err err = {0};
	unsigned count;

	fault_arm(&(struct fault){.kind = FAULT_NONE});
	MUST(check, !one->fn(check, scene, want, &err), "%s, undisturbed, " OK_FMT, one->word, OK_ARGS(err));
	count = fault_seen() < LOST_EXCHANGES ? fault_seen() : LOST_EXCHANGES;
	for (unsigned at = 1; at <= count; at++)
		for (size_t k = 0; k < LOST_COUNT(cuts) && !check_failed(check); k++)
			must_read_rightly(check, one, scene, &cuts[k], at, want);
}

void rule_lost_reads(struct check *check)
{
	char *bytes = check_alloc(check, BIG);
	struct scene scene;
	struct err err = {0};

	if (!scene_make(check, &scene))
		return;
	file_fill(bytes, BIG, 77);
	MUST(check, !file_put(check, scene.session, scene.file, 0600, bytes, BIG, &err), "file_write " OK_RC(err));
	for (size_t i = 0; i < LOST_COUNT(reads) && !check_failed(check); i++)
		if (!(reads[i].capability & ~check->kit->capabilities))
			read_with(check, &reads[i], &scene);
	fault_disarm();
}

/* ---- writes ---- */

static const struct misfortune writes[] = {
	{"whose connection broke before the answer", {.kind = FAULT_LOSE}, false},
	{"whose answer was lost", {.kind = FAULT_LOSE_LATE}, false},
	{"that took effect and was answered with 500", {.kind = FAULT_AFTER, .status = 500, .body = LOST_HTML}, false},
	{"that was answered with 500", {.kind = FAULT_ANSWER, .status = 500, .body = LOST_HTML}, false},
	{"that was answered by a stranger's 404", {.kind = FAULT_ANSWER, .status = 404, .body = LOST_HTML}, false},
	{"that was redirected",
	 {.kind = FAULT_ANSWER, .status = 307, .body = LOST_HTML, .location = FAULT_TRAP "elsewhere"},
	 false},
	{"whose connection was refused", {.kind = FAULT_REFUSE}, false},
};

/* Puts "old", then "newer" with the misfortune; what is there then is one of the two, and OK means the second. */
static void write_with(struct check *check, struct session *session, const char *path,
		       const struct misfortune *misfortune, bool for_good)
{
	struct fault fault = misfortune->fault;
	struct buf *got = check_buf(check);
	struct err err = {0};
	bool is_old, is_new;
	int rc;

	MUST(check, !file_put(check, session, path, 0600, "old", 3, &err), "file_write " OK_RC(err));
	fault.at = for_good ? 0 : 1;
	fault_arm(&fault);
	rc = file_put(check, session, path, 0600, "newer", 5, &err);
	fault_disarm();
	if (!lost_said(check, rc, &err, "file_write"))
		return;
	MUST(check, !file_get(check, session, path, 0, BERTH_SIZE_UNKNOWN, got, &err), "file_read " OK_RC(err));
	is_old = got->len == 3 && !memcmp(got->ptr, "old", 3);
	is_new = got->len == 5 && !memcmp(got->ptr, "newer", 5);
	MUST(check, is_old || is_new, "a write %s leaves a file that is neither the old nor the new one",
	     misfortune->words);
	MUST(check, rc || is_new, "a write %s answers OK, and the old file is there", misfortune->words);
	MUST(check, rc != ERR_NOT_FOUND && rc != ERR_SESSION_GONE, "a write %s says %s of a living session",
	     misfortune->words, kit_code(rc));
}

void rule_lost_writes(struct check *check)
{
	struct session *session = session_shared(check);
	const char *path = file_dir(check);

	for (size_t k = 0; session && k < LOST_COUNT(writes) && !check_failed(check); k++)
		for (int for_good = 0; for_good < 2 && !check_failed(check); for_good++)
			write_with(check, session, path, &writes[k], for_good);
	fault_disarm();
}
