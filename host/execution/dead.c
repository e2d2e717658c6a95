/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what an operator does with dead letters: look, put back, drop. Request threads enter. Must never put back what
 * could not be read the first time, nor a message whose execution has ended.
 */
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "execution/execution_private.h"

/* ---- list ---- */

struct list {
	uint64_t after, only;
	size_t limit;
	struct buf *buf;
	size_t start, count;
	uint64_t last;
};

static bool list_one(const struct stream_entry *entry, void *arg)
{
	struct list *list = arg;
	char at[32];

	if (list->only && entry->seq != list->only)
		return false;
	if (list->count == list->limit)
		return false;
	clock_format(entry->at_ms, at);
	buf_printf(list->buf, "%s{\"id\":\"%llu\",\"at\":\"%s\",\"letter\":", list->count++ ? "," : "",
		   (unsigned long long)entry->seq, at);
	buf_append(list->buf, entry->doc, entry->doc_len); /* written by event_render_dead */
	buf_puts(list->buf, "}");
	list->last = entry->seq;
	return true;
}

static int list_step(struct txn *txn, void *arg, struct err *err)
{
	struct list *list = arg;
	uint64_t after = list->only ? list->only - 1 : list->after;

	list->buf->len = list->start;
	list->count = 0;
	list->last = 0;
	return txn_read_stream(txn, STREAM_DEAD, after, list->only ? 1 : list->limit, list_one, list, err);
}

int execution_dead_list(struct executions *e, uint64_t after, uint64_t only, size_t limit, struct buf *buf,
			size_t *ret_count, uint64_t *ret_last, struct err *err)
{
	struct list list = {.after = after, .only = only, .limit = limit, .buf = buf, .start = buf->len};
	int rc = store_view(e->config.store, list_step, &list, err);

	if (rc == 0 && only && list.count == 0)
		rc = err_set(err, ERR_NOT_FOUND, "no such dead letter");
	if (rc == 0 && buf->error)
		rc = err_set(err, buf->error, "the list of dead letters is too long; ask for fewer");
	if (rc)
		return rc;
	*ret_count = list.count;
	*ret_last = list.count == limit ? list.last : 0;
	return 0;
}

/* ---- one letter ---- */

struct letter {
	uint64_t seq;
	bool found;
	const char *doc;
	size_t len;
};

static bool take_letter(const struct stream_entry *entry, void *arg)
{
	struct letter *letter = arg;

	letter->found = entry->seq == letter->seq;
	letter->doc = entry->doc;
	letter->len = entry->doc_len;
	return false;
}

static int find(struct letter *letter, struct txn *txn, struct err *err)
{
	int rc;

	letter->found = false;
	rc = txn_read_stream(txn, STREAM_DEAD, letter->seq - 1, 1, take_letter, letter, err);
	if (rc == 0 && !letter->found)
		rc = err_set(err, ERR_NOT_FOUND, "no such dead letter");
	return rc;
}

static int drop_step(struct txn *txn, void *arg, struct err *err)
{
	struct letter *letter = arg;
	int rc = find(letter, txn, err);

	return rc ? rc : txn_ack(txn, STREAM_DEAD, letter->seq, err);
}

/* The open execution that the letter's message asks for. */
static int check_message(struct txn *txn, const char *text, char ret_id[IDENT_ID_MAX + 1], struct err *err)
{
	const char *why = NULL;
	struct record r;
	int rc;

	if (!text || !*text || !event_parse_message(text, strlen(text), ret_id, &why))
		return err_set(err, ERR_CONFLICT, "the letter holds no message that could be read");
	rc = steps_load(txn, ret_id, &r, NULL, err);
	if (rc == ERR_NOT_FOUND)
		return err_set(err, ERR_CONFLICT, "the execution that it asks for does not exist");
	if (rc == 0 && record_status_terminal(r.status))
		return err_set(err, ERR_CONFLICT, "the execution that it asks for has ended");
	return rc;
}

static int requeue_step(struct txn *txn, void *arg, struct err *err)
{
	struct letter *letter = arg;
	char id[IDENT_ID_MAX + 1] = "";
	const char *text = NULL;
	int rc = find(letter, txn, err);

	if (rc == 0)
		rc = event_parse_dead(txn_arena(txn), letter->doc, letter->len, &text, err);
	if (rc == 0)
		rc = check_message(txn, text, id, err);
	if (rc == 0)
		rc = txn_append(txn, STREAM_REQUESTS, id, text, strlen(text), err);
	if (rc == 0)
		rc = txn_notify(txn, FLEET_REQUESTS, err);
	return rc ? rc : txn_ack(txn, STREAM_DEAD, letter->seq, err);
}

int execution_dead_requeue(struct executions *e, uint64_t seq, struct err *err)
{
	int rc = steps_update(e, requeue_step, &(struct letter){.seq = seq}, err);

	if (rc == 0)
		session_kick_gc(e->config.sessions); /* whose rounds read the stream, where it is this host's alone */
	return rc;
}

int execution_dead_drop(struct executions *e, uint64_t seq, struct err *err)
{
	return steps_update(e, drop_step, &(struct letter){.seq = seq}, err);
}
