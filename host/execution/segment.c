/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what other hosts see of a running command's output: its bytes so far as objects of at most 1 MiB, the last one
 * written anew while it grows, and how many bytes they hold in the private row. Only where the store is shared. A
 * thread of the fleet's writes, request threads read. Never says that there are bytes which are not in an object yet.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/failpoint.h"
#include "core/limits.h"
#include "core/log.h"
#include "execution/execution_private.h"

#define CELL LIMIT_MIB
#define PAGE 64 /* runs of one look */

static void cell_key(const char *id, int64_t attempt, unsigned stream, uint64_t offset, char ret_key[RECORD_OUTPUT_KEY_MAX])
{
	snprintf(ret_key, RECORD_OUTPUT_KEY_MAX, "executions/%s/live/%lld/%u/%llu", id, (long long)attempt, stream,
		 (unsigned long long)(offset / CELL));
}

/* ---- the owner ---- */

struct growing {
	char id[IDENT_ID_MAX + 1];
	int64_t attempt;
	struct spool_output *out;
	uint64_t before[2], now[2];
};

struct growing_page {
	struct growing runs[PAGE];
	size_t count;
	char after[IDENT_ID_MAX + 1];
};

static bool growing_one(const char *key, void *value, void *arg)
{
	struct growing_page *page = arg;
	struct run *run = value;
	struct growing *g = &page->runs[page->count];
	bool final = false;

	if (strcmp(key, page->after) <= 0 || !run->claimed || !run->has_session)
		return true;
	for (unsigned i = 0; i < 2; i++) {
		g->before[i] = run->published[i];
		g->now[i] = spool_size(run->out, i + 1, &final);
	}
	/* What has ended is about to be stored whole. */
	if (final || (g->now[0] == g->before[0] && g->now[1] == g->before[1]))
		return true;
	snprintf(g->id, sizeof(g->id), "%s", key);
	g->attempt = run->claimed;
	g->out = spool_output_ref(run->out);
	return ++page->count < PAGE;
}

struct publish {
	struct executions *e;
	const struct growing *g;
	char event_id[IDENT_ID_MAX + 1];
	bool over; /* it has ended without this host */
};

static int publish_step(struct txn *txn, void *arg, struct err *err)
{
	struct publish *p = arg;
	struct record_change change = {.attempt = p->g->attempt};
	char key[64];
	struct record r;
	struct claim c;
	bool replay;
	int rc = steps_load(txn, p->g->id, &r, &c, err);

	p->over = rc == ERR_NOT_FOUND || (rc == 0 && record_status_terminal(r.status));
	if (rc || r.status != RECORD_RUNNING || r.attempt != p->g->attempt || !c.runner ||
	    strcmp(c.runner, p->e->config.host_id) != 0)
		return rc == ERR_NOT_FOUND ? 0 : rc;
	c.live_attempt = p->g->attempt;
	c.live_stdout = (int64_t)p->g->now[0];
	c.live_stderr = (int64_t)p->g->now[1];
	rc = steps_put_claim(txn, r.id, &c, err);
	if (rc == 0)
		rc = steps_apply(p->e, txn, &r, EVENT_PROGRESS, &change, p->event_id, &replay, err);
	output_watch_key(r.id, key);
	return rc ? rc : txn_notify(txn, key, err);
}

/* The objects that hold the bytes from `before` on; the first of them may be there already, with less in it. */
static int put_cells(struct publish *p, unsigned stream, char *buf, struct err *err)
{
	const struct growing *g = p->g;
	uint64_t to = g->now[stream - 1];
	char key[RECORD_OUTPUT_KEY_MAX];
	int rc = 0;

	for (uint64_t at = g->before[stream - 1] / CELL * CELL; rc == 0 && at < to; at += CELL) {
		size_t want = to - at < CELL ? (size_t)(to - at) : CELL, got = 0, n = 0;
		bool end;

		do {
			rc = spool_read(g->out, stream, at + got, buf + got, want - got, &n, &end, err);
			got += n;
		} while (rc == 0 && n > 0 && got < want);
		if (rc == 0 && got < want)
			rc = err_set(err, ERR_IO, "the spool of %s is shorter than it was", g->id);
		cell_key(g->id, g->attempt, stream, at, key);
		if (rc == 0)
			rc = blob_put_bytes(p->e->config.blobs, key, buf, want, err);
	}
	return rc;
}

static void published(struct executions *e, const struct growing *g)
{
	struct run *run;

	lock_take(&e->lock);
	run = queue_find_locked(e, g->id);
	/* Unless it is to be shown anew: a new store was told of it meanwhile. */
	if (run && run->out == g->out && memcmp(run->published, g->before, sizeof(g->before)) == 0)
		memcpy(run->published, g->now, sizeof(run->published));
	lock_drop(&e->lock);
}

static int drop_cells(struct executions *e, const char *id, struct err *err)
{
	char prefix[RECORD_OUTPUT_KEY_MAX];

	snprintf(prefix, sizeof(prefix), "executions/%s/live", id);
	return blob_delete_prefix(e->config.blobs, prefix, err);
}

static void publish(struct executions *e, const struct growing *g, char *buf)
{
	struct publish p = {.e = e, .g = g};
	struct err err = {0};
	int rc = 0;

	(void)FAILPOINT("exec.shown.before");
	for (unsigned stream = 1; rc == 0 && stream <= 2; stream++)
		rc = put_cells(&p, stream, buf, &err);
	steps_event_id(p.event_id);
	if (rc == 0)
		rc = steps_update(e, publish_step, &p, &err);
	/* Whoever ended it has removed them, maybe before these were put. */
	if (rc == 0 && p.over)
		rc = drop_cells(e, g->id, &err);
	if (rc == 0)
		published(e, g);
	else if (rc != ERR_SHUTTING_DOWN)
		log_warn("output cannot be shown to other hosts yet", KS("execution", g->id), KS("error", err.msg));
}

void segment_publish(struct executions *e)
{
	struct growing_page *page = calloc(1, sizeof(*page));
	char *buf = malloc(CELL);
	bool more = page && buf;

	while (more) {
		page->count = 0;
		lock_take(&e->lock);
		map_each(e->runs, growing_one, page);
		lock_drop(&e->lock);
		more = page->count == PAGE;
		if (page->count)
			memcpy(page->after, page->runs[page->count - 1].id, sizeof(page->after));
		for (size_t i = 0; i < page->count; i++) {
			publish(e, &page->runs[i], buf);
			spool_output_unref(page->runs[i].out);
		}
	}
	free(buf);
	free(page);
}

void segment_drop(struct run *run)
{
	struct err err = {0};
	bool any;

	lock_take(&run->e->lock);
	any = run->published[0] || run->published[1];
	lock_drop(&run->e->lock);
	/* A former owner may have shown some. */
	any |= run->facts.attempt > 1 && !store_is_exclusive(run->e->config.store);
	if (any && drop_cells(run->e, run->id, &err))
		log_info("what was shown to other hosts stays until the record goes", KS("execution", run->id),
			 KS("error", err.msg));
}

/* ---- readers ---- */

struct live_look {
	const char *id;
	unsigned stream;
	bool open;
	int64_t attempt;
	uint64_t size;
};

static int live_step(struct txn *txn, void *arg, struct err *err)
{
	struct live_look *look = arg;
	struct record r;
	struct claim c;
	int rc = steps_load(txn, look->id, &r, &c, err);

	look->open = rc == 0 && !record_status_terminal(r.status);
	look->attempt = rc == 0 ? c.live_attempt : 0;
	look->size = rc == 0 ? (uint64_t)(look->stream == 1 ? c.live_stdout : c.live_stderr) : 0;
	return rc;
}

static int look_live(struct executions *e, struct live_look *look, struct err *err)
{
	return store_view(e->config.store, live_step, look, err);
}

uint64_t segment_size(struct executions *e, const char *id, unsigned stream, bool *ret_open, struct err *err)
{
	struct live_look look = {.id = id, .stream = stream};

	*ret_open = look_live(e, &look, err) == 0 && look.open;
	return look.size;
}

int segment_read(struct executions *e, const char *id, unsigned stream, uint64_t offset, void *buf, size_t cap,
		 size_t *ret_len, bool *ret_open, struct err *err)
{
	struct live_look look = {.id = id, .stream = stream};
	char key[RECORD_OUTPUT_KEY_MAX];
	uint64_t in_cell = CELL - offset % CELL;
	int rc = look_live(e, &look, err);

	*ret_len = 0;
	*ret_open = rc == 0 && look.open;
	if (rc || !look.open || offset >= look.size)
		return rc;
	if (cap > in_cell)
		cap = (size_t)in_cell;
	if (cap > look.size - offset)
		cap = (size_t)(look.size - offset);
	cell_key(id, look.attempt, stream, offset, key);
	rc = output_read_object(e, key, offset % CELL, buf, cap, ret_len, err);
	/* It ended between the two looks: the next one finds the stored output. */
	return rc == ERR_NOT_FOUND ? 0 : rc;
}
