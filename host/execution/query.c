/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what readers see of executions: one record, previews, lists. Request threads enter; everything comes from the
 * store. Never shows hidden fields, and never changes anything.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/limits.h"
#include "execution/execution_private.h"

#define PREVIEW_MAX ((size_t)64 * 1024)
#define SCAN_PAGE 256
#define SCAN_MAX 10000 /* rows looked at for one answer; the next page goes on */

void execution_watch_key(const char *id, char ret_key[64])
{
	snprintf(ret_key, 64, EXECUTION_WATCH "%s", id);
}

static int check_id(const char *id, struct err *err)
{
	return record_id_valid(id) ? 0 : err_set(err, ERR_NOT_FOUND, "there is no execution %.48s", id);
}

/* A record as it is shown: an open one says that its cancel was asked for, which the row does not. */
static int load_shown(struct txn *txn, const char *id, struct record *ret, struct err *err)
{
	struct store_row row;
	struct claim c;
	int rc = steps_load(txn, id, ret, NULL, err);

	if (rc || record_status_terminal(ret->status))
		return rc;
	rc = txn_get(txn, STORE_CLAIM, id, &row, err);
	if (rc || !row.doc)
		return rc;
	if (claim_decode(txn_arena(txn), id, row.doc, row.doc_len, &c, err) == 0)
		ret->cancel_requested_ms = c.cancel_requested_ms;
	else
		err_clear(err); /* the record can be read without it */
	return 0;
}

struct one {
	const char *id;
	struct buf *buf; /* NULL: only the head */
	size_t start;
	struct execution_head head;
	int64_t retention_ms;
	int64_t lasts_ms; /* of an ended one: how long it is kept from now on */
};

static int load_one(struct one *one, struct txn *txn, struct record *ret, struct err *err)
{
	int rc = one->buf ? load_shown(txn, one->id, ret, err) : steps_load(txn, one->id, ret, NULL, err);

	if (rc == 0)
		rc = ident_make(&one->head.ident, ret->workspace_id, ret->task_id, err);
	if (rc == 0) {
		one->head.revision = ret->revision;
		one->head.terminal = record_status_terminal(ret->status);
		one->head.running = ret->status == RECORD_RUNNING;
		one->lasts_ms = ret->completed_ms + one->retention_ms - txn_now(txn);
	}
	return rc;
}

static int one_step(struct txn *txn, void *arg, struct err *err)
{
	struct one *one = arg;
	struct store_row row;
	struct record r;
	int rc = load_one(one, txn, &r, err);

	if (rc || !one->buf)
		return rc;
	rc = txn_get(txn, STORE_COMMAND, one->id, &row, err);
	if (rc)
		return rc;
	r.command.command_body = row.doc;
	one->buf->len = one->start;
	return record_encode_public(&r, one->buf, err);
}

int execution_head(struct executions *e, const char *id, struct execution_head *ret, struct err *err)
{
	struct one one = {.id = id};
	int rc = check_id(id, err);

	if (rc || ended_get(e->ended, id, ret, NULL))
		return rc;
	rc = store_view(e->config.store, one_step, &one, err);
	if (rc == 0)
		*ret = one.head;
	return rc;
}

bool execution_ended(struct executions *e, const char *id, struct execution_head *ret, struct buf *buf)
{
	return record_id_valid(id) && ended_get(e->ended, id, ret, buf);
}

/* The record of a running command is ended by finish_run only, which says so before it notifies; where others share the store,
 * theirs only after the claim ran out. */
bool execution_runs_here(struct executions *e, const char *id)
{
	const struct run *run;
	bool runs;

	lock_take(&e->lock);
	run = queue_find_locked(e, id);
	runs = run && run->has_session && !run->told &&
	       (store_is_exclusive(e->config.store) || clock_boot_ns() < run->sure_ns);
	lock_drop(&e->lock);
	return runs;
}

/* ---- preview ---- */

static int read_piece(struct output_reader *reader, uint64_t offset, char *piece, size_t *len, struct err *err)
{
	size_t got = 0, n = 1;
	bool end;
	int rc = 0;

	while (rc == 0 && got < *len && n) {
		n = 0;
		rc = output_read(reader, offset + got, piece + got, *len - got, &n, &end, err);
		got += n;
	}
	*len = got;
	return rc;
}

/* Bytes at the end that begin a character which goes on behind it. */
static size_t begun_at_end(const char *ptr, size_t len)
{
	static const unsigned char longer[] = {0, 0xc2, 0xe0, 0xf0};

	for (size_t n = 1; n <= len && n < sizeof(longer); n++) {
		unsigned char c = (unsigned char)ptr[len - n];

		if ((c & 0xc0) != 0x80)
			return c >= longer[n] && c <= 0xf4 ? n : 0;
	}
	return 0;
}

/* Bytes in front that end a character which began before it. */
static size_t ended_in_front(const char *ptr, size_t len)
{
	size_t n = 0;

	while (n < len && n < 3 && ((unsigned char)ptr[n] & 0xc0) == 0x80)
		n++;
	return n;
}

/* cut: a head ends, or a tail begins, where its size says, perhaps within a character. *len: what is shown of it. */
static int put_piece(struct output_reader *reader, const char *name, uint64_t offset, bool cut, size_t *len,
		     struct buf *buf, bool *lossy, struct err *err)
{
	char *piece = malloc(*len + 1);
	size_t skip = 0;
	int rc = piece ? read_piece(reader, offset, piece, len, err)
		       : err_set(err, ERR_NOMEM, "no memory for a preview");

	if (rc == 0) {
		if (cut && offset)
			skip = ended_in_front(piece, *len);
		*len -= skip;
		if (cut && !offset)
			*len -= begun_at_end(piece, *len);
		*lossy |= !ident_utf8_valid(piece + skip, *len);
		buf_printf(buf, "\"%s\":", name);
		json_put_string(buf, piece + skip, *len);
	}
	free(piece);
	return rc;
}

/* {"head": …, "tail": …, "bytes": now, "omitted_bytes": between them, "lossy": bytes were not UTF-8} */
static int put_stream(struct executions *e, const char *id, unsigned stream, size_t preview, struct buf *buf,
		      struct err *err)
{
	struct output_reader *reader;
	uint64_t size;
	size_t head, tail = 0;
	bool lossy = false;
	int rc = output_open(e, id, stream, &reader, err);

	if (rc)
		return rc;
	size = output_size_now(reader);
	head = size > preview ? preview - preview / 2 : (size_t)size;
	if (size > preview)
		tail = preview / 2;
	buf_printf(buf, "\"%s\":{", stream == 1 ? "stdout" : "stderr");
	rc = put_piece(reader, "head", 0, size > preview, &head, buf, &lossy, err);
	if (rc == 0 && tail) {
		buf_puts(buf, ",");
		rc = put_piece(reader, "tail", size - tail, true, &tail, buf, &lossy, err);
	}
	buf_printf(buf, ",\"bytes\":%llu,\"omitted_bytes\":%llu,\"lossy\":%s}", (unsigned long long)size,
		   (unsigned long long)(size - head - tail), lossy ? "true" : "false");
	output_close(reader);
	return rc;
}

static int put_preview(struct executions *e, const char *id, size_t preview, struct buf *buf, struct err *err)
{
	int rc;

	if (preview > PREVIEW_MAX)
		preview = PREVIEW_MAX;
	buf->len--; /* the record's closing brace */
	buf_puts(buf, ",\"preview\":{");
	rc = put_stream(e, id, 1, preview, buf, err);
	if (rc == 0) {
		buf_puts(buf, ",");
		rc = put_stream(e, id, 2, preview, buf, err);
	}
	buf_puts(buf, "}}");
	return rc;
}

int execution_render(struct executions *e, const char *id, size_t preview, struct buf *buf,
		     struct execution_head *ret_head, struct err *err)
{
	struct one one = {
		.id = id, .buf = buf, .start = buf->len, .retention_ms = e->config.conf->exec_retention_ms};
	int rc = check_id(id, err);

	if (rc == 0 && !ended_get(e->ended, id, &one.head, buf)) {
		rc = store_view(e->config.store, one_step, &one, err);
		if (rc == 0 && !buf->error)
			ended_put(e->ended, id, &one.head, one.lasts_ms, buf->ptr + one.start, buf->len - one.start);
	}
	if (rc == 0 && preview > 0)
		rc = put_preview(e, id, preview, buf, err);
	if (rc == 0 && buf->error)
		rc = err_set(err, buf->error, "the record of %s does not fit into an answer", id);
	if (rc == 0 && ret_head)
		*ret_head = one.head;
	return rc;
}

/* ---- lists ---- */

struct list {
	const char *workspace, *task;
	enum record_status status; /* RECORD_NONE: any */
	size_t limit;
	struct buf *buf;
	size_t start, count, seen;
	char after[IDENT_ID_MAX + 1];
	bool more;
	/* As the page began. */
	char page_after[IDENT_ID_MAX + 1];
	size_t page_count, page_seen;
	/* One page of candidates. */
	char ids[SCAN_PAGE][IDENT_ID_MAX + 1];
	size_t id_count;
};

static bool list_candidate(const struct store_row *row, void *arg)
{
	struct list *list = arg;

	snprintf(list->ids[list->id_count++], sizeof(list->ids[0]), "%s", row->key);
	return list->id_count < SCAN_PAGE;
}

static int list_item(struct list *list, struct txn *txn, const char *id, struct err *err)
{
	struct record r;
	int rc = load_shown(txn, id, &r, err);

	/* One that is gone meanwhile, or cannot be read, does not hide the others. */
	if (rc == ERR_NOT_FOUND || rc == ERR_CORRUPT)
		return 0;
	if (rc || (list->status != RECORD_NONE && r.status != list->status))
		return rc;
	if (list->count++)
		buf_puts(list->buf, ",");
	return record_encode_public(&r, list->buf, err);
}

/* Items stand in time order by their ids, both in a workspace's index and in a task's group. */
static int list_step(struct txn *txn, void *arg, struct err *err)
{
	struct list *list = arg;
	const size_t count = list->page_count,
		     seen = list->page_seen; /* as before this page, should the step run again */
	char group[IDENT_KEY_MAX + 2];
	int rc;

	list->id_count = 0;
	list->buf->len = list->start;
	snprintf(group, sizeof(group), "%s%s%s", list->workspace, list->task ? "/" : "", list->task ? list->task : "");
	rc = txn_scan(txn, list->task ? STORE_EXECUTION : STORE_EXECUTION_INDEX, group, list->page_after, true,
		      SCAN_PAGE, list_candidate, list, err);
	list->count = count;
	list->seen = seen;
	list->more = false;
	for (size_t i = 0; rc == 0 && i < list->id_count; i++) {
		if (list->count == list->limit) {
			list->more = true;
			break;
		}
		rc = list_item(list, txn, list->ids[i], err);
		list->seen++;
		memcpy(list->after, list->ids[i], sizeof(list->after));
	}
	return rc;
}

static int list_pages(struct executions *e, struct list *list, struct err *err)
{
	int rc;

	do {
		list->start = list->buf->len;
		list->page_count = list->count;
		list->page_seen = list->seen;
		memcpy(list->page_after, list->after, sizeof(list->after));
		rc = store_view(e->config.store, list_step, list, err);
	} while (rc == 0 && !list->more && list->id_count == SCAN_PAGE && list->seen < SCAN_MAX);
	if (rc == 0 && list->id_count == SCAN_PAGE)
		list->more = true; /* perhaps nothing follows; the next page says so */
	return rc;
}

int execution_list(struct executions *e, const char *workspace, const char *task, const char *status, const char *after,
		   size_t limit, struct buf *buf, size_t *ret_count, char **ret_next, struct err *err)
{
	struct list *list = calloc(1, sizeof(*list));
	int rc = list ? 0 : err_set(err, ERR_NOMEM, "no memory for a list");

	if (rc)
		return rc;
	list->workspace = workspace;
	list->task = task;
	list->buf = buf;
	list->limit = limit == 0 ? LIMIT_PAGE_DEFAULT : limit < LIMIT_PAGE ? limit : LIMIT_PAGE;
	list->status = status ? record_status_parse(status) : RECORD_NONE;
	if (status && list->status == RECORD_NONE)
		rc = err_set(err, ERR_INVALID_REQUEST,
			     "status: is none of queued, claimed, running, completed, failed, cancelled");
	if (rc == 0 && after && *after && !record_id_valid(after))
		rc = err_set(err, ERR_INVALID_REQUEST, "cursor: is not one of this list");
	if (rc == 0) {
		snprintf(list->after, sizeof(list->after), "%s", after ? after : "");
		rc = list_pages(e, list, err);
	}
	if (rc == 0) {
		*ret_count = list->count;
		*ret_next = list->more ? strdup(list->after) : NULL;
		if (list->more && !*ret_next)
			rc = err_set(err, ERR_NOMEM, "no memory for a cursor");
	}
	free(list);
	return rc;
}
