/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the acceptance of executions: rules, idempotency, record and message in one step, with claim, begin and started
 * in it when the runner has room and the session is there. Request threads enter. Never answers before the record is
 * durable.
 */
#include <stdio.h>
#include <string.h>

#include "core/failpoint.h"
#include "core/secret.h"
#include "execution/execution_private.h"
#include "execution/nonce.h"
#include "execution/validate.h"
#include "obs/metrics.h"
#include "session/binding.h"

#define IDEMPOTENCY_KEY_MAX (IDENT_KEY_MAX + 66)

struct idempotency {
	const char *id, *sha256;
};

static const struct json_field idempotency_fields[] = {
	{.name = "id", .type = JSON_STR, .flags = JSON_REQUIRED, .off = offsetof(struct idempotency, id)},
	{.name = "sha256", .type = JSON_STR, .flags = JSON_REQUIRED, .off = offsetof(struct idempotency, sha256)},
	{0},
};

struct create_step {
	struct executions *e;
	const struct execution_create *in;
	struct run *run;
	bool room;
	char events[3][IDENT_ID_MAX + 1];
	char key[IDEMPOTENCY_KEY_MAX + 1];
	/* Out of the step. */
	bool replayed, by_nonce;
	char replayed_id[IDENT_ID_MAX + 1];
	bool begun, live;
	struct err begin_err;
	struct record record;
	struct run_facts facts;
};

/* ws/task/digest of the key: the key's own bytes may be anything. */
void create_idempotency_key(const char *workspace, const char *task, const char *key, char *ret, size_t cap)
{
	char digest[65];

	secret_sha256_hex(key, strlen(key), digest);
	snprintf(ret, cap, "%s/%s/%s", workspace, task, digest);
}

/* ---- the step ---- */

static int check_idempotency(struct create_step *in, struct txn *txn, struct err *err)
{
	struct idempotency known;
	struct store_row row, record;
	int rc = txn_get(txn, STORE_IDEMPOTENCY, in->key, &row, err);

	if (rc || !row.doc)
		return rc;
	rc = json_decode_text(txn_arena(txn), idempotency_fields, row.doc, row.doc_len, &known, sizeof(known), err);
	if (rc == 0)
		rc = txn_get(txn, STORE_EXECUTION, known.id, &record, err);
	if (rc || !record.doc)
		return rc; /* a key whose record is gone is free again */
	if (*known.sha256 && strcmp(known.sha256, in->in->body_sha256) != 0)
		return err_set(err, ERR_CONFLICT, "the idempotency key was used with another body");
	in->replayed = true;
	snprintf(in->replayed_id, sizeof(in->replayed_id), "%s", known.id);
	return 0;
}

/* A signed token is good for one create: with the same body again it gives the record that it made. */
static int check_nonce(struct create_step *in, struct txn *txn, struct err *err)
{
	bool used;
	int rc = nonce_look_step(txn, in->in->nonce_key, in->in->body_sha256, &used, in->replayed_id, err);

	if (rc || !used)
		return rc;
	in->replayed = in->by_nonce = in->replayed_id[0] != '\0';
	return in->replayed ? 0 : nonce_refuse(err);
}

/* By its key it is the record of another token: this one is used up with it, too, and makes none later. */
static int keep_nonce(struct create_step *in, struct txn *txn, struct err *err)
{
	const struct execution_create *req = in->in;

	if (!req->nonce_key || in->by_nonce)
		return 0;
	return nonce_put_step(txn, req->nonce_key, req->nonce_expires_ms, in->replayed_id, req->body_sha256, err);
}

int create_put_idempotency(struct txn *txn, const struct record *r, const char *sha256, struct err *err)
{
	struct idempotency known = {.id = r->id, .sha256 = sha256};
	char key[IDEMPOTENCY_KEY_MAX + 1];
	struct buf buf;
	int rc;

	create_idempotency_key(r->workspace_id, r->task_id, r->idempotency_key, key, sizeof(key));
	buf_init(&buf, 1024);
	rc = json_encode(&buf, idempotency_fields, &known, 0);
	if (rc == 0)
		rc = txn_put(txn, STORE_IDEMPOTENCY,
			     &(struct store_row){.key = key, .group = "", .doc = buf.ptr, .doc_len = buf.len}, err);
	buf_fini(&buf);
	return rc;
}

/* Is it there? What it asks is then none of today's business: neither the configuration's nor the queue's. */
static int replay_step(struct txn *txn, void *arg, struct err *err)
{
	struct create_step *in = arg;
	int rc = 0;

	in->replayed = in->by_nonce = false;
	if (in->in->nonce_key)
		rc = check_nonce(in, txn, err);
	if (rc == 0 && !in->replayed && in->in->idempotency_key)
		rc = check_idempotency(in, txn, err);
	return rc || !in->replayed ? rc : keep_nonce(in, txn, err);
}

/* A session that is there takes it, or will as soon as it can. */
static bool has_session(const struct binding *b)
{
	return b->state == BINDING_LIVE || b->state == BINDING_CAPTURING || b->state == BINDING_PROVISIONING ||
	       b->state == BINDING_HYDRATING;
}

static int load_binding(struct create_step *in, struct txn *txn, struct binding *ret, struct err *err)
{
	char key[IDENT_KEY_MAX + 1];
	struct store_row row;
	int rc;

	ident_key(&in->in->ident, key);
	rc = txn_get(txn, STORE_TASK, key, &row, err);
	return rc ? rc : binding_decode(txn_arena(txn), &in->in->ident, row.doc, row.doc_len, ret, err);
}

/* Told at once, whether or not the runner has room: a live session in another region, or none and no target that could
 * take one. Who is closed for new sessions keeps those it has. */
static int check_session(struct create_step *in, struct txn *txn, struct err *err)
{
	const char *region = in->in->region ? in->in->region : "";
	struct err closed = {0};
	struct binding b;
	int rc;

	if (session_placeable(in->e->config.sessions, region, &closed) == 0 && !*region)
		return 0;
	rc = load_binding(in, txn, &b, err);
	if (rc)
		return rc;
	if (closed.code && !has_session(&b)) {
		if (err)
			*err = closed;
		return closed.code;
	}
	if (!*region || b.state != BINDING_LIVE || strcmp(b.region, region) == 0)
		return 0;
	return err_set(err, ERR_REGION_CONFLICT, "the task's session is in region \"%s\", not \"%s\"", b.region,
		       region);
}

static int put_rows(struct create_step *in, struct txn *txn, struct err *err)
{
	const struct execution_create *req = in->in;
	struct store_row index = {.key = in->run->id,
				  .group = req->ident.workspace,
				  .doc = req->ident.task,
				  .doc_len = strlen(req->ident.task)};
	struct store_row command = {
		.key = in->run->id, .group = "", .doc = req->command_body, .doc_len = req->command_len};
	int rc = txn_put(txn, STORE_EXECUTION_INDEX, &index, err);

	if (rc == 0)
		rc = txn_put(txn, STORE_COMMAND, &command, err);
	if (rc == 0 && req->idempotency_key)
		rc = create_put_idempotency(txn, &in->record, req->body_sha256, err);
	if (rc == 0 && req->nonce_key)
		rc = nonce_put_step(txn, req->nonce_key, req->nonce_expires_ms, in->run->id, req->body_sha256, err);
	return rc;
}

/* Faults of a begin that are the caller's, told at once; the store's own end the step; with any other the execution is
 * queued and the runner sees what comes of it. */
static bool refuses_create(int code)
{
	return code == ERR_REGION_CONFLICT || code == ERR_SESSION_LIFE || code == ERR_NO_TARGET || code == ERR_STORE ||
	       code == ERR_IO || code == ERR_NOMEM || code == ERR_CORRUPT || code == ERR_INTERNAL;
}

static int begin_now(struct create_step *in, struct txn *txn, struct claim *c, struct err *err)
{
	struct run *run = in->run;
	int rc = session_begin_step(in->e->config.sessions, txn, &run->begin, &in->begin_err);

	if (rc && refuses_create(rc)) {
		if (err)
			*err = in->begin_err;
		return rc;
	}
	if (rc)
		return 0;
	in->begun = true;
	in->live = run->begin.outcome == BEGIN_LIVE;
	rc = take_claimed_step(run, txn, &in->record, c, EVENT_CLAIMED, in->events[1], err);
	if (rc == 0 && in->live)
		rc = take_started_step(run, txn, &in->record, c, EVENT_STARTED, in->events[2], err);
	if (rc == 0)
		rc = steps_put_claim(txn, in->record.id, c, err);
	return rc;
}

static int create_step(struct txn *txn, void *arg, struct err *err)
{
	struct create_step *in = arg;
	struct record_change none = {0};
	struct claim c = {0};
	bool replay;
	int rc;

	in->begun = in->live = false;
	err_clear(&in->begin_err);
	validate_record(in->e->config.conf, in->in, in->run->id, &in->record);
	rc = replay_step(txn, in, err);
	if (rc || in->replayed)
		return rc;
	rc = check_session(in, txn, err);
	if (rc == 0)
		rc = txn_fresh(txn, in->run->id, err);
	if (rc == 0)
		rc = steps_move(in->e, txn, &in->record, EVENT_REQUESTED, &none, in->events[0], &replay, err);
	if (rc == 0)
		rc = put_rows(in, txn, err);
	if (rc == 0 && in->room)
		rc = begin_now(in, txn, &c, err);
	if (rc == 0)
		rc = steps_put_record(in->e, txn, &in->record, err);
	if (rc == 0 && in->live)
		rc = lost_keep_step(in->run, txn, err);
	if (rc == 0 && !in->begun)
		rc = steps_request(txn, &in->record, in->events[0], err); /* whoever has room takes it */
	take_facts(in->e, txn_now(txn), &in->record, &c, &in->facts);
	return rc;
}

/* ---- around it ---- */

/* What begin must know before the record exists. */
static void first_facts(struct create_step *in)
{
	struct record r;
	struct claim none = {0};

	validate_record(in->e->config.conf, in->in, in->run->id, &r);
	take_facts(in->e, 0, &r, &none, &in->run->facts);
}

/* The record is durable; whatever happens now is the runner's matter. */
static void accepted(struct create_step *in)
{
	struct run *run = in->run;
	struct err err = {0};
	bool failed = false;

	(void)FAILPOINT("exec.accepted");
	metric_add(METRIC_EXEC_ACCEPTED, 0, 0, 1);
	take_set_facts(run, &in->facts);
	if (!runs_commands(in->e)) { /* whoever has that role was told in the step */
		output_moved(run);
		queue_end(run);
		return;
	}
	if (!in->room) {
		queue_ready(run);
		return;
	}
	if (in->begun)
		failed = take_begun(run, &run->wait_err) != 0;
	run->waited = in->begun;
	if (in->live)
		take_set_started(run);
	if (!in->begun || failed)
		take_unprepare(run);
	/* Its body is at hand; should memory be short, the worker reads it from the store. */
	if (in->live)
		(void)plan_set(run, &in->record, in->in->command_body, in->in->command_len, &err);
	queue_submit(run);
}

static int prepare(struct executions *e, const struct execution_create *in, char id[IDENT_ID_MAX + 1], struct err *err)
{
	int64_t now;
	int rc = validate_create(e->config.conf, in, err);

	if (rc == 0)
		rc = store_now(e->config.store, &now, err);
	if (rc == 0)
		record_new_id(now, id);
	return rc;
}

/* What no new record may be made of may still have one. Only a signed token that it uses up is written. */
static int find_replay(struct create_step *step, int refusal, struct err *err)
{
	const struct execution_create *in = step->in;
	struct err why = {0};
	int rc = 0;

	if (in->nonce_key)
		rc = steps_update(step->e, replay_step, step, &why);
	else if (in->idempotency_key)
		rc = store_view(step->e->config.store, replay_step, step, &why);
	if (rc && err)
		*err = why;
	if (rc == 0 && step->replayed)
		err_clear(err);
	return rc || step->replayed ? rc : refusal;
}

static int make(struct create_step *step, struct err *err)
{
	int rc;

	for (unsigned i = 0; i < 3; i++)
		steps_event_id(step->events[i]);
	first_facts(step);
	if (step->room)
		take_prepare(step->run);
	rc = steps_update(step->e, create_step, step, err);
	if (rc == 0 && !step->replayed)
		accepted(step);
	else
		queue_end(step->run);
	return rc;
}

int execution_create(struct executions *e, const struct execution_create *in, char ret_id[IDENT_ID_MAX + 1],
		     bool *ret_replayed, struct err *err)
{
	struct create_step step = {.e = e, .in = in};
	char id[IDENT_ID_MAX + 1];
	int rc = prepare(e, in, id, err);

	if (in->idempotency_key)
		create_idempotency_key(in->ident.workspace, in->ident.task, in->idempotency_key, step.key,
				       sizeof(step.key));
	if (rc == 0)
		rc = queue_add(e, &in->ident, id, true, &step.room, &step.run, err);
	rc = rc ? find_replay(&step, rc, err) : make(&step, err);
	if (rc)
		return rc;
	memcpy(ret_id, step.replayed ? step.replayed_id : id, IDENT_ID_MAX + 1);
	*ret_replayed = step.replayed;
	return 0;
}
