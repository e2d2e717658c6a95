/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of streams: Redis Streams that others read too, and may write to. An entry has the one field `event`; its
 * subject is what the document says, or a second field where it says something else. Entered by the thread that runs
 * the step. Entries that cannot have a number here (ids no clock makes) are left alone.
 */
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/log.h"
#include "store/redis/redis.h"

#define PAGE_ENTRIES 256
#define PAGE_BYTES "4194304"

static const char *const shorts[STREAM_COUNT] = {
	[STREAM_REQUESTS] = "requests",
	[STREAM_EVENTS] = "events",
	[STREAM_DEAD] = "dead",
};

const char *entry_short(enum store_stream stream)
{
	return shorts[stream];
}

/* The document's `subject`, or NULL. Lives as long as *ret_json. */
static const char *read_subject(const char *doc, size_t len, struct json_object **ret_json)
{
	struct json_object *subject = NULL;

	*ret_json = NULL;
	if (json_parse(doc, len, ret_json, NULL) != 0)
		return NULL;
	if (!json_object_is_type(*ret_json, json_type_object) ||
	    !json_object_object_get_ex(*ret_json, "subject", &subject) ||
	    !json_object_is_type(subject, json_type_string))
		return NULL;
	return json_object_get_string(subject);
}

/* Whether it certainly does, by its text alone: the key stands there once, in the outermost object (a quote inside of a string has a
 * backslash before it). False says nothing. */
static bool names_plainly(const char *doc, size_t len, const char *subject)
{
	static const char key[] = "\"subject\":\"";
	const char *at = memmem(doc, len, key, sizeof(key) - 1), *value, *end = doc + len;
	size_t before, want = strlen(subject);

	if (at == NULL || memmem(at + 1, (size_t)(end - at - 1), "\"subject\"", strlen("\"subject\"")) != NULL)
		return false;
	before = (size_t)(at - doc);
	value = at + sizeof(key) - 1;
	return doc[0] == '{' && memchr(doc + 1, '{', before - 1) == NULL && memchr(doc, '[', before) == NULL &&
	       (size_t)(end - value) > want && memcmp(value, subject, want) == 0 && value[want] == '"' &&
	       strchr(subject, '\\') == NULL;
}

/* The documents of this program are of the plain kind; a parse of each was an eighth of an execution's processor time. */
bool entry_names(const char *doc, size_t len, const char *subject)
{
	struct json_object *json;
	const char *named;
	bool same;

	if (names_plainly(doc, len, subject))
		return true;
	named = read_subject(doc, len, &json);
	same = strcmp(named != NULL ? named : "", subject) == 0;
	json_object_put(json);
	return same;
}

bool run_has_seen(const struct redis_run *run, enum store_stream stream, uint64_t seq)
{
	size_t i;

	for (i = 0; i < run->seq_count; i++)
		if (run->seqs[i].stream == stream && run->seqs[i].seq == seq)
			return true;
	return false;
}

static int remember(struct redis_run *run, enum store_stream stream, uint64_t seq, struct err *err)
{
	if (run->seq_count == run->seq_room) {
		size_t room = run->seq_room == 0 ? 16 : run->seq_room * 2;
		struct redis_seen *more = realloc(run->seqs, room * sizeof(*more));

		if (more == NULL)
			return err_set(err, ERR_NOMEM, "no memory for the entries of a stream");
		run->seqs = more;
		run->seq_room = room;
	}
	run->seqs[run->seq_count++] = (struct redis_seen){stream, seq};
	return 0;
}

static int take_subject(struct txn *txn, const redisReply *field, struct stream_entry *entry, struct err *err)
{
	struct json_object *json = NULL;
	const char *subject;
	int rc;

	if (field->type == REDIS_REPLY_STRING)
		return txn_copy(txn, field->str, (size_t)field->len, &entry->subject, err);
	subject = read_subject(entry->doc, entry->doc_len, &json);
	subject = subject != NULL ? subject : "";
	rc = txn_copy(txn, subject, strlen(subject), &entry->subject, err);
	json_object_put(json);
	return rc;
}

struct reading {
	struct txn *txn;
	enum store_stream stream;
	size_t left;
	entry_fn fn;
	void *arg;
	bool ended;
};

/* Three elements: id, subject, document. */
static int hand_out(struct reading *reading, redisReply *const *at, struct err *err)
{
	struct rconn *conn = reading->txn->conn;
	struct stream_entry entry;
	int rc;

	if (!seq_parse(at[0]->str, &entry.seq)) {
		log_warn("an entry's id is out of range, it is left alone",
			 KS("stream", conn->store->streams[reading->stream]), KS("id", at[0]->str));
		return 0;
	}
	entry.at_ms = (int64_t)(entry.seq >> REDIS_SEQ_BITS);
	entry.doc_len = (size_t)at[2]->len;
	rc = txn_copy(reading->txn, at[2]->str, entry.doc_len, &entry.doc, err);
	if (rc == 0)
		rc = take_subject(reading->txn, at[1], &entry, err);
	if (rc == 0)
		rc = remember(conn->run, reading->stream, entry.seq, err);
	if (rc != 0)
		return rc;
	reading->left--;
	reading->ended = !reading->fn(&entry, reading->arg);
	return 0;
}

static int read_page(struct reading *reading, const char *subject, uint64_t after, redisReply **ret, struct err *err)
{
	struct rconn *conn = reading->txn->conn;
	struct wire_args args = {0};
	char id[48], member[32], limit[24];
	int rc;

	seq_format(after + 1, id, member);
	snprintf(limit, sizeof(limit), "%zu", reading->left < PAGE_ENTRIES ? reading->left : PAGE_ENTRIES);
	wire_text(&args, conn->store->streams[reading->stream]);
	wire_text(&args, shorts[reading->stream]);
	wire_text(&args, subject != NULL ? subject : "");
	wire_text(&args, id);
	wire_text(&args, member);
	wire_text(&args, limit);
	wire_text(&args, PAGE_BYTES);
	rc = args.error != 0 ? err_set(err, ERR_NOMEM, "no memory to talk to Redis")
			     : script_run(conn, SCRIPT_stream, &args, ret, err);
	wire_fini(&args);
	return rc;
}

int redis_read_stream(struct txn *txn, enum store_stream stream, const char *subject, uint64_t after, size_t limit,
		      entry_fn fn, void *arg, struct err *err)
{
	struct reading reading = {.txn = txn, .stream = stream, .left = limit, .fn = fn, .arg = arg};
	bool more = limit > 0 && after < INT64_MAX && (subject == NULL || *subject != '\0');
	redisReply *reply;
	size_t i;
	int rc = 0;

	while (rc == 0 && more && !reading.ended && reading.left > 0) {
		reply = NULL;
		rc = read_page(&reading, subject, after, &reply, err);
		if (rc != 0)
			break;
		more = script_int(reply, REDIS_HEAD) == 1 && seq_parse(reply->element[REDIS_HEAD + 1]->str, &after);
		for (i = REDIS_HEAD + 2; rc == 0 && !reading.ended && reading.left > 0 && i + 2 < reply->elements;
		     i += 3)
			rc = hand_out(&reading, &reply->element[i], err);
		freeReplyObject(reply);
	}
	return rc;
}

int redis_find_trim(struct txn *txn, enum store_stream stream, int64_t older_than_ms, size_t limit, size_t *ret_count,
		    uint64_t *ret_last, struct err *err)
{
	struct rconn *conn = txn->conn;
	struct wire_args args = {0};
	redisReply *reply = NULL;
	char older[24], most[24];
	int rc;

	snprintf(older, sizeof(older), "%lld", (long long)older_than_ms);
	snprintf(most, sizeof(most), "%llu", (unsigned long long)(limit < INT32_MAX ? limit : INT32_MAX));
	wire_text(&args, conn->store->streams[stream]);
	wire_text(&args, older);
	wire_text(&args, most);
	rc = args.error != 0 ? err_set(err, ERR_NOMEM, "no memory to talk to Redis")
			     : script_run(conn, SCRIPT_old, &args, &reply, err);
	wire_fini(&args);
	if (rc == 0 && !seq_parse(reply->element[REDIS_HEAD + 1]->str, ret_last))
		rc = err_set(err, ERR_STORE, "the state store: the stream %.64s begins with an id out of range",
			     conn->store->streams[stream]);
	if (rc == 0)
		*ret_count = (size_t)script_int(reply, REDIS_HEAD);
	freeReplyObject(reply);
	return rc;
}

int redis_stream_size(struct txn *txn, enum store_stream stream, int64_t *ret, struct err *err)
{
	struct rconn *conn = txn->conn;
	struct wire_args args = {0};
	redisReply *reply = NULL;
	int rc;

	wire_text(&args, conn->store->streams[stream]);
	rc = args.error != 0 ? err_set(err, ERR_NOMEM, "no memory to talk to Redis")
			     : script_run(conn, SCRIPT_size, &args, &reply, err);
	wire_fini(&args);
	if (rc == 0)
		*ret = script_int(reply, REDIS_HEAD);
	freeReplyObject(reply);
	return rc;
}
