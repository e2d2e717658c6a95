/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conformance cases of numbers, streams and views that must not write. Runs in the test's thread; it must not know
 * which store it tests.
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

/* ---- numbers ---- */

struct next_arg {
	uint64_t number;
	int rc;
};

static int next_step(struct txn *txn, void *arg, struct err *err)
{
	struct next_arg *next = arg;
	int rc = txn_next(txn, &next->number, err);

	return rc != 0 ? rc : next->rc;
}

void conformance_next(const struct conformance_env *env)
{
	struct store *store = conformance_open(env);
	struct next_arg next = {0};
	uint64_t last = 0;
	int64_t now;
	int i;

	for (i = 0; i < 20; i++) {
		next.rc = i % 3 == 0 ? ERR_CONFLICT : 0;
		assert_int_equal(store_update(store, next_step, &next, NULL), next.rc);
		assert_true(next.number > last);
		last = next.number;
		if (i % 5 == 4) {
			store_close(store);
			store = conformance_open(env);
		}
	}
	assert_int_equal(store_now(store, &now, NULL), 0);
	assert_true(last > (uint64_t)now * 1000 - 3600 * UINT64_C(1000000));
	assert_int_equal(store_view(store, next_step, &next, NULL), ERR_INTERNAL);
	store_close(store);
}

static int count_step(struct txn *txn, void *arg, struct err *err)
{
	int64_t *value = arg;
	int rc = *value != 0 ? txn_count_add(txn, "a'b", *value, err) : 0;

	return rc != 0 ? rc : txn_count_get(txn, "a'b", value, err);
}

void conformance_counters(const struct conformance_env *env)
{
	struct store *store = conformance_open(env);
	int64_t value = 0;

	conformance_must_view(store, count_step, &value);
	assert_int_equal(value, 0);
	value = 41;
	conformance_must(store, count_step, &value);
	assert_int_equal(value, 41);
	value = -1;
	conformance_must(store, count_step, &value);
	assert_int_equal(value, 40);
	store_close(store);
	store = conformance_open(env);
	value = 0;
	conformance_must_view(store, count_step, &value);
	assert_int_equal(value, 40);
	value = INT64_MAX;
	assert_int_equal(store_update(store, count_step, &value, NULL), ERR_INTERNAL);
	store_close(store);
}

/* ---- streams ---- */

struct stream_arg {
	const char *append; /* subjects, one character each; the document is the subject's upper case */
	uint64_t ack;
	const char *ack_subject;
	int64_t trim_older;
	size_t trim_limit, trimmed;
	char seen[64];
	uint64_t first, last;
	int64_t last_ms;
};

static bool see_entry(const struct stream_entry *entry, void *arg)
{
	struct stream_arg *stream = arg;
	size_t len = strlen(stream->seen);

	assert_true(len + 1 < sizeof(stream->seen));
	assert_int_equal(entry->doc_len, 2);
	assert_int_equal(entry->doc[0], '.');
	assert_true(entry->seq > stream->last);
	assert_true(entry->at_ms >= stream->last_ms);
	stream->seen[len] = entry->subject[0];
	stream->seen[len + 1] = '\0';
	if (stream->first == 0)
		stream->first = entry->seq;
	stream->last = entry->seq;
	stream->last_ms = entry->at_ms;
	return true;
}

static int stream_step(struct txn *txn, void *arg, struct err *err)
{
	struct stream_arg *stream = arg;
	char subject[2] = "", doc[2] = ".";
	const char *at;
	int rc = 0;

	for (at = stream->append; rc == 0 && at != NULL && *at != '\0'; at++) {
		subject[0] = doc[1] = *at;
		rc = txn_append(txn, STREAM_EVENTS, subject, doc, 2, err);
	}
	if (rc == 0 && stream->ack != 0)
		rc = txn_ack(txn, STREAM_EVENTS, stream->ack, err);
	if (rc == 0 && stream->ack_subject != NULL)
		rc = txn_ack_subject(txn, STREAM_EVENTS, stream->ack_subject, err);
	if (rc == 0 && stream->trim_limit > 0)
		rc = txn_trim(txn, STREAM_EVENTS, stream->trim_older, stream->trim_limit, &stream->trimmed, err);
	return rc;
}

struct see_arg {
	uint64_t after;
	size_t limit;
	struct stream_arg *stream;
	const char *subject; /* NULL: all */
	int64_t size; /* of the stream */
};

static int see_step(struct txn *txn, void *arg, struct err *err)
{
	struct see_arg *see = arg;

	see->stream->seen[0] = '\0';
	see->stream->first = see->stream->last = 0;
	see->stream->last_ms = 0;
	if (see->subject != NULL)
		return txn_read_subject(txn, STREAM_EVENTS, see->subject, see->after, see->limit, see_entry,
					see->stream, err);
	see->size = -1;
	if (txn_stream_size(txn, STREAM_EVENTS, &see->size, err) != 0)
		return err->code;
	return txn_read_stream(txn, STREAM_EVENTS, see->after, see->limit, see_entry, see->stream, err);
}

static void assert_stream(struct store *store, struct stream_arg *stream, uint64_t after, size_t limit,
			  const char *seen)
{
	struct see_arg see = {after, limit, stream, NULL, 0};

	conformance_must_view(store, see_step, &see);
	assert_string_equal(stream->seen, seen);
	if (after == 0 && limit == SIZE_MAX)
		assert_int_equal(see.size, (int64_t)strlen(seen));
}

static void assert_subject(struct store *store, struct stream_arg *stream, const char *subject, uint64_t after,
			   size_t limit, const char *seen)
{
	conformance_must_view(store, see_step, &(struct see_arg){after, limit, stream, subject, 0});
	assert_string_equal(stream->seen, seen);
}

void conformance_streams(const struct conformance_env *env)
{
	struct store *store = conformance_open(env);
	struct stream_arg stream = {.append = "abacad"};
	uint64_t last;

	conformance_must(store, stream_step, &stream);
	assert_stream(store, &stream, 0, SIZE_MAX, "abacad");
	last = stream.last;
	assert_subject(store, &stream, "a", 0, SIZE_MAX, "aaa");
	assert_subject(store, &stream, "a", stream.first, 1, "a");
	assert_subject(store, &stream, "d", 0, SIZE_MAX, "d");
	assert_subject(store, &stream, "d", last, SIZE_MAX, "");
	assert_subject(store, &stream, "e", 0, SIZE_MAX, "");
	assert_stream(store, &stream, 0, SIZE_MAX, "abacad");
	assert_stream(store, &stream, stream.first, 2, "ba");
	assert_stream(store, &stream, last, SIZE_MAX, "");
	conformance_must(store, stream_step, &(struct stream_arg){.ack = last});
	conformance_must(store, stream_step, &(struct stream_arg){.ack = last});
	assert_stream(store, &stream, 0, SIZE_MAX, "abaca");
	conformance_must(store, stream_step, &(struct stream_arg){.ack_subject = "a"});
	assert_stream(store, &stream, 0, SIZE_MAX, "bc");
	conformance_must(store, stream_step, &(struct stream_arg){.ack_subject = "b"});
	conformance_must(store, stream_step, &(struct stream_arg){.ack_subject = "c"});
	assert_stream(store, &stream, 0, SIZE_MAX, "");
	/* Numbers go on after everything was acknowledged and the store was opened again: cursors stay good. */
	store_close(store);
	store = conformance_open(env);
	conformance_must(store, stream_step, &(struct stream_arg){.append = "x"});
	assert_stream(store, &stream, last, SIZE_MAX, "x");
	assert_true(stream.last > last);
	store_close(store);
}

void conformance_trim(const struct conformance_env *env)
{
	struct store *store = conformance_open(env);
	struct stream_arg stream = {.append = "abcde"}, trim = {.trim_limit = 2};

	conformance_must(store, stream_step, &stream);
	assert_stream(store, &stream, 0, SIZE_MAX, "abcde");
	trim.trim_older = stream.last_ms;
	conformance_must(store, stream_step, &trim);
	assert_int_equal(trim.trimmed, 0);
	trim.trim_older = stream.last_ms + 1;
	conformance_must(store, stream_step, &trim);
	assert_int_equal(trim.trimmed, 2);
	assert_stream(store, &stream, 0, SIZE_MAX, "cde");
	trim.trim_limit = SIZE_MAX;
	conformance_must(store, stream_step, &trim);
	assert_int_equal(trim.trimmed, 3);
	conformance_must(store, stream_step, &trim);
	assert_int_equal(trim.trimmed, 0);
	assert_stream(store, &stream, 0, SIZE_MAX, "");
	store_close(store);
}

/* ---- views ---- */

static int write_rows_step(struct txn *txn, void *arg, struct err *err)
{
	struct store_row row = {.key = "a", .doc = "1", .doc_len = 1};

	(void)arg;
	if (txn_put(txn, STORE_TASK, &row, err) != ERR_INTERNAL || txn_delete(txn, STORE_TASK, "a",
									      err) != ERR_INTERNAL)
		return ERR_CONFLICT;
	return txn_append(txn, STREAM_EVENTS, "a", "{}", 2, err);
}

void conformance_view_refuses_writes(const struct conformance_env *env)
{
	struct store *store = conformance_open(env);
	struct stream_arg stream = {.ack = 1};
	struct err err = {0};
	int64_t value = 1;
	char *doc;

	assert_int_equal(store_view(store, write_rows_step, NULL, &err), ERR_INTERNAL);
	assert_int_equal(store_view(store, stream_step, &stream, &err), ERR_INTERNAL);
	assert_int_equal(store_view(store, count_step, &value, &err), ERR_INTERNAL);
	doc = conformance_get(store, STORE_TASK, "a");
	assert_null(doc);
	store_close(store);
}
