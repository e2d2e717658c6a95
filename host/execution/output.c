/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns reading outputs: from the spool while the command is open in this process, from its segments while another host
 * has it, else from the store. Request threads enter. Never shows a byte at an offset and another one there later.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "execution/execution_private.h"

struct output_reader {
	struct executions *e;
	unsigned stream;
	char id[IDENT_ID_MAX + 1];
	struct spool_output *live; /* NULL: remote or stored */
	bool remote;		   /* another host has it */
	bool unread;		   /* only its size is asked for: no object is looked at */
	uint64_t size;
	char key[RECORD_OUTPUT_KEY_MAX];
	char *small; /* the whole stored output, when it is a row */
};

void output_watch_key(const char *id, char ret_key[64])
{
	snprintf(ret_key, 64, "out:%s", id);
}

struct stored_size {
	const char *id;
	const char *host; /* NULL: the claim is not asked for */
	unsigned stream;
	uint64_t size;
	bool open;
	bool ours;			 /* this host has the claim */
	char key[RECORD_OUTPUT_KEY_MAX]; /* of an ended one; "": its record names none of its own */
};

static int stored_size_step(struct txn *txn, void *arg, struct err *err)
{
	struct stored_size *in = arg;
	struct record r;
	struct claim c;
	int rc = steps_load(txn, in->id, &r, in->host ? &c : NULL, err);
	const char *ref = rc ? NULL : record_output_ref(&r, in->stream);

	snprintf(in->key, sizeof(in->key), "%s", ref ? ref : "");
	in->open = rc == 0 && !record_status_terminal(r.status);
	in->ours = in->open && in->host && c.runner && strcmp(c.runner, in->host) == 0;
	in->size = rc ? 0 : (uint64_t)(in->stream == 1 ? r.result.stdout_bytes : r.result.stderr_bytes);
	return rc;
}

static struct spool_output *live_output(struct executions *e, const char *id)
{
	struct spool_output *out = NULL;
	struct run *run;

	lock_take(&e->lock);
	run = queue_find_locked(e, id);
	/* Of a shared store's queue every host has a run in its line; the output is where the claim is. */
	if (run && (run->claimed || store_is_exclusive(e->config.store)))
		out = spool_output_ref(run->out);
	lock_drop(&e->lock);
	return out;
}

void output_moved(struct run *run)
{
	char key[64];

	lock_take(&run->e->lock);
	run->claimed = 0;
	lock_drop(&run->e->lock);
	output_watch_key(run->id, key);
	watch_notify(run->e->config.watch, key);
}

/* Another host may have taken it since: then this host's spool will not grow any more. */
static bool has_moved(struct output_reader *reader)
{
	struct spool_output *now;
	bool final;

	if (store_is_exclusive(reader->e->config.store))
		return false;
	spool_size(reader->live, reader->stream, &final);
	if (final)
		return false;
	now = live_output(reader->e, reader->id);
	spool_output_unref(now);
	return now != reader->live;
}

/* Before an answer promises the bytes: small ones are loaded, large ones looked at. */
static int find_object(struct output_reader *reader, struct err *err)
{
	uint64_t size = 0;
	size_t len = 0;
	int rc;

	if (reader->size == 0)
		return 0;
	if (!reader->key[0])
		return err_set(err, ERR_CORRUPT, "execution %s names no output of its own", reader->id);
	if (reader->size > LIMIT_INLINE_OBJECT) {
		rc = blob_size(reader->e->config.blobs, reader->key, &size, err);
	} else {
		rc = store_get(reader->e->config.store, STORE_OBJECT, reader->key, &reader->small, &len, err);
		size = reader->small ? len : 0;
	}
	if (rc == ERR_NOT_FOUND || (rc == 0 && size != reader->size))
		rc = err_set(err, ERR_CORRUPT, "object %s is missing or has another size", reader->key);
	return rc;
}

static int open_stored(struct output_reader *reader, const struct stored_size *in, struct err *err)
{
	reader->size = in->size;
	memcpy(reader->key, in->key, sizeof(reader->key));
	return reader->unread ? 0 : find_object(reader, err);
}

/* One host's store: what is not in its line has ended. */
static int open_own(struct output_reader *reader, struct stored_size *in, struct err *err)
{
	struct executions *e = reader->e;
	int rc;

	reader->live = live_output(e, reader->id);
	if (reader->live)
		return 0;
	rc = store_view(e->config.store, stored_size_step, in, err);
	if (rc || !in->open)
		return rc ? rc : open_stored(reader, in, err);
	/* It came into line, or ended, between the two looks. */
	reader->live = live_output(e, reader->id);
	if (reader->live)
		return 0;
	rc = store_view(e->config.store, stored_size_step, in, err);
	if (rc == 0 && in->open)
		rc = err_set(err, ERR_STORE, "execution %s is open and not in this host's line yet", reader->id);
	return rc ? rc : open_stored(reader, in, err);
}

/* The rows say who has it: a host that was frozen still believes that its spool is the output. */
static int open_shared(struct output_reader *reader, struct stored_size *in, struct err *err)
{
	int rc;

	in->host = reader->e->config.host_id;
	rc = store_view(reader->e->config.store, stored_size_step, in, err);
	if (rc || !in->open)
		return rc ? rc : open_stored(reader, in, err);
	if (in->ours)
		reader->live = live_output(reader->e, reader->id);
	reader->remote = !reader->live;
	return 0;
}

/* Where the output is now. */
static int find(struct output_reader *reader, struct err *err)
{
	struct stored_size in = {.id = reader->id, .stream = reader->stream};

	return store_is_exclusive(reader->e->config.store) ? open_own(reader, &in, err)
							   : open_shared(reader, &in, err);
}

static int open_reader(struct executions *e, const char *id, unsigned stream, bool unread, struct output_reader **ret,
		       struct err *err)
{
	struct output_reader *reader = record_id_valid(id) ? calloc(1, sizeof(*reader)) : NULL;
	int rc;

	if (!reader)
		return record_id_valid(id) ? err_set(err, ERR_NOMEM, "no memory for a reader")
					   : err_set(err, ERR_NOT_FOUND, "there is no execution %.48s", id);
	reader->e = e;
	reader->stream = stream;
	reader->unread = unread;
	snprintf(reader->id, sizeof(reader->id), "%s", id);
	rc = find(reader, err);
	if (rc)
		output_close(reader);
	else
		*ret = reader;
	return rc;
}

int output_open(struct executions *e, const char *id, unsigned stream, struct output_reader **ret, struct err *err)
{
	return open_reader(e, id, stream, false, ret, err);
}

int output_reach(struct executions *e, const char *id, unsigned stream, uint64_t *ret_size, bool *ret_final,
		 struct err *err)
{
	struct output_reader *reader;
	uint64_t size;
	int rc = open_reader(e, id, stream, true, &reader, err);

	if (rc)
		return rc;
	*ret_size = output_size_now(reader);
	*ret_final = output_size(reader, &size, NULL) == 0;
	output_close(reader);
	return 0;
}

struct piece {
	char *buf;
	size_t cap, len;
};

static int copy_piece(void *arg, const void *ptr, size_t len)
{
	struct piece *piece = arg;

	if (len > piece->cap - piece->len)
		return ERR_INTERNAL;
	memcpy(piece->buf + piece->len, ptr, len);
	piece->len += len;
	return 0;
}

int output_read_object(struct executions *e, const char *key, uint64_t offset, void *buf, size_t cap, size_t *ret_len,
		       struct err *err)
{
	struct piece piece = {.buf = buf, .cap = cap};
	int rc = blob_read(e->config.blobs, key, offset, cap, copy_piece, &piece, err);

	*ret_len = piece.len;
	return rc;
}

static int read_stored(struct output_reader *reader, uint64_t offset, void *buf, size_t cap, size_t *ret_len,
		       struct err *err)
{
	int rc = 0;

	*ret_len = cap;
	if (reader->small)
		memcpy(buf, reader->small + offset, cap);
	else
		rc = output_read_object(reader->e, reader->key, offset, buf, cap, ret_len, err);
	if (rc == 0 && *ret_len != cap)
		rc = err_set(err, ERR_CORRUPT, "object %s is shorter than its record says", reader->key);
	return rc;
}

static int find_again(struct output_reader *reader, struct err *err)
{
	spool_output_unref(reader->live);
	reader->live = NULL;
	reader->remote = false;
	return find(reader, err);
}

static int read_remote(struct output_reader *reader, uint64_t offset, void *buf, size_t cap, size_t *ret_len,
		       bool *ret_end, struct err *err)
{
	bool open;
	int rc = segment_read(reader->e, reader->id, reader->stream, offset, buf, cap, ret_len, &open, err);

	*ret_end = false;
	if (rc || open)
		return rc;
	rc = find_again(reader, err);
	return rc ? rc : output_read(reader, offset, buf, cap, ret_len, ret_end, err);
}

int output_read(struct output_reader *reader, uint64_t offset, void *buf, size_t cap, size_t *ret_len, bool *ret_end,
		struct err *err)
{
	uint64_t left;
	int rc = 0;

	if (reader->live && has_moved(reader))
		rc = find_again(reader, err);
	if (rc)
		return rc;
	if (reader->live)
		return spool_read(reader->live, reader->stream, offset, buf, cap, ret_len, ret_end, err);
	if (reader->remote)
		return read_remote(reader, offset, buf, cap, ret_len, ret_end, err);
	left = offset < reader->size ? reader->size - offset : 0;
	*ret_len = 0;
	if (left > 0 && cap > 0)
		rc = read_stored(reader, offset, buf, left < cap ? (size_t)left : cap, ret_len, err);
	*ret_end = rc == 0 && offset + *ret_len >= reader->size;
	return rc;
}

uint64_t output_size_now(struct output_reader *reader)
{
	bool final;

	if (reader->remote)
		return segment_size(reader->e, reader->id, reader->stream, &final, NULL);
	return reader->live ? spool_size(reader->live, reader->stream, &final) : reader->size;
}

int output_size(struct output_reader *reader, uint64_t *ret_size, struct err *err)
{
	bool final = !reader->remote;
	uint64_t size = reader->live ? spool_size(reader->live, reader->stream, &final) : reader->size;

	if (!final)
		return err_set(err, ERR_NOT_FOUND, "the output is not complete yet");
	*ret_size = size;
	return 0;
}

void output_close(struct output_reader *reader)
{
	if (!reader)
		return;
	spool_output_unref(reader->live);
	free(reader->small);
	free(reader);
}
