/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what comes out of the store rather than from a request: the request stream (after a restart, and whatever else
 * was put into it), and open records whose message is missing. Enters at start on the main thread, then on the GC's.
 * Never lets one message or record that cannot be read stop the others.
 */
#include <stdio.h>
#include <string.h>

#include "core/limits.h"
#include "core/log.h"
#include "execution/execution_private.h"
#include "obs/metrics.h"

#define PAGE 200

/* ---- one execution ---- */

struct look {
	const char *id;
	struct run_facts facts;
	struct executions *e;
	enum record_status status;
	struct ident ident;
	bool hold, foreign;
	bool put; /* in line, by this look */
	/* Under executions.lock. */
	struct look *next;
	bool passed; /* meanwhile */
};

static void look_begin(struct look *look)
{
	struct executions *e = look->e;

	lock_take(&e->lock);
	look->next = e->looks;
	e->looks = look;
	lock_drop(&e->lock);
}

static void look_end(struct look *look)
{
	struct look **at = &look->e->looks;

	lock_take(&look->e->lock);
	while (*at != look)
		at = &(*at)->next;
	*at = look->next;
	lock_drop(&look->e->lock);
}

static int look_step(struct txn *txn, void *arg, struct err *err)
{
	struct look *look = arg;
	struct record r;
	struct claim c;
	int rc = steps_load(txn, look->id, &r, &c, err);

	if (rc == 0)
		rc = ident_make(&look->ident, r.workspace_id, r.task_id, err);
	if (rc)
		return rc;
	look->status = r.status;
	look->foreign = fleet_is_foreign(look->e, &c, txn_now(txn), look->hold);
	take_facts(look->e, txn_now(txn), &r, &c, &look->facts);
	return 0;
}

static bool is_known(struct executions *e, const char *id)
{
	bool known;

	lock_take(&e->lock);
	known = queue_find_locked(e, id) != NULL;
	lock_drop(&e->lock);
	return known;
}

static int ack_step(struct txn *txn, void *arg, struct err *err)
{
	return txn_ack_subject(txn, STREAM_REQUESTS, arg, err);
}

static int put_in_line(struct executions *e, struct look *look, struct err *err)
{
	struct run *run;
	bool room;
	int rc = queue_add(e, &look->ident, look->id, false, &room, &run, err);

	if (rc == ERR_CONFLICT) { /* another thread found it, too */
		err_clear(err);
		return 0;
	}
	if (rc)
		return rc;
	look->put = true;
	run->facts.lasts_ms = 0; /* its worker reads them again */
	lock_take(&e->lock);
	run->queue_expires_ms = look->facts.queue_expires_ms;
	run->passed |= look->passed;
	if (look->status != RECORD_QUEUED)
		queue_inherit_locked(run, look->status == RECORD_RUNNING);
	lock_drop(&e->lock);
	queue_ready(run);
	return 0;
}

static int adopt(struct executions *e, const char *id, bool *ret_put, struct err *err)
{
	struct look look = {.e = e, .id = id, .hold = store_hold_ms(e->config.store) > 0};
	char subject[IDENT_ID_MAX + 1];
	int rc;

	if (is_known(e, id))
		return 0;
	look_begin(&look);
	rc = store_view(e->config.store, look_step, &look, err);
	if (rc == 0 && !look.foreign && !record_status_terminal(look.status))
		rc = put_in_line(e, &look, err);
	look_end(&look);
	*ret_put = look.put;
	if (rc || !record_status_terminal(look.status))
		return rc;
	snprintf(subject, sizeof(subject), "%s", id);
	return steps_update(e, ack_step, subject, err);
}

int recover_adopt(struct executions *e, const char *id, struct err *err)
{
	bool put = false;

	return adopt(e, id, &put, err);
}

void recover_passed(struct executions *e, const char *id)
{
	struct run *run;
	bool passed = false;

	lock_take(&e->lock);
	for (struct look *look = e->looks; look; look = look->next)
		look->passed |= strcmp(look->id, id) == 0;
	run = queue_find_locked(e, id);
	if (run) {
		run->passed = true; /* for whoever owns it */
		passed = queue_pass_locked(run);
	}
	lock_drop(&e->lock);
	if (passed)
		queue_leave(run);
}

/* It waits for its first turn here. */
static struct run *find_waiting_locked(struct executions *e, const char *id)
{
	struct run *run = queue_find_locked(e, id);

	return run && run->state == RUN_READY && !run->taken && !run->heir ? run : NULL;
}

int recover_inherit(struct executions *e, const char *id, struct err *err)
{
	struct look look = {.e = e, .id = id, .hold = store_hold_ms(e->config.store) > 0};
	struct run *run;
	int rc;

	lock_take(&e->lock);
	run = find_waiting_locked(e, id);
	lock_drop(&e->lock);
	if (!run)
		return recover_adopt(e, id, err);
	rc = store_view(e->config.store, look_step, &look, err);
	if (rc || look.foreign || look.status == RECORD_QUEUED || record_status_terminal(look.status))
		return rc;
	lock_take(&e->lock);
	run = find_waiting_locked(e, id);
	if (run)
		queue_inherit_locked(run, look.status == RECORD_RUNNING);
	lock_drop(&e->lock);
	return 0;
}

/* A claim that leads to nothing has no message that could become a dead letter: it becomes one itself, once. */
struct bury_claim {
	const char *id;
	bool buried;
};

static int bury_claim_step(struct txn *txn, void *arg, struct err *err)
{
	struct bury_claim *bury = arg;
	struct store_row claim;
	struct record r;
	const char *why;
	int rc = txn_get(txn, STORE_CLAIM, bury->id, &claim, err);

	/* Another host was faster, or it went away together with its record. */
	bury->buried = false;
	if (rc || !claim.doc)
		return rc;
	rc = steps_load(txn, bury->id, &r, NULL, err);
	bury->buried = rc == ERR_CORRUPT || rc == ERR_NOT_FOUND;
	if (!bury->buried)
		return rc;
	why = rc == ERR_CORRUPT ? "corrupt_record" : "no_record";
	rc = steps_dead_letter(txn, why, bury->id, 0, "", 0, err);
	return rc ? rc : txn_delete(txn, STORE_CLAIM, bury->id, err);
}

int recover_bury_claim(struct executions *e, const char *id, struct err *err)
{
	struct bury_claim bury = {.id = id};
	int rc = steps_update(e, bury_claim_step, &bury, err);

	if (rc || !bury.buried)
		return rc;
	log_error("a claimed execution has no record that can be read; its claim became a dead letter",
		  KS("execution", id));
	metric_add(METRIC_DEAD_LETTERS, 0, 0, 1);
	return 0;
}

/* ---- the stream ---- */

struct message {
	uint64_t seq;
	char id[IDENT_ID_MAX + 1];
	const char *why; /* not NULL: it cannot be one */
};

struct page {
	struct executions *e;
	uint64_t after;
	struct message messages[PAGE];
	size_t count, limit;
};

static bool page_one(const struct stream_entry *entry, void *arg)
{
	struct page *page = arg;
	struct message *m = &page->messages[page->count++];

	*m = (struct message){.seq = entry->seq};
	(void)event_parse_message(entry->doc ? entry->doc : "", entry->doc_len, m->id, &m->why);
	return page->count < PAGE;
}

static int page_step(struct txn *txn, void *arg, struct err *err)
{
	struct page *page = arg;

	page->count = 0;
	return txn_read_stream(txn, STREAM_REQUESTS, page->after, page->limit, page_one, page, err);
}

struct bury {
	const struct message *message;
	struct err failed;
	bool found;
	struct txn *txn;
};

static bool bury_one(const struct stream_entry *entry, void *arg)
{
	struct bury *bury = arg;

	if (entry->seq == bury->message->seq) {
		bury->found = true;
		steps_dead_letter(bury->txn, bury->message->why, entry->subject, entry->seq,
				  entry->doc ? entry->doc : "", entry->doc_len, &bury->failed);
	}
	return false;
}

static int bury_step(struct txn *txn, void *arg, struct err *err)
{
	struct bury *bury = arg;
	int rc;

	bury->txn = txn;
	bury->found = false;
	err_clear(&bury->failed);
	rc = txn_read_stream(txn, STREAM_REQUESTS, bury->message->seq - 1, 1, bury_one, bury, err);
	if (rc == 0 && bury->failed.code) {
		if (err)
			*err = bury->failed;
		rc = bury->failed.code;
	}
	return rc ? rc : txn_ack(txn, STREAM_REQUESTS, bury->message->seq, err);
}

static int bury(struct executions *e, const struct message *message, struct err *err)
{
	struct bury arg = {.message = message};
	int rc = steps_update(e, bury_step, &arg, err);

	if (rc)
		return rc;
	log_warn("a message became a dead letter", KI("seq", message->seq), KS("reason", message->why));
	metric_add(METRIC_DEAD_LETTERS, 0, 0, arg.found);
	return 0;
}

static int handle(struct executions *e, struct message *message, struct err *err)
{
	int rc = message->why ? 0 : recover_adopt(e, message->id, err);

	if (rc == ERR_NOT_FOUND)
		message->why = "no_record";
	else if (rc == ERR_CORRUPT)
		message->why = "corrupt_record";
	else if (rc)
		return rc;
	if (rc == ERR_CORRUPT)
		log_error("a record cannot be read, it is left alone", KS("error", err->msg));
	return message->why ? bury(e, message, err) : 0;
}

/* Huge messages may not fit into one step together; one that does not fit alone must not keep the host from starting.
 */
static int read_page(struct page *page, struct err *err)
{
	struct store *store = page->e->config.store;
	int rc = store_view(store, page_step, page, err);

	if (rc == ERR_NOMEM && page->limit > 1) {
		page->limit = 1;
		rc = store_view(store, page_step, page, err);
	}
	if (rc != ERR_NOMEM)
		return rc;
	log_error("a message is too large to be read; those behind it wait for the look at the records",
		  KI("after", page->after));
	page->count = 0;
	return 0;
}

int recover_stream(struct executions *e, struct err *err)
{
	struct page *page = calloc(1, sizeof(*page));
	int rc = page ? 0 : err_set(err, ERR_NOMEM, "no memory to read the request stream");

	if (rc)
		return rc;
	page->e = e;
	page->limit = PAGE;
	do {
		page->after = e->last_seq;
		rc = read_page(page, err);
		for (size_t i = 0; rc == 0 && i < page->count; i++) {
			rc = handle(e, &page->messages[i], err);
			if (rc == 0)
				e->last_seq = page->messages[i].seq;
		}
	} while (rc == 0 && page->count == page->limit);
	free(page);
	return rc;
}

/* ---- messages that nobody needs ---- */

/* Who claims or ends an execution takes away the messages that the store finds by it; one that another program appended is not
 * among them. */
static int spent_step(struct txn *txn, void *arg, struct err *err)
{
	const struct message *m = arg;
	struct record r;
	struct claim c;
	int rc = steps_load(txn, m->id, &r, &c, err);

	if (rc == ERR_NOT_FOUND || rc == ERR_CORRUPT)
		return 0; /* whoever reads it first makes it a dead letter */
	if (rc == 0 && (record_status_terminal(r.status) || (r.status != RECORD_QUEUED && c.runner)))
		rc = txn_ack(txn, STREAM_REQUESTS, m->seq, err);
	return rc;
}

int recover_spent(struct executions *e, struct err *err)
{
	struct page *page = calloc(1, sizeof(*page));
	int rc = page ? 0 : err_set(err, ERR_NOMEM, "no memory to read the request stream");

	if (rc)
		return rc;
	page->e = e;
	page->limit = PAGE;
	do {
		rc = read_page(page, err);
		for (size_t i = 0; rc == 0 && i < page->count; i++) {
			page->after = page->messages[i].seq;
			if (!page->messages[i].why)
				rc = steps_update(e, spent_step, &page->messages[i], err);
		}
	} while (rc == 0 && page->count == page->limit);
	free(page);
	return rc;
}

/* ---- records without a message ---- */

struct open_page {
	char after[IDENT_ID_MAX + 1];
	char ids[PAGE][IDENT_ID_MAX + 1];
	enum record_status status[PAGE];
	size_t count, seen;
	struct arena *arena;
};

static bool open_one(const struct store_row *row, void *arg)
{
	struct open_page *page = arg;
	enum record_status status;

	page->seen++;
	snprintf(page->after, sizeof(page->after), "%s", row->key);
	arena_reset(page->arena);
	if (record_decode_status(page->arena, row->key, row->doc, row->doc_len, &status, NULL) == 0) {
		page->status[page->count] = status;
		snprintf(page->ids[page->count++], sizeof(page->ids[0]), "%s", row->key);
	}
	return true;
}

static int open_step(struct txn *txn, void *arg, struct err *err)
{
	struct open_page *page = arg;
	char after[IDENT_ID_MAX + 1];

	memcpy(after, page->after, sizeof(after));
	page->count = page->seen = 0;
	return txn_scan(txn, STORE_EXECUTION, NULL, after, false, PAGE, open_one, page, err);
}

/* One that another host has is passed over. */
static int adopt_missed(struct executions *e, const char *id, struct err *err)
{
	bool put = false;
	int rc = adopt(e, id, &put, err);

	if (put)
		log_warn("an open execution had no message", KS("execution", id));
	return rc == ERR_NOT_FOUND || rc == ERR_CORRUPT ? 0 : rc;
}

/* That another host took or ended it may not have been heard. */
static int look_at(struct executions *e, const char *id, enum record_status status, struct err *err)
{
	if (status != RECORD_QUEUED)
		recover_passed(e, id);
	return record_status_terminal(status) ? 0 : adopt_missed(e, id, err);
}

/* All whose ids come after `after`. */
static int look_through(struct executions *e, const char *after, struct err *err)
{
	struct open_page *page = calloc(1, sizeof(*page));
	int rc = 0;

	if (page)
		page->arena = arena_new(4 * LIMIT_ROW);
	if (!page || !page->arena) {
		free(page);
		return err_set(err, ERR_NOMEM, "no memory to look at the records");
	}
	snprintf(page->after, sizeof(page->after), "%s", after);
	do {
		rc = store_view(e->config.store, open_step, page, err);
		for (size_t i = 0; rc == 0 && i < page->count; i++)
			rc = look_at(e, page->ids[i], page->status[i], err);
	} while (rc == 0 && page->seen == PAGE);
	arena_free(page->arena);
	free(page);
	return rc;
}

int recover_lost(struct executions *e, struct err *err)
{
	return look_through(e, "", err);
}

/*
 * What waits is younger than its time in the queue, and ids sort by age; a create may have waited for the store with
 * its id for a claim's life. The sweep finds what is older, and what runs has a claim, whose end is looked for anyway.
 */
int recover_waiting(struct executions *e, struct err *err)
{
	const struct conf *conf = e->config.conf;
	char after[IDENT_ID_MAX + 1];
	int64_t now;
	int rc = store_now(e->config.store, &now, err);

	if (rc)
		return rc;
	record_first_id(now - conf->exec_queue_ms - conf->claim_ttl_ms, after);
	return look_through(e, after, err);
}

bool recover_is_open(struct txn *txn, const char *id, void *arg)
{
	enum record_status status;
	struct store_row row;

	(void)arg;
	if (txn_get(txn, STORE_EXECUTION, id, &row, NULL) || !row.doc)
		return false;
	return record_decode_status(txn_arena(txn), id, row.doc, row.doc_len, &status, NULL) == 0 &&
	       !record_status_terminal(status);
}
