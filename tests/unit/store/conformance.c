/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of the conformance cases, and those of rows and scans. Numbers and streams are in conformance_streams.c,
 * threads and killed processes in conformance_crash.c. Runs in the test's thread; it must not know which store it
 * tests.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance.h"
#include "conformance_cases.h"
#include "core/limits.h"

struct store *conformance_open(const struct conformance_env *env)
{
	struct store *store = NULL;
	struct err err = {0};
	int rc = env->open(env->arg, &store, &err);

	if (rc != 0)
		fail_msg("open: %s", err.msg);
	return store;
}

struct put_arg {
	enum store_table table;
	struct store_row row;
};

static int put_step(struct txn *txn, void *arg, struct err *err)
{
	const struct put_arg *put = arg;

	return txn_put(txn, put->table, &put->row, err);
}

void conformance_put(struct store *store, enum store_table table, const char *key, const char *group, int64_t due,
		     const char *doc)
{
	struct put_arg put = {table, {.key = key, .group = group, .due_ms = due, .doc = doc, .doc_len = strlen(doc)}};
	struct err err = {0};

	if (store_update(store, put_step, &put, &err) != 0)
		fail_msg("put %s: %s", key, err.msg);
}

char *conformance_get(struct store *store, enum store_table table, const char *key)
{
	struct err err = {0};
	char *doc = NULL;
	size_t len;

	if (store_get(store, table, key, &doc, &len, &err) != 0)
		fail_msg("get %s: %s", key, err.msg);
	return doc;
}

static void assert_doc(struct store *store, enum store_table table, const char *key, const char *doc)
{
	char *found = conformance_get(store, table, key);

	if (doc == NULL)
		assert_null(found);
	else
		assert_string_equal(found != NULL ? found : "(absent)", doc);
	free(found);
}

void conformance_must(struct store *store, store_step step, void *arg)
{
	struct err err = {0};

	if (store_update(store, step, arg, &err) != 0)
		fail_msg("step: %s", err.msg);
}

void conformance_must_view(struct store *store, store_step step, void *arg)
{
	struct err err = {0};

	if (store_view(store, step, arg, &err) != 0)
		fail_msg("view: %s", err.msg);
}

/* ---- atomicity ---- */

struct many_arg {
	int rc; /* what the step returns after its writes */
};

static int write_all_kinds(struct txn *txn, void *arg, struct err *err)
{
	struct many_arg *many = arg;
	int rc = txn_put(txn, STORE_TASK, &(struct store_row){.key = "a", .doc = "1", .doc_len = 1}, err);

	if (rc == 0)
		rc = txn_put(txn, STORE_EXECUTION, &(struct store_row){.key = "b", .doc = "2", .doc_len = 1}, err);
	if (rc == 0)
		rc = txn_delete(txn, STORE_HOST, "old", err);
	if (rc == 0)
		rc = txn_count_add(txn, "sessions", 3, err);
	if (rc == 0)
		rc = txn_append(txn, STREAM_REQUESTS, "a", "{}", 2, err);
	if (rc != 0)
		return rc;
	return many->rc != 0 ? err_set(err, many->rc, "as asked") : 0;
}

struct tally {
	size_t rows, entries;
	int64_t count;
};

static bool tally_row(const struct store_row *row, void *arg)
{
	(void)row;
	((struct tally *)arg)->rows++;
	return true;
}

static bool tally_entry(const struct stream_entry *entry, void *arg)
{
	(void)entry;
	((struct tally *)arg)->entries++;
	return true;
}

static int tally_step(struct txn *txn, void *arg, struct err *err)
{
	static const enum store_table looked_at[] = {STORE_TASK, STORE_EXECUTION, STORE_HOST};
	struct tally *tally = arg;
	int rc = 0;
	size_t i;

	*tally = (struct tally){0};
	for (i = 0; rc == 0 && i < sizeof(looked_at) / sizeof(looked_at[0]); i++)
		rc = txn_scan(txn, looked_at[i], NULL, "", false, SIZE_MAX, tally_row, tally, err);
	if (rc == 0)
		rc = txn_read_stream(txn, STREAM_REQUESTS, 0, SIZE_MAX, tally_entry, tally, err);
	if (rc == 0)
		rc = txn_count_get(txn, "sessions", &tally->count, err);
	return rc;
}

static void test_atomic(const struct conformance_env *env)
{
	struct store *store = conformance_open(env);
	struct many_arg many = {.rc = ERR_CONFLICT};
	struct err err = {0};
	struct tally tally;

	conformance_put(store, STORE_HOST, "old", NULL, 0, "x");
	assert_int_equal(store_update(store, write_all_kinds, &many, &err), ERR_CONFLICT);
	assert_int_equal(err.code, ERR_CONFLICT);
	assert_string_equal(err.msg, "as asked");
	conformance_must_view(store, tally_step, &tally);
	assert_int_equal(tally.rows, 1);
	assert_int_equal(tally.entries, 0);
	assert_int_equal(tally.count, 0);
	many.rc = 0;
	conformance_must(store, write_all_kinds, &many);
	conformance_must_view(store, tally_step, &tally);
	assert_int_equal(tally.rows, 2);
	assert_int_equal(tally.entries, 1);
	assert_int_equal(tally.count, 3);
	assert_doc(store, STORE_HOST, "old", NULL);
	assert_int_equal(store_update(store, write_all_kinds, &(struct many_arg){ERR_CONFLICT}, NULL), ERR_CONFLICT);
	store_close(store);
}

/* ---- a step sees its own writes ---- */

static void expect(struct txn *txn, const char *doc, int64_t due, bool *ret_good)
{
	struct store_row row;

	if (txn_get(txn, STORE_TASK, "k", &row, NULL) != 0 || strcmp(row.key, "k") != 0) {
		*ret_good = false;
		return;
	}
	if (doc == NULL)
		*ret_good &= row.doc == NULL && row.doc_len == 0;
	else
		*ret_good &= row.doc != NULL && strcmp(row.doc, doc) == 0 && row.doc_len == strlen(doc) &&
			     row.due_ms == due;
}

static int own_writes_step(struct txn *txn, void *arg, struct err *err)
{
	char text[8] = "one";
	struct store_row row = {.key = "k", .group = "g", .due_ms = 5, .doc = text, .doc_len = 3};
	bool *good = arg;
	int64_t count = -1;

	*good = true;
	expect(txn, "zero", 0, good);
	txn_put(txn, STORE_TASK, &row, err);
	memset(text, 'x', sizeof(text)); /* the store has its own copy */
	expect(txn, "one", 5, good);
	txn_delete(txn, STORE_TASK, "k", err);
	expect(txn, NULL, 0, good);
	row = (struct store_row){.key = "k", .due_ms = 6, .doc = "two", .doc_len = 3};
	txn_put(txn, STORE_TASK, &row, err);
	expect(txn, "two", 6, good);
	txn_count_add(txn, "c", 2, err);
	txn_count_add(txn, "c", -5, err);
	txn_count_get(txn, "c", &count, err);
	*good &= count == -3;
	return 0;
}

static void test_own_writes(const struct conformance_env *env)
{
	struct store *store = conformance_open(env);
	bool good = false;

	conformance_put(store, STORE_TASK, "k", "g", 0, "zero");
	conformance_must(store, own_writes_step, &good);
	assert_true(good);
	assert_doc(store, STORE_TASK, "k", "two");
	store_close(store);
}

/* ---- scans ---- */

struct list {
	char keys[4096];
	size_t count, stop_after;
};

static bool list_row(const struct store_row *row, void *arg)
{
	struct list *list = arg;
	size_t len = strlen(list->keys);

	snprintf(list->keys + len, sizeof(list->keys) - len, "%s%s", len > 0 ? " " : "", row->key);
	return ++list->count != list->stop_after;
}

struct scan_arg {
	const char *group, *after;
	bool newest_first, due;
	int64_t upto;
	size_t limit;
	struct list list;
};

static int scan_step(struct txn *txn, void *arg, struct err *err)
{
	struct scan_arg *scan = arg;

	scan->list.keys[0] = '\0';
	scan->list.count = 0;
	if (scan->due)
		return txn_scan_due(txn, STORE_TASK, scan->upto, scan->limit, list_row, &scan->list, err);
	return txn_scan(txn, STORE_TASK, scan->group, scan->after, scan->newest_first, scan->limit, list_row,
			&scan->list, err);
}

static void assert_scan(struct store *store, struct scan_arg scan, const char *keys)
{
	if (scan.limit == 0)
		scan.limit = SIZE_MAX;
	conformance_must_view(store, scan_step, &scan);
	assert_string_equal(scan.list.keys, keys);
	conformance_must(store, scan_step, &scan);
	assert_string_equal(scan.list.keys, keys);
}

static int scan_claims(struct txn *txn, void *arg, struct err *err)
{
	return txn_scan(txn, STORE_CLAIM, NULL, "", false, SIZE_MAX, list_row, arg, err);
}

static int due_size(struct txn *txn, void *arg, struct err *err)
{
	return txn_due_size(txn, STORE_TASK, arg, err);
}

static void assert_dues(struct store *store, int64_t size)
{
	int64_t found = -1;

	conformance_must_view(store, due_size, &found);
	assert_int_equal(found, size);
}

/* Only the tables that say so have an index of all their rows. */
static void test_scan_whole(const struct conformance_env *env)
{
	struct store *store = conformance_open(env);
	struct list list = {0};
	struct err err = {0};

	assert_int_equal(store_view(store, scan_claims, &list, &err), ERR_INTERNAL);
	assert_non_null(strstr(err.msg, "claims"));
	store_close(store);
}

static void test_scan(const struct conformance_env *env)
{
	static const char *const rows[][2] = {{"b", "g"}, {"d", ""}, {"a", "g"}, {"c", "h"}, {"B", "g"}, {"e", "g"}};
	struct store *store = conformance_open(env);
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		conformance_put(store, STORE_TASK, rows[i][0], rows[i][1], 0, "x");
	assert_scan(store, (struct scan_arg){0}, "B a b c d e");
	assert_scan(store, (struct scan_arg){.after = "b"}, "c d e");
	assert_scan(store, (struct scan_arg){.after = "bb", .limit = 2}, "c d");
	assert_scan(store, (struct scan_arg){.newest_first = true, .limit = 4}, "e d c b");
	assert_scan(store, (struct scan_arg){.newest_first = true, .after = "b"}, "a B");
	assert_scan(store, (struct scan_arg){.group = "g"}, "B a b e");
	assert_scan(store, (struct scan_arg){.group = "g", .after = "a", .limit = 1}, "b");
	assert_scan(store, (struct scan_arg){.group = "g", .newest_first = true}, "e b a B");
	assert_scan(store, (struct scan_arg){.group = "g", .newest_first = true, .after = "d"}, "b a B");
	assert_scan(store, (struct scan_arg){.group = ""}, "");
	assert_scan(store, (struct scan_arg){.group = "none"}, "");
	assert_scan(store, (struct scan_arg){.list.stop_after = 2}, "B a");
	/* A row that changes its group is found under the new one only. */
	conformance_put(store, STORE_TASK, "a", "h", 0, "x");
	conformance_put(store, STORE_TASK, "b", NULL, 0, "x");
	assert_scan(store, (struct scan_arg){.group = "g"}, "B e");
	assert_scan(store, (struct scan_arg){.group = "h"}, "a c");
	store_close(store);
}

static void test_due(const struct conformance_env *env)
{
	struct store *store = conformance_open(env);

	assert_dues(store, 0);
	conformance_put(store, STORE_TASK, "a", NULL, 30, "x");
	conformance_put(store, STORE_TASK, "b", NULL, 10, "x");
	conformance_put(store, STORE_TASK, "c", NULL, 0, "x");
	conformance_put(store, STORE_TASK, "d", NULL, 20, "x");
	conformance_put(store, STORE_TASK, "e", NULL, INT64_MAX, "x");
	assert_dues(store, 4);
	assert_scan(store, (struct scan_arg){.due = true, .upto = 30}, "b d a");
	assert_scan(store, (struct scan_arg){.due = true, .upto = 29}, "b d");
	assert_scan(store, (struct scan_arg){.due = true, .upto = 30, .limit = 1}, "b");
	assert_scan(store, (struct scan_arg){.due = true, .upto = 9}, "");
	assert_scan(store, (struct scan_arg){.due = true, .upto = INT64_MAX, .list.stop_after = 3}, "b d a");
	conformance_put(store, STORE_TASK, "b", NULL, 25, "x");
	conformance_put(store, STORE_TASK, "a", NULL, 0, "x");
	assert_scan(store, (struct scan_arg){.due = true, .upto = 30}, "d b");
	store_close(store);
}

struct nest_arg {
	struct txn *txn;
	size_t pairs;
	int rc;
};

static bool nest_inner(const struct store_row *row, void *arg)
{
	struct nest_arg *nest = arg;
	struct store_row again;

	nest->rc |= txn_get(nest->txn, STORE_TASK, row->key, &again, NULL);
	nest->pairs += again.doc != NULL;
	return true;
}

static bool nest_outer(const struct store_row *row, void *arg)
{
	struct nest_arg *nest = arg;

	(void)row;
	nest->rc |= txn_scan(nest->txn, STORE_TASK, NULL, "", false, 3, nest_inner, nest, NULL);
	return true;
}

static int nest_step(struct txn *txn, void *arg, struct err *err)
{
	struct nest_arg *nest = arg;

	*nest = (struct nest_arg){.txn = txn};
	return txn_scan(txn, STORE_TASK, NULL, "", false, 4, nest_outer, nest, err);
}

static void test_scan_in_scan(const struct conformance_env *env)
{
	struct store *store = conformance_open(env);
	struct nest_arg nest;
	char key[8];
	int i;

	for (i = 0; i < 5; i++) {
		snprintf(key, sizeof(key), "%d", i);
		conformance_put(store, STORE_TASK, key, NULL, 0, "x");
	}
	conformance_must(store, nest_step, &nest);
	assert_int_equal(nest.rc, 0);
	assert_int_equal(nest.pairs, 12);
	conformance_must_view(store, nest_step, &nest);
	assert_int_equal(nest.pairs, 12);
	assert_scan(store, (struct scan_arg){0}, "0 1 2 3 4");
	store_close(store);
}

/* ---- rows of every kind ---- */

static void test_bytes(const struct conformance_env *env)
{
	static const char bytes[] = "\0\1\xff\xfe\0 end";
	static const char *const keys[] = {"a/b", "a b", "a'b", "a\"b", "a%b", "a\nb", "\xc3\xa9", "\xff\xfe", "*",
					   "{x}", "a:b", ";"};
	struct store *store = conformance_open(env);
	struct put_arg put = {.row = {.doc = bytes, .doc_len = sizeof(bytes) - 1}};
	struct err err = {0};
	char *doc = NULL;
	size_t i, len;

	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		put.table = i % 2 ? STORE_OBJECT : STORE_TASK;
		put.row.key = keys[i];
		put.row.group = keys[i];
		conformance_must(store, put_step, &put);
	}
	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		assert_int_equal(store_get(store, i % 2 ? STORE_OBJECT : STORE_TASK, keys[i], &doc, &len, &err), 0);
		assert_int_equal(len, sizeof(bytes) - 1);
		assert_memory_equal(doc, bytes, sizeof(bytes));
		free(doc);
	}
	assert_scan(store, (struct scan_arg){.group = "a'b"}, "a'b");
	store_close(store);
}

static void test_empty_doc(const struct conformance_env *env)
{
	struct store *store = conformance_open(env);
	struct err err = {0};
	char *doc = NULL;
	size_t len = 7;

	conformance_put(store, STORE_TASK, "k", NULL, 0, "");
	conformance_put(store, STORE_OBJECT, "k", NULL, 0, "");
	assert_doc(store, STORE_OBJECT, "k", "");
	assert_int_equal(store_get(store, STORE_TASK, "k", &doc, &len, &err), 0);
	assert_non_null(doc);
	assert_int_equal(len, 0);
	free(doc);
	assert_int_equal(store_get(store, STORE_TASK, "absent", &doc, &len, &err), 0);
	assert_null(doc);
	store_close(store);
}

static void assert_refused(struct store *store, struct store_row row, int code)
{
	struct put_arg put = {STORE_META, row};
	struct err err = {0};

	assert_int_equal(store_update(store, put_step, &put, &err), code);
	assert_string_not_equal(err.msg, "");
}

static void test_limits(const struct conformance_env *env)
{
	struct store *store = conformance_open(env);
	char *big = calloc(1, LIMIT_ROW + 2);
	char *key = calloc(1, 4096);
	struct put_arg put = {STORE_TASK, {.key = "k", .doc = big, .doc_len = LIMIT_ROW}};
	char *doc = NULL;
	size_t len = 0;

	assert_non_null(big);
	assert_non_null(key);
	memset(big, 'b', LIMIT_ROW + 1);
	memset(key, 'k', 4095);
	conformance_must(store, put_step, &put);
	assert_int_equal(store_get(store, STORE_TASK, "k", &doc, &len, NULL), 0);
	assert_int_equal(len, LIMIT_ROW);
	assert_memory_equal(doc, big, LIMIT_ROW);
	free(doc);
	assert_refused(store, (struct store_row){.key = "k", .doc = big, .doc_len = LIMIT_ROW + 1},
		       ERR_PAYLOAD_TOO_LARGE);
	assert_refused(store, (struct store_row){.key = key, .doc = "x", .doc_len = 1}, ERR_INTERNAL);
	assert_refused(store, (struct store_row){.key = "", .doc = "x", .doc_len = 1}, ERR_INTERNAL);
	assert_refused(store, (struct store_row){.key = "k"}, ERR_INTERNAL);
	assert_refused(store, (struct store_row){.key = "k", .due_ms = -1, .doc = "x", .doc_len = 1}, ERR_INTERNAL);
	assert_refused(store, (struct store_row){.key = "store.id", .doc = "x", .doc_len = 1}, ERR_INTERNAL);
	free(key);
	free(big);
	store_close(store);
}

/* ---- reopening, big tables ---- */

static void test_reopen(const struct conformance_env *env)
{
	struct store *store = conformance_open(env);
	char id[33];
	int64_t before, after;

	assert_true(store_is_new(store));
	assert_int_equal(strlen(store_id(store)), 32);
	snprintf(id, sizeof(id), "%s", store_id(store));
	conformance_put(store, STORE_HOST, "h", "g", 9, "doc");
	assert_int_equal(store_now(store, &before, NULL), 0);
	store_close(store);
	store = conformance_open(env);
	assert_false(store_is_new(store));
	assert_string_equal(store_id(store), id);
	assert_doc(store, STORE_HOST, "h", "doc");
	assert_int_equal(store_now(store, &after, NULL), 0);
	assert_true(after >= before);
	assert_true(after < before + 60000);
	assert_true(store_healthy(store, NULL));
	store_close(store);
}

#define MANY 100000
#define PAGE 1000

struct fill_arg {
	int from;
};

static int fill_step(struct txn *txn, void *arg, struct err *err)
{
	int i, from = ((struct fill_arg *)arg)->from, rc = 0;
	char key[16], doc[200];

	for (i = from; rc == 0 && i < from + PAGE; i++) {
		snprintf(key, sizeof(key), "%08d", i);
		snprintf(doc, sizeof(doc), "{\"number\":%d,\"pad\":\"%0150d\"}", i, 0);
		rc = txn_put(txn, STORE_TASK, &(struct store_row){.key = key, .group = "g", .due_ms = i + 1, .doc = doc,
								    .doc_len = strlen(doc)}, err);
	}
	return rc;
}

struct page_arg {
	char after[16];
	size_t rows, most;
	bool sorted;
};

static bool page_row(const struct store_row *row, void *arg)
{
	struct page_arg *page = arg;

	page->sorted &= strcmp(row->key, page->after) > 0;
	snprintf(page->after, sizeof(page->after), "%s", row->key);
	page->rows++;
	return true;
}

static int page_step(struct txn *txn, void *arg, struct err *err)
{
	struct page_arg *page = arg;
	int rc = txn_scan(txn, STORE_TASK, "g", page->after, false, PAGE, page_row, page, err);

	if (arena_used(txn_arena(txn)) > page->most)
		page->most = arena_used(txn_arena(txn));
	return rc;
}

static void test_big_table(const struct conformance_env *env)
{
	struct store *store = conformance_open(env);
	struct page_arg page = {.sorted = true};
	size_t before;
	int i;

	for (i = 0; i < MANY; i += PAGE)
		conformance_must(store, fill_step, &(struct fill_arg){i});
	do {
		before = page.rows;
		conformance_must_view(store, page_step, &page);
	} while (page.rows > before);
	assert_int_equal(page.rows, MANY);
	assert_true(page.sorted);
	assert_true(page.most < LIMIT_MIB);
	assert_scan(store, (struct scan_arg){.due = true, .upto = 3}, "00000000 00000001 00000002");
	store_close(store);
}

static int read_everything(struct txn *txn, void *arg, struct err *err)
{
	struct tally *tally = arg;

	*tally = (struct tally){0};
	txn_scan(txn, STORE_EXECUTION, NULL, "", false, SIZE_MAX, tally_row, tally, err);
	return 0; /* ignores the failure */
}

/* Reading more than a step may hold is an error, even for a step that ignores it; nothing else is harmed. */
static void test_step_memory(const struct conformance_env *env)
{
	struct store *store = conformance_open(env);
	char *big = calloc(1, LIMIT_ROW);
	struct put_arg put = {STORE_EXECUTION, {.doc = big, .doc_len = LIMIT_ROW}};
	struct err err = {0};
	struct tally tally;
	char key[8];
	int i;

	for (i = 0; i < 66; i++) {
		snprintf(key, sizeof(key), "%02d", i);
		put.row.key = key;
		conformance_must(store, put_step, &put);
	}
	assert_int_equal(store_update(store, read_everything, &tally, &err), ERR_NOMEM);
	assert_int_equal(store_view(store, read_everything, &tally, &err), ERR_NOMEM);
	assert_true(tally.rows > 32 && tally.rows < 66);
	conformance_put(store, STORE_TASK, "k", NULL, 0, "fine");
	assert_doc(store, STORE_TASK, "k", "fine");
	free(big);
	store_close(store);
}

const struct conformance_case conformance_cases[] = {
	{"atomic", test_atomic},
	{"own_writes", test_own_writes},
	{"scan", test_scan},
	{"scan_whole", test_scan_whole},
	{"due", test_due},
	{"scan_in_scan", test_scan_in_scan},
	{"bytes", test_bytes},
	{"empty_doc", test_empty_doc},
	{"limits", test_limits},
	{"next", conformance_next},
	{"counters", conformance_counters},
	{"streams", conformance_streams},
	{"trim", conformance_trim},
	{"view_refuses_writes", conformance_view_refuses_writes},
	{"reopen", test_reopen},
	{"big_table", test_big_table},
	{"step_memory", test_step_memory},
	{"failing_steps_in_a_group", conformance_failing_steps},
	{"read_modify_write", conformance_read_modify_write},
	{"view_snapshot", conformance_view_snapshot},
	{"clock", conformance_clock},
	{"kill", conformance_kill},
};
const size_t conformance_count = sizeof(conformance_cases) / sizeof(conformance_cases[0]);
