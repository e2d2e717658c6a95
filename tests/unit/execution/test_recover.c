/* SPDX-License-Identifier: Apache-2.0 */
/* What a new process makes of what the former one left; garbage and corrupt rows; expiry. */
#include "setup.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/limits.h"
#include "execution/execution_private.h"
#include "obs/metrics.h"

static struct host host;

/* A file that a command makes in the host's folder. */
static bool outside(void *arg)
{
	return access(arg, F_OK) == 0;
}

static void start_counted(const char *task, const char *more, char id[IDENT_ID_MAX + 1], char path[128])
{
	char body[512];

	snprintf(path, 128, "%s/started-%s", host.dir, task);
	snprintf(body, sizeof(body), "echo x >> ran; touch %s; %s", path, more);
	host_start(&host, task, body, id);
	host_wait(&host, outside, path);
}

/* Q3 on one host: the command goes on without its host and is found again, from its first byte. */
static void a_running_command_survives_a_crash(void **state)
{
	char id[IDENT_ID_MAX + 1], next[IDENT_ID_MAX + 1], kinds[256], path[128], expected[512] = "";

	(void)state;
	host_run(&host, "t", "true", id);
	start_counted("t", "i=0; while [ $i -lt 30 ]; do echo $i; i=$((i+1)); sleep 0.02; done; exit 9", id, path);
	host_crash(&host);
	host_up(&host);
	host_finish(&host, id);
	host_expect(&host, id, "status", "completed");
	host_expect(&host, id, "result.exit_code", "9");
	host_expect(&host, id, "attempt", "2");
	for (unsigned i = 0; i < 30; i++)
		snprintf(expected + strlen(expected), sizeof(expected) - strlen(expected), "%u\n", i);
	host_expect_output(&host, id, 1, expected);
	host_kinds(&host, id, kinds, sizeof(kinds));
	assert_string_equal(kinds, "requested claimed started claimed completed");
	host_check_history(&host, id);
	host_run(&host, "t", "cat ran", next);
	host_expect_output(&host, next, 1, "x\n");
	assert_int_equal(host_sessions(&host), 1);
}

static void a_stop_leaves_running_commands_running(void **state)
{
	char id[IDENT_ID_MAX + 1], next[IDENT_ID_MAX + 1], path[128];

	(void)state;
	host_run(&host, "t", "true", id);
	start_counted("t", "sleep 0.5; echo end; exit 4", id, path);
	host_down(&host, 0);
	host_up(&host);
	host_finish(&host, id);
	host_expect(&host, id, "result.exit_code", "4");
	host_expect_output(&host, id, 1, "end\n");
	host_run(&host, "t", "cat ran", next);
	host_expect_output(&host, next, 1, "x\n");
}

static void a_stop_with_time_lets_them_end(void **state)
{
	char id[IDENT_ID_MAX + 1], path[128];

	(void)state;
	host_run(&host, "t", "true", id);
	start_counted("t", "sleep 0.2; exit 4", id, path);
	host_down(&host, 10000);
	host_up(&host);
	host_expect(&host, id, "result.exit_code", "4");
	host_expect(&host, id, "attempt", "1");
}

static void a_command_that_ended_unseen_is_found(void **state)
{
	char id[IDENT_ID_MAX + 1], path[128], late[128], more[256];

	(void)state;
	host_run(&host, "t", "true", id);
	snprintf(late, sizeof(late), "%s/late", host.dir);
	snprintf(more, sizeof(more), "sleep 0.2; echo end; (sleep 0.1; touch %s) & exit 6", late);
	start_counted("t", more, id, path);
	host_crash(&host);
	host_faults(&host, "reattach nth=1 code=UNAVAILABLE\n"); /* and the first question fails */
	host_up(&host);
	host_finish(&host, id);
	host_expect(&host, id, "result.exit_code", "6");
	host_expect_output(&host, id, 1, "end\n");
	host_check_history(&host, id);
}

static void a_session_lost_meanwhile_is_told(void **state)
{
	char id[IDENT_ID_MAX + 1], path[128], *took;

	(void)state;
	host_run(&host, "t", "true", id);
	start_counted("t", "sleep 1000", id, path);
	host_crash(&host);
	host_faults(&host, "reattach nth=1 vanish\n");
	host_up(&host);
	host_finish(&host, id);
	host_expect(&host, id, "status", "failed");
	host_expect(&host, id, "reason", "session_lost");
	took = host_get(&host, id,
			"result.execution_time_ms"); /* nobody could tell how long, so it is until it was missed */
	assert_true(strtol(took, NULL, 10) > 0);
	free(took);
	host_check_history(&host, id);
	host_faults(&host, "");
	host_run(&host, "t", "echo next", id);
	host_expect_output(&host, id, 1, "next\n");
}

/* Proven not to have started: run under the next attempt, once. */
static void a_command_that_never_started_runs_now(void **state)
{
	char id[IDENT_ID_MAX + 1], next[IDENT_ID_MAX + 1], kinds[256];

	(void)state;
	host_run(&host, "t", "true", id);
	host_faults(&host, "execute hang\n");
	host_start(&host, "t", "echo x >> ran; echo out", id);
	host_until(&host, id, "running");
	host_crash(&host);
	host_faults(&host, "");
	host_up(&host);
	host_finish(&host, id);
	host_expect(&host, id, "result.exit_code", "0");
	host_expect_output(&host, id, 1, "out\n");
	host_kinds(&host, id, kinds, sizeof(kinds));
	assert_string_equal(kinds, "requested claimed started claimed started completed");
	host_check_history(&host, id);
	host_run(&host, "t", "cat ran", next);
	host_expect_output(&host, next, 1, "x\n");
}

static void what_waited_is_run_after_a_crash(void **state)
{
	char claimed[IDENT_ID_MAX + 1], queued[20][IDENT_ID_MAX + 1];

	(void)state;
	host_faults(&host, "await_ready hang\n");
	host_start(&host, "t", "echo first", claimed);
	host_until(&host, claimed, "claimed");
	for (unsigned i = 0; i < 20; i++)
		host_start(&host, "t", "echo x", queued[i]);
	host_crash(&host);
	host_faults(&host, "");
	host_up(&host);
	host_finish(&host, claimed);
	host_expect_output(&host, claimed, 1, "first\n");
	for (unsigned i = 0; i < 20; i++) {
		host_finish(&host, queued[i]);
		host_expect(&host, queued[i], "status", "completed");
		host_check_history(&host, queued[i]);
	}
	host_check_history(&host, claimed);
	assert_int_equal(host_sessions(&host), 1);
}

static void a_cancel_survives_a_crash(void **state)
{
	char running[IDENT_ID_MAX + 1], id[IDENT_ID_MAX + 1], path[128];
	bool done;

	(void)state;
	host_run(&host, "t", "true", id);
	start_counted("t", "sleep 1000", running, path);
	host_faults(&host, "reattach from=1 count=1000000 code=UNAVAILABLE\n");
	host_crash(&host);
	host_up(&host);
	assert_int_equal(execution_cancel(host.e, running, "task_deleted", &done, NULL), 0);
	assert_false(done);
	host_crash(&host);
	host_faults(&host, "");
	host_up(&host);
	host_finish(&host, running);
	host_expect(&host, running, "status", "cancelled");
	host_expect(&host, running, "reason", "task_deleted");
	host_expect(&host, running, "ending.kind", "cancelled");
	host_check_history(&host, running);
	assert_int_equal(host_sessions(&host), 1);
}

struct wanted {
	const char *id;
	char attempt[2];
};

static bool has_attempt(void *arg)
{
	const struct wanted *wanted = arg;
	char *attempt = host_get(&host, wanted->id, "attempt");
	bool same = strcmp(attempt, wanted->attempt) == 0;

	free(attempt);
	return same;
}

static void runners_that_die_again_and_again_end_in_a_dead_letter(void **state)
{
	char id[IDENT_ID_MAX + 1];
	struct wanted wanted = {.id = id, .attempt = "1"};
	unsigned not_run = metric_place(METRIC_DIM_ENDING, "not_run");
	uint64_t ended = metric_value(METRIC_EXEC_ENDED, not_run, 0);
	uint64_t letters = metric_value(METRIC_DEAD_LETTERS, 0, 0);

	(void)state;
	host_faults(&host, "await_ready hang\n");
	host_start(&host, "t", "echo first", id);
	for (int i = 0; i < 5; i++) {
		wanted.attempt[0] = (char)('1' + i);
		host_wait(&host, has_attempt, &wanted);
		host_crash(&host);
		host_up(&host);
	}
	host_finish(&host, id);
	host_expect(&host, id, "status", "failed");
	host_expect(&host, id, "reason", "max_deliveries");
	host_check_history(&host, id);
	assert_int_equal(metric_value(METRIC_EXEC_ENDED, not_run, 0), ended + 1);
	assert_int_equal(metric_value(METRIC_DEAD_LETTERS, 0, 0), letters + 1);
	assert_int_equal(host_stream(&host, STREAM_DEAD), 1);
	assert_int_equal(host_stream(&host, STREAM_REQUESTS), 0);
	host_faults(&host, "");
}

/* ---- garbage ---- */

struct append {
	const char *doc;
	size_t len;
};

static int append_step(struct txn *txn, void *arg, struct err *err)
{
	const struct append *in = arg;

	return txn_append(txn, STREAM_REQUESTS, "garbage", in->doc, in->len, err);
}

static void append(const char *doc, size_t len)
{
	struct append in = {doc, len};

	assert_int_equal(store_update(host.store, append_step, &in, NULL), 0);
}

#define HEAD "{\"specversion\":\"1.0\",\"type\":\"com.agentarea.sandbox.execution.requested\",\"data\":"

static const char *const garbage[] = {
	"",
	"not json",
	"{}",
	"[]",
	HEAD "{}}",
	HEAD "{\"execution_id\":\"x\"}}",
	HEAD "{\"execution_id\":\"sexec_000000000000000000000000\"}}",
	"{\"specversion\":\"9.0\",\"type\":\"com.agentarea.sandbox.execution.requested\"}",
	"{\"specversion\":\"1.0\",\"type\":\"other\"}",
};
#define GARBAGE (sizeof(garbage) / sizeof(garbage[0]))

static void put_garbage(void)
{
	static char large[1024 * 1024];

	for (size_t i = 0; i < GARBAGE; i++)
		append(garbage[i], strlen(garbage[i]));
	memset(large, 'x', sizeof(large));
	append(large, sizeof(large));
}

static bool all_buried(void *arg)
{
	return host_stream(&host, STREAM_DEAD) == *(size_t *)arg && host_stream(&host, STREAM_REQUESTS) == 0;
}

/* Q4 */
static void garbage_becomes_dead_letters(void **state)
{
	char id[IDENT_ID_MAX + 1];
	size_t count = GARBAGE + 1;

	(void)state;
	host_run(&host, "t", "true", id);
	put_garbage();
	host_run(&host, "t", "echo moves", id);
	host_expect_output(&host, id, 1, "moves\n");
	host_wait(&host, all_buried, &count);
	put_garbage();
	host_down(&host, 0);
	host_up(&host);
	count *= 2;
	host_wait(&host, all_buried, &count);
	host_run(&host, "t", "true", id);
}

/* An open execution that this process does not know, as another one would leave it, and the letter that asks for it. */
struct orphan {
	const char *from; /* a queued one, of which it is a copy */
	const char *id;
};

static int copy_row(struct txn *txn, enum store_table table, const struct orphan *in, struct err *err)
{
	struct store_row row;
	int rc = txn_get(txn, table, in->from, &row, err);
	char doc[8192], *at;

	if (rc || !row.doc || row.doc_len >= sizeof(doc))
		return rc ? rc : ERR_NOT_FOUND;
	memcpy(doc, row.doc, row.doc_len);
	doc[row.doc_len] = '\0';
	while ((at = strstr(doc, in->from)) != NULL)
		memcpy(at, in->id, strlen(in->id));
	row.key = in->id;
	row.doc = doc;
	return txn_put(txn, table, &row, err);
}

static int orphan_step(struct txn *txn, void *arg, struct err *err)
{
	const struct orphan *in = arg;
	char letter[512];
	int rc = copy_row(txn, STORE_EXECUTION, in, err);

	if (rc == 0)
		rc = copy_row(txn, STORE_COMMAND, in, err);
	snprintf(letter, sizeof(letter),
		 "{\"reason\":\"test\",\"subject\":\"%s\",\"seq\":1,\"size\":1,\"event\":\"{\\\"specversion\\\":\\\"1."
		 "0\\\","
		 "\\\"type\\\":\\\"com.agentarea.sandbox.execution.requested\\\",\\\"data\\\":{\\\"execution_id\\\":"
		 "\\\"%s\\\"}}\"}",
		 in->id, in->id);
	return rc ? rc : txn_append(txn, STREAM_DEAD, in->id, letter, strlen(letter), err);
}

static void a_requeued_letter_is_read_at_once(void **state)
{
	char first[IDENT_ID_MAX + 1], id[IDENT_ID_MAX + 1], copy[IDENT_ID_MAX + 1], path[128], more[256];
	struct orphan orphan = {.from = id, .id = copy};
	unsigned long long seq = 0;
	struct err err = {0};
	struct buf buf;
	size_t count;
	uint64_t last;

	(void)state;
	host.conf.gc_interval_ms = 3600000; /* no round comes by itself */
	host.conf.task_concurrency = 1;
	host_up(&host);
	snprintf(more, sizeof(more), "while [ ! -e %s/go ]; do sleep 0.02; done", host.dir);
	start_counted("t", more, first, path);
	host_start(&host, "t", "echo x >> ran", id);
	snprintf(copy, sizeof(copy), "%s", id);
	copy[strlen(copy) - 1] = copy[strlen(copy) - 1] == '0' ? '1' : '0';
	assert_int_equal(store_update(host.store, orphan_step, &orphan, &err), 0);
	buf_init(&buf, 65536);
	assert_int_equal(execution_dead_list(host.e, 0, 0, 10, &buf, &count, &last, &err), 0);
	assert_int_equal(count, 1);
	assert_int_equal(sscanf(buf.ptr, "{\"id\":\"%llu\"", &seq), 1);
	buf_fini(&buf);
	assert_int_equal(execution_dead_requeue(host.e, seq, &err), 0);
	snprintf(more, sizeof(more), "touch %s/go", host.dir);
	host_run(&host, "other", more, first);
	host_finish(&host, id);
	host_finish(&host, copy);
	host_expect(&host, copy, "status", "completed");
	assert_int_equal(host_stream(&host, STREAM_DEAD), 0);
	host_run(&host, "t", "cat ran", id);
	host_expect_output(&host, id, 1, "x\nx\nx\n");
}

struct put {
	enum store_table table;
	const char *key, *doc;
	bool delete;
};

static int put_step(struct txn *txn, void *arg, struct err *err)
{
	const struct put *put = arg;
	struct store_row row;
	int rc = txn_get(txn, put->table, put->key, &row, err);

	if (rc)
		return rc;
	if (put->delete)
		return txn_ack_subject(txn, STREAM_REQUESTS, put->key, err);
	row.doc = put->doc;
	row.doc_len = strlen(put->doc);
	return txn_put(txn, put->table, &row, err);
}

static void put(const struct put *put)
{
	assert_int_equal(store_update(host.store, put_step, (void *)(uintptr_t)put, NULL), 0);
}

/* It is named, kept, and in nobody's way: neither at the start nor in lists nor in the sweep. */
static void a_corrupt_record_leaves_the_others_alone(void **state)
{
	char good[IDENT_ID_MAX + 1], bad[IDENT_ID_MAX + 1], waits[IDENT_ID_MAX + 1], *next = NULL;
	struct execution_head head;
	struct err err = {0};
	struct buf buf;
	size_t count = 1;

	(void)state;
	host_run(&host, "t", "echo good", good);
	host_faults(&host, "await_ready hang\n");
	host_start(&host, "u", "echo bad", bad);
	host_until(&host, bad, "claimed");
	host_start(&host, "u", "echo waits", waits);
	put(&(struct put){.table = STORE_EXECUTION, .key = bad, .doc = "{\"id\":\"oops\""});
	host_crash(&host);
	host_faults(&host, "");
	host_up(&host);
	assert_int_equal(execution_head(host.e, bad, &head, &err), ERR_CORRUPT);
	assert_non_null(strstr(err.msg, bad));
	host_finish(&host, waits);
	host_expect_output(&host, waits, 1, "waits\n");
	host_wait(&host, all_buried, &count);
	buf_init(&buf, 1 << 20);
	assert_int_equal(execution_list(host.e, "ws", NULL, NULL, NULL, 0, &buf, &count, &next, NULL), 0);
	assert_int_equal(count, 2);
	assert_non_null(strstr(buf.ptr, good));
	buf_fini(&buf);
}

#define CLAIMS 20

static void claim_id(unsigned i, char ret[IDENT_ID_MAX + 1])
{
	snprintf(ret, IDENT_ID_MAX + 1, "exec_0000000000000000000000%04u", i);
}

static void *bury_all(void *arg)
{
	char id[IDENT_ID_MAX + 1];

	(void)arg;
	for (unsigned i = 0; i < CLAIMS; i++) {
		claim_id(i, id);
		if (recover_bury_claim(host.e, id, NULL) != 0)
			return (void *)(uintptr_t)1;
	}
	return NULL;
}

/* Several see the same ended claims at once, as hosts of a fleet do, and some see them when they are gone. */
static void a_claim_without_a_record_is_buried_once(void **state)
{
	char id[IDENT_ID_MAX + 1], good[IDENT_ID_MAX + 1];
	pthread_t threads[3];

	(void)state;
	host_run(&host, "t", "true", good);
	for (unsigned i = 0; i < CLAIMS; i++) {
		claim_id(i, id);
		put(&(struct put){.table = STORE_CLAIM, .key = id, .doc = "{}"});
	}
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(thread_start(&threads[i], "bury", bury_all, NULL), 0);
	for (size_t i = 0; i < 3; i++) {
		void *failed;

		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	assert_int_equal(host_stream(&host, STREAM_DEAD), CLAIMS);
	for (unsigned i = 0; i < CLAIMS; i++) {
		claim_id(i, id);
		assert_false(host_has_row(&host, STORE_CLAIM, id));
	}
	/* One that has a record is nobody's to bury. */
	assert_int_equal(recover_bury_claim(host.e, good, NULL), 0);
	assert_int_equal(host_stream(&host, STREAM_DEAD), CLAIMS);
}

static bool is_terminal(void *arg)
{
	struct execution_head head;

	return execution_head(host.e, arg, &head, NULL) == 0 && head.terminal;
}

/* An open record whose message is missing is found by the look at the records. */
static void a_lost_message_is_made_up_for(void **state)
{
	char id[IDENT_ID_MAX + 1];

	(void)state;
	host_faults(&host, "await_ready hang\n");
	host_start(&host, "t", "echo found", id);
	host_until(&host, id, "claimed");
	put(&(struct put){.table = STORE_EXECUTION, .key = id, .delete = true});
	assert_int_equal(host_stream(&host, STREAM_REQUESTS), 0);
	host_crash(&host);
	host_faults(&host, "");
	host_up(&host);
	host_wait(&host, is_terminal, id);
	host_expect_output(&host, id, 1, "found\n");
	host_check_history(&host, id);
}

#define ENDED 20001
#define ENDED_STEP 1000

struct planted {
	int64_t from_ms, due_ms;
	size_t first;
};

/* Ended ones, each younger than the one before. */
static int plant_ended(struct txn *txn, void *arg, struct err *err)
{
	static const char doc[] = "{\"status\":\"completed\"}";
	const struct planted *planted = arg;
	int rc = 0;

	for (size_t i = planted->first; rc == 0 && i < planted->first + ENDED_STEP && i < ENDED; i++) {
		char id[IDENT_ID_MAX + 1];

		record_new_id(planted->from_ms + (int64_t)i, id);
		rc = txn_put(txn, STORE_EXECUTION,
			     &(struct store_row){.key = id,
						 .group = "",
						 .due_ms = planted->due_ms,
						 .doc = doc,
						 .doc_len = sizeof(doc) - 1},
			     err);
	}
	return rc;
}

static void plant_waiting(int64_t now_ms, char id[IDENT_ID_MAX + 1])
{
	struct record r = {.id = id,
			   .workspace_id = "ws",
			   .task_id = "t",
			   .status = RECORD_QUEUED,
			   .revision = 1,
			   .command = {.timeout_seconds = 60, .stdout_max_bytes = 1024, .stderr_max_bytes = 1024},
			   .created_ms = now_ms,
			   .updated_ms = now_ms,
			   .queue_expires_ms = now_ms + host.conf.exec_queue_ms};
	struct buf buf;

	record_new_id(now_ms, id);
	buf_init(&buf, LIMIT_ROW);
	r.status_word = record_status_word(r.status);
	assert_int_equal(record_encode(&r, &buf, NULL), 0);
	put(&(struct put){.table = STORE_COMMAND, .key = id, .doc = "echo found"});
	put(&(struct put){.table = STORE_EXECUTION, .key = id, .doc = buf.ptr});
	buf_fini(&buf);
}

/* However many have ended meanwhile, the look for those that only their records tell of reaches the youngest. */
static void one_that_waits_behind_many_that_ended_is_found(void **state)
{
	struct planted planted = {0};
	char id[IDENT_ID_MAX + 1];
	int64_t now;

	(void)state;
	assert_int_equal(store_now(host.store, &now, NULL), 0);
	planted = (struct planted){.from_ms = now - 2 * ENDED, .due_ms = now + host.conf.exec_queue_ms / 2};
	for (; planted.first < ENDED; planted.first += ENDED_STEP)
		assert_int_equal(store_update(host.store, plant_ended, &planted, NULL), 0);
	plant_waiting(now, id);
	assert_int_equal(recover_waiting(host.e, NULL), 0);
	host_finish(&host, id);
	host_expect(&host, id, "status", "completed");
	host_expect_output(&host, id, 1, "found\n");
}

/* ---- time ---- */

static void the_queue_has_a_deadline(void **state)
{
	char running[IDENT_ID_MAX + 1], behind[IDENT_ID_MAX + 1], id[IDENT_ID_MAX + 1];

	(void)state;
	host.conf.task_concurrency = 1;
	host.conf.exec_queue_ms = 300;
	host_up(&host);
	host_run(&host, "t", "true", id);
	host_start(&host, "t", "sleep 1; exit 3", running);
	host_until(&host, running, "running");
	host_start(&host, "t", "touch never", behind);
	host_finish(&host, behind);
	host_expect(&host, behind, "status", "cancelled");
	host_expect(&host, behind, "reason", "queue_expired");
	host_check_history(&host, behind);
	host_finish(&host, running);
	host_expect(&host, running, "result.exit_code", "3");
	host_run(&host, "t", "ls", id);
	host_expect_output(&host, id, 1, "");
}

static void capacity_is_waited_for_and_then_told(void **state)
{
	char id[IDENT_ID_MAX + 1], later[IDENT_ID_MAX + 1];
	struct ident ident = host_request("a", "x").ident;
	char *retry;
	bool gone;

	(void)state;
	host.conf.exec_queue_ms = 1500;
	host.target.max_sessions = 1;
	host_up(&host);
	host_run(&host, "a", "true", id);
	host_start(&host, "b", "echo hi", id);
	host_finish(&host, id);
	host_expect(&host, id, "status", "failed");
	host_expect(&host, id, "reason", "capacity_exhausted");
	retry = host_get(&host, id, "retry_after_ms");
	assert_true(strtol(retry, NULL, 10) > 0);
	free(retry);
	host_check_history(&host, id);
	host.conf.exec_queue_ms = 60000; /* a teardown may take its time */
	host_start(&host, "c", "echo hi", later);
	host_expect(&host, later, "status", "queued"); /* known limits are waited for before the claim */
	assert_int_equal(session_teardown(host.sessions, &ident, true, clock_after_ms(WAIT_MS), &gone, NULL), 0);
	host_finish(&host, later);
	host_expect(&host, later, "status", "completed");
}

/* A run is a moment longer there than its record is open. */
static bool none_runs(void *arg)
{
	struct executions_stat stat;

	(void)arg;
	executions_stat(host.e, &stat);
	return stat.running == 0;
}

static void a_full_queue_is_refused(void **state)
{
	char ids[6][IDENT_ID_MAX + 1], id[IDENT_ID_MAX + 1], gate[96], body[160];
	struct execution_create in;
	unsigned refused = 0;

	(void)state;
	snprintf(gate, sizeof(gate), "%s/gate", host.dir);
	snprintf(body, sizeof(body), "until [ -e %s ]; do sleep 0.02; done", gate);
	in = host_request("t", body);
	host.conf.runner_concurrency = 2;
	host.conf.queue_max = 2;
	host_up(&host);
	host_run(&host, "t", "true", id);
	host_wait(&host, none_runs, NULL);
	for (unsigned i = 0; i < 6; i++)
		refused += host_create(&host, &in, ids[i - refused]) == ERR_QUEUE_FULL;
	assert_int_equal(refused, 2);
	assert_int_equal(mkdir(gate, 0700), 0);
	for (unsigned i = 0; i < 4; i++) {
		host_finish(&host, ids[i]);
		host_expect(&host, ids[i], "status", "completed");
	}
}

/* An object store that is away for a moment, and a store step that fails, only delay the end. */
static void outputs_of_a_crashed_host_are_not_half_there(void **state)
{
	char id[IDENT_ID_MAX + 1], path[128], *out;
	size_t len;

	(void)state;
	host_run(&host, "t", "true", id);
	start_counted("t", "head -c 200000 /dev/zero | tr '\\0' q; sleep 0.3; head -c 200000 /dev/zero | tr '\\0' r",
		      id, path);
	host_crash(&host);
	host_up(&host);
	host_finish(&host, id);
	out = host_output(&host, id, 1, &len);
	assert_int_equal(len, 400000);
	for (size_t i = 0; i < len; i++)
		assert_int_equal(out[i], i < 200000 ? 'q' : 'r');
	free(out);
	host_check_history(&host, id);
}

#define TEST(name) cmocka_unit_test_prestate_setup_teardown(name, host_setup, host_teardown, &host)
#define TEST_OWN(name, setup) cmocka_unit_test_prestate_setup_teardown(name, setup, host_teardown, &host)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_running_command_survives_a_crash),
		TEST(a_stop_leaves_running_commands_running),
		TEST(a_stop_with_time_lets_them_end),
		TEST(a_command_that_ended_unseen_is_found),
		TEST(a_session_lost_meanwhile_is_told),
		TEST(a_command_that_never_started_runs_now),
		TEST(what_waited_is_run_after_a_crash),
		TEST(a_cancel_survives_a_crash),
		TEST(runners_that_die_again_and_again_end_in_a_dead_letter),
		TEST(garbage_becomes_dead_letters),
		TEST(a_corrupt_record_leaves_the_others_alone),
		TEST(a_claim_without_a_record_is_buried_once),
		TEST(a_lost_message_is_made_up_for),
		TEST(outputs_of_a_crashed_host_are_not_half_there),
		TEST_OWN(a_requeued_letter_is_read_at_once, host_setup_made),
		TEST(one_that_waits_behind_many_that_ended_is_found),
		TEST_OWN(the_queue_has_a_deadline, host_setup_made),
		TEST_OWN(capacity_is_waited_for_and_then_told, host_setup_made),
		TEST_OWN(a_full_queue_is_refused, host_setup_made),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
