/* SPDX-License-Identifier: Apache-2.0 */
/* What is removed by time: records with all that belongs to them, and events; all of it, however much there is. */
#include "setup.h"

#include <stdio.h>
#include <unistd.h>

#include "core/failpoint.h"

static struct host host;

static bool row_is_gone(void *arg)
{
	return !host_has_row(&host, STORE_EXECUTION, arg);
}

static void records_live_as_long_as_their_retention(void **state)
{
	struct execution_create in = host_request("t", "head -c 100000 /dev/zero; echo small >&2");
	char id[IDENT_ID_MAX + 1], open[IDENT_ID_MAX + 1], again[IDENT_ID_MAX + 1], key[RECORD_OUTPUT_KEY_MAX];
	bool replayed;
	uint64_t size;

	(void)state;
	host_make(&host, "process");
	host.conf.exec_retention_ms = 500;
	host_up(&host);
	host_start(&host, "t", "sleep 2; exit 8", open);
	in.idempotency_key = "k";
	assert_int_equal(host_create(&host, &in, id), 0);
	host_finish(&host, id);
	record_output_key(id, 1, 2, key);
	assert_true(host_has_row(&host, STORE_OBJECT, key));
	host_wait(&host, row_is_gone, id);
	assert_false(host_has_row(&host, STORE_OBJECT, key));
	assert_false(host_has_row(&host, STORE_COMMAND, id));
	assert_false(host_has_row(&host, STORE_EXECUTION_INDEX, id));
	record_output_key(id, 1, 1, key);
	assert_int_equal(blob_size(host.blobs, key, &size, NULL), ERR_NOT_FOUND);
	host_expect(&host, open, "status", "running"); /* older, but open */
	assert_int_equal(execution_create(host.e, &in, again, &replayed, NULL), 0);
	assert_false(replayed);
	host_finish(&host, open);
	host_expect(&host, open, "result.exit_code", "8");
	host_down(&host, 0);
	host_end(&host);
}

/* In the place of those before. The variable is read once, the file at each hit. */
static void failpoints(const char *lines)
{
	char path[96];
	FILE *file;

	snprintf(path, sizeof(path), "%s/failpoints", host.dir);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(lines, file);
	fclose(file);
	assert_int_equal(setenv("BERTH_FAILPOINTS", path, 1), 0);
	assert_int_equal(failpoint_init(NULL), 0);
}

static bool is_there(void *arg)
{
	return access(arg, F_OK) == 0;
}

static int due_step(struct txn *txn, void *arg, struct err *err)
{
	struct store_row row;
	int rc = txn_get(txn, STORE_EXECUTION, arg, &row, err);

	row.due_ms = 1;
	return rc ? rc : txn_put(txn, STORE_EXECUTION, &row, err);
}

/* The host died between the two, and to the next one the session is lost: the record names no output. */
static void an_output_whose_end_was_not_written_goes_with_the_record(void **state)
{
	char id[IDENT_ID_MAX + 1], folder[192];

	(void)state;
	host_make(&host, "process");
	failpoints("exec.terminal.before error\n");
	host_up(&host);
	host_start(&host, "t", "head -c 1000000 /dev/zero", id);
	snprintf(folder, sizeof(folder), "%s/objects/executions/%s", host.objects, id);
	host_wait(&host, is_there, folder);
	host_crash(&host);
	failpoints("");
	host_faults(&host, "reattach nth=1 vanish\n");
	host_up(&host);
	host_finish(&host, id);
	host_expect(&host, id, "reason", "session_lost");
	assert_int_equal(access(folder, F_OK), 0);
	assert_int_equal(store_update(host.store, due_step, id, NULL), 0);
	host_wait(&host, row_is_gone, id);
	assert_int_equal(access(folder, F_OK), -1);
	host_down(&host, 0);
	host_end(&host);
	failpoint_active = false;
}

/* Those of a command that a second process brought to its end, and what the first one had stored of it. */
static void outputs_of_every_attempt_go_with_the_record(void **state)
{
	char id[IDENT_ID_MAX + 1], folder[192], path[256], first[RECORD_OUTPUT_KEY_MAX], small[RECORD_OUTPUT_KEY_MAX];
	uint64_t size;

	(void)state;
	host_make(&host, "process");
	failpoints("exec.terminal.before error\n");
	host_up(&host);
	host_start(&host, "t", "head -c 1000000 /dev/zero; echo small >&2; exit 5", id);
	snprintf(folder, sizeof(folder), "%s/objects/executions/%s", host.objects, id);
	host_wait(&host, is_there, folder);
	host_crash(&host);
	failpoints("");
	host_up(&host);
	host_finish(&host, id);
	host_expect(&host, id, "result.exit_code", "5");
	host_expect(&host, id, "attempt", "2");
	record_output_key(id, 1, 1, first);
	assert_int_equal(blob_size(host.blobs, first, &size, NULL), 0);
	snprintf(path, sizeof(path), "executions/%s/2/stdout", id);
	host_expect(&host, id, "result.stdout_ref", path);
	assert_int_equal(blob_size(host.blobs, path, &size, NULL), 0);
	record_output_key(id, 2, 2, small);
	host_expect(&host, id, "result.stderr_ref", small);
	assert_true(host_has_row(&host, STORE_OBJECT, small));
	host_expect_output(&host, id, 2, "small\n");
	assert_int_equal(store_update(host.store, due_step, id, NULL), 0);
	host_wait(&host, row_is_gone, id);
	assert_int_equal(access(folder, F_OK), -1);
	assert_false(host_has_row(&host, STORE_OBJECT, small));
	host_down(&host, 0);
	host_end(&host);
	failpoint_active = false;
}

/* More of each than one round removes. */
#define BACKLOG 4500
#define BACKLOG_EVENTS 41000
#define BACKLOG_STEP 500

struct backlog {
	const char *id; /* of the record that is copied */
	unsigned at;
	size_t rows; /* seen */
};

static int copy_record(struct txn *txn, const struct store_row *from, const char *id, unsigned number, struct err *err)
{
	char key[IDENT_ID_MAX + 1], *doc = arena_strndup(txn_arena(txn), from->doc, from->doc_len);
	struct store_row row = *from;

	/* Ids end in digits of base 32, of which 0 to 9 are some. */
	snprintf(key, sizeof(key), "%.*s%06u", (int)strlen(id) - 6, id, number);
	for (char *at = doc; at && (at = strstr(at, id));)
		memcpy(at, key, strlen(key));
	row.key = key;
	row.doc = doc;
	row.due_ms = 1;
	return doc ? txn_put(txn, STORE_EXECUTION, &row, err) : ERR_NOMEM;
}

static int backlog_step(struct txn *txn, void *arg, struct err *err)
{
	struct backlog *backlog = arg;
	struct store_row row;
	int rc = txn_get(txn, STORE_EXECUTION, backlog->id, &row, err);

	for (unsigned i = 0; rc == 0 && backlog->at < BACKLOG && i < BACKLOG_STEP; i++)
		rc = copy_record(txn, &row, backlog->id, backlog->at + i, err);
	for (unsigned i = 0; rc == 0 && i < BACKLOG_STEP; i++)
		rc = txn_append(txn, STREAM_EVENTS, backlog->id, "{}", 2, err);
	return rc;
}

static bool count_row(const struct store_row *row, void *arg)
{
	(void)row;
	((struct backlog *)arg)->rows++;
	return true;
}

static int count_step(struct txn *txn, void *arg, struct err *err)
{
	struct backlog *backlog = arg;

	backlog->rows = 0;
	return txn_scan_due(txn, STORE_EXECUTION, INT64_MAX, SIZE_MAX, count_row, backlog, err);
}

static bool only_that_is_left(void *arg)
{
	struct backlog *backlog = arg;

	return store_view(host.store, count_step, backlog, NULL) == 0 && backlog->rows == 1 &&
	       host_stream(&host, STREAM_EVENTS) == 0;
}

/* One round at the start, and the next in an hour: what a round leaves over has to follow at once. */
static void a_backlog_is_removed_round_after_round(void **state)
{
	struct backlog backlog = {0};
	char id[IDENT_ID_MAX + 1];

	(void)state;
	host_make(&host, "process");
	host.conf.gc_interval_ms = 3600000;
	host_up(&host);
	host_start(&host, "t", "true", id);
	host_finish(&host, id);
	backlog.id = id;
	for (; backlog.at < BACKLOG_EVENTS; backlog.at += BACKLOG_STEP)
		assert_int_equal(store_update(host.store, backlog_step, &backlog, NULL), 0);
	assert_int_equal(store_view(host.store, count_step, &backlog, NULL), 0);
	assert_int_equal(backlog.rows, BACKLOG + 1);
	host_down(&host, 0);
	host.conf.exec_retention_ms = 1;
	host_up(&host);
	host_wait(&host, only_that_is_left, &backlog);
	host_down(&host, 0);
	host_end(&host);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_live_as_long_as_their_retention),
		cmocka_unit_test(an_output_whose_end_was_not_written_goes_with_the_record),
		cmocka_unit_test(outputs_of_every_attempt_go_with_the_record),
		cmocka_unit_test(a_backlog_is_removed_round_after_round),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
