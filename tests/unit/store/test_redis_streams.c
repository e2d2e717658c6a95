/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The streams as other programs see them, and what other programs do to them: entries of theirs, groups of theirs, a
 * stream or a group that vanishes. Each test has a server of its own.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/log.h"
#include "redis_server.h"

static struct redis_server server;
static struct store *store;

static int setup(void **state)
{
	struct err err = {0};

	(void)state;
	redis_server_start(&server, NULL);
	if (redis_server_open(&server, "t", &store, &err) != 0)
		fail_msg("%s", err.msg);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	store_close(store);
	redis_server_stop(&server);
	return 0;
}

struct work {
	enum store_stream stream;
	const char *append, *subject;
	uint64_t ack;
	const char *ack_subject, *forget;
	int64_t trim_older;
	size_t trimmed;
};

static int work_step(struct txn *txn, void *arg, struct err *err)
{
	struct work *work = arg;
	int rc = 0;

	if (work->append != NULL)
		rc = txn_append(txn, work->stream, work->subject, work->append, strlen(work->append), err);
	if (rc == 0 && work->ack != 0)
		rc = txn_ack(txn, work->stream, work->ack, err);
	if (rc == 0 && work->ack_subject != NULL)
		rc = txn_ack_subject(txn, work->stream, work->ack_subject, err);
	if (rc == 0 && work->forget != NULL)
		rc = txn_forget_subject(txn, work->stream, work->forget, err);
	if (rc == 0 && work->trim_older != 0)
		rc = txn_trim(txn, work->stream, work->trim_older, 100, &work->trimmed, err);
	return rc;
}

static void must(struct work *work)
{
	struct err err = {0};

	if (store_update(store, work_step, work, &err) != 0)
		fail_msg("%s", err.msg);
}

static void append(enum store_stream stream, const char *subject, const char *doc)
{
	must(&(struct work){.stream = stream, .subject = subject, .append = doc});
}

struct seen {
	enum store_stream stream;
	const char *subject;
	char text[1024];
	uint64_t first, last;
};

static bool see(const struct stream_entry *entry, void *arg)
{
	struct seen *seen = arg;
	size_t len = strlen(seen->text);

	seen->first = seen->first == 0 ? entry->seq : seen->first;
	seen->last = entry->seq;
	snprintf(seen->text + len, sizeof(seen->text) - len, "[%s|%s]", entry->subject, entry->doc);
	return true;
}

static int see_step(struct txn *txn, void *arg, struct err *err)
{
	struct seen *seen = arg;

	seen->text[0] = '\0';
	seen->first = 0;
	if (seen->subject != NULL)
		return txn_read_subject(txn, seen->stream, seen->subject, 0, 100, see, seen, err);
	return txn_read_stream(txn, seen->stream, 0, 100, see, seen, err);
}

static struct seen look(enum store_stream stream, const char *subject)
{
	struct seen seen = {.stream = stream, .subject = subject};
	struct err err = {0};

	if (store_view(store, see_step, &seen, &err) != 0)
		fail_msg("%s", err.msg);
	return seen;
}

static int64_t now(void)
{
	int64_t ms = 0;

	assert_int_equal(store_now(store, &ms, NULL), 0);
	return ms;
}

/* An entry has the one field `event`; a subject that the document does not say gets a second one. */
static void test_fields(void **state)
{
	(void)state;
	append(STREAM_EVENTS, "a", "{\"subject\":\"a\",\"n\":1}");
	append(STREAM_EVENTS, "a", "{\"n\":2}");
	append(STREAM_EVENTS, "a", "not json");
	redis_server_must(&server, "EVAL return(#redis.call('XRANGE','t.events','-','+')[1][2]) 0", "2");
	redis_server_must(&server, "EVAL return(#redis.call('XRANGE','t.events','-','+')[2][2]) 0", "4");
	assert_string_equal(look(STREAM_EVENTS, NULL).text, "[a|{\"subject\":\"a\",\"n\":1}][a|{\"n\":2}][a|not json]");
	assert_string_equal(look(STREAM_EVENTS, "a").text, look(STREAM_EVENTS, NULL).text);
}

/* Whether the document says it is decided by the document as Redis' own parser reads it. */
static void test_named_subjects(void **state)
{
	static const struct {
		const char *subject, *doc, *fields;
	} rows[] = {
		{"a", "{\"n\":1,\"subject\":\"a\",\"more\":{\"subjects\":[]}}", "2"},
		{"a", "{\"data\":{\"subject\":\"a\"}}", "4"},
		{"a", "{\"data\":[1],\"subject\":\"a\"}", "2"},
		{"a", "{\"subject\":\"b\"}", "4"},
		{"a", "{\"subject\":\"ab\"}", "4"},
		{"a", "{\"subject\":\"a\",\"subject\":\"b\"}", "4"},
		{"a", "{\"subject\":\"b\",\"subject\":\"a\"}", "4"}, /* not believed: said twice */
		{"a", "{ \"subject\" : \"a\" }", "2"},
		{"a", "{\"text\":\"\\\"subject\\\":\\\"a\"}", "4"},
		{"a", "[{\"subject\":\"a\"}]", "4"},
		{"a", "{\"subject\":\"\\u0061\"}", "2"},
		{"\\u0061", "{\"subject\":\"\\u0061\"}", "4"},
		{"a", "{\"subject\":null}", "4"},
	};
	char command[128];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		append(STREAM_EVENTS, rows[i].subject, rows[i].doc);
		snprintf(command, sizeof(command), "EVAL return(#redis.call('XRANGE','t.events','-','+')[%zu][2]) 0", i + 1);
		redis_server_must(&server, command, rows[i].fields);
		snprintf(command, sizeof(command), "[%s|%s]", rows[i].subject, rows[i].doc);
		if (!strstr(look(STREAM_EVENTS, rows[i].subject).text, command))
			fail_msg("%s is not among those of %s", rows[i].doc, rows[i].subject);
	}
}

/* Theirs are read like ours, whatever is in them, and ours come after them. */
static void test_foreign_entries(void **state)
{
	struct seen seen;

	(void)state;
	append(STREAM_REQUESTS, "a", "1");
	redis_server_must(&server, "XADD t.requests 4000000000000-5 event {\"subject\":\"b\"}", "4000000000000-5");
	redis_server_must(&server, "XADD t.requests 4000000000000-6 other field", "4000000000000-6");
	redis_server_must(&server, "XADD t.requests 4000000000000-7 event {\"subject\":5}", "4000000000000-7");
	append(STREAM_REQUESTS, "c", "2");
	seen = look(STREAM_REQUESTS, NULL);
	assert_string_equal(seen.text, "[a|1][b|{\"subject\":\"b\"}][|][|{\"subject\":5}][c|2]");
	must(&(struct work){.stream = STREAM_REQUESTS, .ack = seen.last - 1});
	must(&(struct work){.stream = STREAM_REQUESTS, .ack = seen.last - 2});
	must(&(struct work){.stream = STREAM_REQUESTS, .ack_subject = "c"});
	assert_string_equal(look(STREAM_REQUESTS, NULL).text, "[a|1][b|{\"subject\":\"b\"}]");
	redis_server_must(&server, "XLEN t.requests", "2");
}

/* An id that no clock makes: left alone, and no reason to stop. */
static void test_odd_ids(void **state)
{
	(void)state;
	append(STREAM_DEAD, "a", "1");
	redis_server_must(&server, "XADD t.dead 18446744073709551614-1 event x", "18446744073709551614-1");
	assert_string_equal(look(STREAM_DEAD, NULL).text, "[a|1]");
	must(&(struct work){.stream = STREAM_DEAD, .ack_subject = "a"});
	assert_string_equal(look(STREAM_DEAD, NULL).text, "");
}

/* What is acknowledged is out of the group, too. */
static void test_group(void **state)
{
	(void)state;
	append(STREAM_REQUESTS, "a", "1");
	append(STREAM_REQUESTS, "b", "2");
	redis_server_must(&server, "XREADGROUP GROUP agentarea-sandbox-runners c COUNT 2 STREAMS t.requests >", "1");
	redis_server_must(&server, "EVAL return(redis.call('XPENDING','t.requests','agentarea-sandbox-runners')[1]) 0",
			  "2");
	must(&(struct work){.stream = STREAM_REQUESTS, .ack_subject = "a"});
	redis_server_must(&server, "EVAL return(redis.call('XPENDING','t.requests','agentarea-sandbox-runners')[1]) 0",
			  "1");
	must(&(struct work){.stream = STREAM_REQUESTS, .ack = look(STREAM_REQUESTS, NULL).first});
	redis_server_must(&server, "EVAL return(redis.call('XPENDING','t.requests','agentarea-sandbox-runners')[1]) 0",
			  "0");
	redis_server_must(&server, "XLEN t.requests", "0");
}

/* The stream is taken away: it comes back with its group; a group alone is missed by nobody's step. */
static void test_vanished(void **state)
{
	(void)state;
	append(STREAM_REQUESTS, "a", "1");
	redis_server_must(&server, "DEL t.requests", "1");
	assert_string_equal(look(STREAM_REQUESTS, NULL).text, "");
	must(&(struct work){.stream = STREAM_REQUESTS, .ack_subject = "a"});
	append(STREAM_REQUESTS, "b", "2");
	redis_server_must(&server, "XINFO GROUPS t.requests", "1");
	redis_server_must(&server, "XREADGROUP GROUP agentarea-sandbox-runners c STREAMS t.requests >", "1");
	redis_server_must(&server, "XGROUP DESTROY t.requests agentarea-sandbox-runners", "1");
	must(&(struct work){.stream = STREAM_REQUESTS, .ack_subject = "b"});
	assert_string_equal(look(STREAM_REQUESTS, NULL).text, "");
	append(STREAM_REQUESTS, "c", "3");
	assert_string_equal(look(STREAM_REQUESTS, "c").text, "[c|3]");
}

static size_t trim(void)
{
	struct work work = {.stream = STREAM_EVENTS, .trim_older = now() + 1000};

	must(&work);
	return work.trimmed;
}

/* No entry goes that some group has not been given, or has not acknowledged. */
static void test_trim_and_groups(void **state)
{
	(void)state;
	redis_server_must(&server, "XGROUP CREATE t.events slow 0 MKSTREAM", "OK");
	redis_server_must(&server, "XGROUP CREATE t.events fast 0", "OK");
	append(STREAM_EVENTS, "a", "1");
	append(STREAM_EVENTS, "a", "2");
	append(STREAM_EVENTS, "b", "3");
	assert_int_equal(trim(), 0);
	redis_server_must(&server, "XREADGROUP GROUP fast c NOACK STREAMS t.events >", "1");
	assert_int_equal(trim(), 0);
	redis_server_must(&server, "XREADGROUP GROUP slow c COUNT 2 STREAMS t.events >", "1");
	assert_int_equal(trim(), 0);
	/* Its first one is acknowledged: that one goes, with its place in the index. */
	redis_server_must(
		&server,
		"EVAL return(redis.call('XACK','t.events','slow',redis.call('XRANGE','t.events','-','+')[1][1])) 0",
		"1");
	assert_int_equal(trim(), 1);
	assert_string_equal(look(STREAM_EVENTS, "a").text, "[a|2]");
	assert_string_equal(look(STREAM_EVENTS, NULL).text, "[a|2][b|3]");
	redis_server_must(&server, "XGROUP DESTROY t.events slow", "1");
	assert_int_equal(trim(), 2);
	redis_server_must(&server, "EXISTS t:of:events:a t:of:events:b", "0");
	assert_int_equal(trim(), 0);
}

#define ACK(n)                                                                                                                \
	"EVAL return(redis.call('XACK','t.events','g',redis.call('XRANGE','t.events','-','+')[" #n "][1])) 0"

/* A group that was set back is given everything again, also while something newer is pending. */
static void test_trim_and_a_group_set_back(void **state)
{
	(void)state;
	redis_server_must(&server, "XGROUP CREATE t.events g 0 MKSTREAM", "OK");
	for (int i = 0; i < 3; i++)
		append(STREAM_EVENTS, "a", "1");
	redis_server_must(&server, "XREADGROUP GROUP g c STREAMS t.events >", "1");
	redis_server_must(&server, ACK(1), "1");
	redis_server_must(&server, ACK(2), "1");
	redis_server_must(&server, "XGROUP SETID t.events g 0", "OK");
	assert_int_equal(trim(), 0);
	redis_server_must(&server, "XREADGROUP GROUP g c STREAMS t.events >", "1");
	redis_server_must(&server, ACK(1), "1");
	assert_int_equal(trim(), 1);
}

/* Of what went by another program's hand, too; what is still there goes as ever. */
static void test_forgotten(void **state)
{
	(void)state;
	append(STREAM_EVENTS, "a", "1");
	append(STREAM_EVENTS, "b", "2");
	redis_server_must(&server, "XTRIM t.events MAXLEN 1", "1");
	must(&(struct work){.stream = STREAM_EVENTS, .forget = "a"});
	must(&(struct work){.stream = STREAM_EVENTS, .forget = "b"});
	redis_server_must(&server, "EXISTS t:of:events:a t:of:events:b", "0");
	assert_string_equal(look(STREAM_EVENTS, NULL).text, "[b|2]");
	assert_int_equal(trim(), 1);
	redis_server_must(&server, "EXISTS t:of:events:a t:of:events:b", "0");
}

/* Nothing stays behind of what is over: no index, no counter of a subject. */
static void test_nothing_left(void **state)
{
	char before[32], *keys = redis_server_ask(&server, "DBSIZE");
	char subject[16];
	int i;

	(void)state;
	append(STREAM_EVENTS, "s", "x");
	trim();
	free(keys);
	keys = redis_server_ask(&server, "DBSIZE");
	snprintf(before, sizeof(before), "%s", keys);
	free(keys);
	for (i = 0; i < 50; i++) {
		snprintf(subject, sizeof(subject), "s%d", i);
		append(STREAM_EVENTS, subject, "x");
		append(STREAM_REQUESTS, subject, "x");
		must(&(struct work){.stream = STREAM_REQUESTS, .ack_subject = subject});
	}
	assert_int_equal(trim(), 50);
	redis_server_must(&server, "DBSIZE", before);
}

static int quiet(void **state)
{
	(void)state;
	log_init(LOG_ERROR, LOG_LOGFMT);
	signal(SIGPIPE, SIG_IGN); /* as the daemon does */
	return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(test_fields), CASE(test_named_subjects),   CASE(test_foreign_entries), CASE(test_odd_ids),	  CASE(test_group),
		CASE(test_vanished), CASE(test_trim_and_groups), CASE(test_trim_and_a_group_set_back), CASE(test_forgotten),
		CASE(test_nothing_left),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, quiet, NULL);
}
