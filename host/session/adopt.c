/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store that is new to this deployment, because it is the first or because the former one was lost. Then nothing is
 * an orphan: for the time of one active lease, or until the operator says so, the sweep is off, and what carries a
 * task's identity at a provider gets its row back once, with an idle lease. Entered at start, by the sweep's jobs and
 * by the API. Never invents what no provider tells.
 */
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "plugin/call.h"
#include "session/sweep.h"

#define META_KEY "sessions"
#define ASK_MS 10000 /* for each question about one session; a list may tell less than there is */
#define ASKS_MS 60000 /* for those of one round; the next round begins where they ended */
#define NAMED_MOST 10 /* of those that failed in one round, in the log */

struct lineage {	      /* row "sessions" of META */
	const char *store;    /* id of the store it was written for */
	int64_t off_until_ms; /* the sweep is off until then */
	const char **pending; /* targets whose sessions are still to be adopted */
	size_t pending_count;
};

static const struct json_field fields[] = {
	{"store", JSON_STR, JSON_REQUIRED, offsetof(struct lineage, store)},
	{"off_until", JSON_I64, 0, offsetof(struct lineage, off_until_ms)},
	{"pending", JSON_STRV, JSON_OMIT, offsetof(struct lineage, pending), offsetof(struct lineage, pending_count)},
	{0},
};

static int get_lineage(struct sessions *s, struct txn *txn, struct lineage *ret, bool *ret_new, struct err *err)
{
	struct store_row row;
	int r = txn_get(txn, STORE_META, META_KEY, &row, err);

	memset(ret, 0, sizeof(*ret));
	*ret_new = true;
	if (r || !row.doc)
		return r;
	r = json_decode_text(txn_arena(txn), fields, row.doc, row.doc_len, ret, sizeof(*ret), err);
	*ret_new = r == 0 && strcmp(ret->store, store_id(s->config.store)) != 0;
	return r;
}

static int put_lineage(struct txn *txn, const struct lineage *lineage, struct err *err)
{
	struct store_row row = {.key = META_KEY, .group = ""};
	struct buf doc;
	int r;

	buf_init(&doc, LIMIT_JOB_ARENA);
	r = json_encode(&doc, fields, lineage, 0);
	row.doc = doc.ptr;
	row.doc_len = doc.len;
	r = r ? err_set(err, r, "the store's lineage cannot be written") : txn_put(txn, STORE_META, &row, err);
	buf_fini(&doc);
	return r;
}

/* ---- start ---- */

struct noted {
	struct sessions *s;
	bool is_new;
};

static int note_step(struct txn *txn, void *arg, struct err *err)
{
	struct noted *noted = arg;
	const struct registry *registry = noted->s->config.registry;
	struct lineage lineage;
	int r = get_lineage(noted->s, txn, &lineage, &noted->is_new, err);

	if (r || !noted->is_new)
		return r;
	lineage.store = store_id(noted->s->config.store);
	lineage.off_until_ms = binding_after(txn_now(txn), noted->s->rules.active_ms);
	lineage.pending_count = 0;
	lineage.pending = arena_alloc(txn_arena(txn), (registry->target_count + 1) * sizeof(*lineage.pending));
	if (!lineage.pending)
		return err_set(err, ERR_NOMEM, "no memory is left for the store's lineage");
	for (size_t i = 0; i < registry->target_count; i++)
		lineage.pending[lineage.pending_count++] = registry->targets[i]->conf->name;
	return put_lineage(txn, &lineage, err);
}

int sweep_note_store(struct sessions *s, struct err *err)
{
	struct noted noted = {.s = s};
	int r = store_update(s->config.store, note_step, &noted, err);

	if (r == 0 && noted.is_new)
		log_info("the store is new: what providers still hold is adopted, and orphans are not swept for one "
			 "active lease",
			 KS("store", store_id(s->config.store)), KI("ms", s->rules.active_ms));
	return r;
}

struct look {
	struct sessions *s;
	const struct target *target;
	struct sweep_state *ret;
};

static bool is_pending(const struct lineage *lineage, const char *target)
{
	for (size_t i = 0; i < lineage->pending_count; i++) {
		if (strcmp(lineage->pending[i], target) == 0)
			return true;
	}
	return false;
}

static int look_step(struct txn *txn, void *arg, struct err *err)
{
	struct look *look = arg;
	struct lineage lineage;
	bool is_new;
	int r = get_lineage(look->s, txn, &lineage, &is_new, err);

	*look->ret = (struct sweep_state){0};
	if (r || is_new)
		return r;
	look->ret->on = txn_now(txn) >= lineage.off_until_ms;
	look->ret->pending = is_pending(&lineage, look->target->conf->name);
	return 0;
}

int sweep_look(struct sessions *s, const struct target *target, struct sweep_state *ret, struct err *err)
{
	struct look look = {s, target, ret};

	return store_view(s->config.store, look_step, &look, err);
}

/* ---- recover ---- */

static int recover_step(struct txn *txn, void *arg, struct err *err)
{
	struct sessions *s = arg;
	struct lineage lineage;
	bool is_new;
	int r = get_lineage(s, txn, &lineage, &is_new, err);

	if (r)
		return r;
	lineage.store = store_id(s->config.store);
	lineage.off_until_ms = 0;
	return put_lineage(txn, &lineage, err);
}

int session_recover(struct sessions *s, struct err *err)
{
	int r = store_update(s->config.store, recover_step, s, err);

	if (r)
		return r;
	log_info("orphans are swept from now on");
	session_kick_gc(s);
	return 0;
}

/* ---- adoption ---- */

struct adopt {
	struct job *job;
	const struct made *made;
	struct binding_session session;
	bool adopted;
};

static int adopt_row(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	struct adopt *adopt = arg;
	const struct target *target = adopt->job->target;
	struct binding_found found = {
		.target = target->conf->name,
		.region = target->conf->region ? target->conf->region : "",
		.intent = adopt->made->intent,
		.session = &adopt->session,
	};
	int r;

	adopt->adopted = false;
	if (row->existed)
		return 0; /* somebody came for it, or knows better */
	r = row_next_fence(txn, row, &found.fence, err);
	if (r == 0)
		r = txn_next(txn, &found.incarnation, err);
	if (r == 0)
		r = binding_adopt(&row->b, row->now, &s->rules, &found, err);
	row->changed = row->notify = adopt->adopted = r == 0;
	return r;
}

static int ask(struct job *job, struct made *made, int (*op)(struct call *, const void *, struct err *),
	       struct err *err)
{
	int64_t until_ns = clock_after_ms(ASK_MS);

	return create_ask(job, made, op, NULL, until_ns < job->deadline_ns ? until_ns : job->deadline_ns, err);
}

/* What is not listed as ready may be so all the same, or asleep. One that is on its way is not waited for. */
static int ask_phase(struct job *job, struct made *made, struct err *err)
{
	int r = ask(job, made, call_look, err);

	if (r == 0 && (made->phase == BERTH_PHASE_READY || made->phase == BERTH_PHASE_PAUSED))
		r = ask(job, made, call_await, err);
	return r;
}

struct row_seen {
	const char *key;
	bool existed;
};

/* The provider's word on the session itself; any other error says only that it could not be asked. */
static bool is_refused(int code)
{
	return code == ERR_PROVIDER || code == ERR_CAPACITY || code == ERR_QUOTA || code == ERR_UNSUPPORTED;
}

static int adopt_one(struct job *job, const struct made *made, const struct ident *ident, size_t *count,
		     struct err *err)
{
	struct adopt adopt = {.job = job, .made = made};
	int r = made_seal(job, made, &adopt.session, err);

	if (r == 0)
		r = row_update(job->s, ident, adopt_row, &adopt, err);
	if (r == ERR_CORRUPT) {
		log_error("a session cannot be adopted: its task's row is damaged", KS("task", job->key),
			  KS("ref", made->ref), KS("error", err->msg));
		err_clear(err);
		return 0;
	}
	*count += r == 0 && adopt.adopted;
	return r;
}

struct done {
	struct sessions *s;
	const char *target;
};

static int done_step(struct txn *txn, void *arg, struct err *err)
{
	const struct done *done = arg;
	struct lineage lineage;
	size_t kept = 0;
	bool is_new;
	int r = get_lineage(done->s, txn, &lineage, &is_new, err);

	if (r || is_new)
		return r;
	for (size_t i = 0; i < lineage.pending_count; i++) {
		if (strcmp(lineage.pending[i], done->target) != 0)
			lineage.pending[kept++] = lineage.pending[i];
	}
	lineage.pending_count = kept;
	return put_lineage(txn, &lineage, err);
}

struct adoption {
	struct job *job;
	int64_t asks_until_ns;
	bool asks; /* there is time */
	size_t tasks, adopted;
	size_t waiting; /* not ready */
	size_t failed, put_off; /* not asked */
};

static int seen_step(struct txn *txn, void *arg, struct err *err)
{
	struct row_seen *seen = arg;
	struct store_row row;
	int r = txn_get(txn, STORE_TASK, seen->key, &row, err);

	seen->existed = r == 0 && row.doc;
	return r;
}

static void note_unasked(struct adoption *all, struct made *made, const struct err *why)
{
	made->unasked = true;
	if (!all->asks) {
		all->put_off++;
		return;
	}
	if (all->failed < NAMED_MOST)
		log_warn("a session of a lost store is neither adopted nor deleted: it could not be asked",
			 KS("target", all->job->target->conf->name), KS("ref", made->ref), KS("task", all->job->key),
			 KS("code", err_name(why->code)), KS("error", why->msg));
	all->failed++;
}

/* Then made tells enough to be adopted, or *ret_ready is false. */
static int find_ready(struct adoption *all, struct made *made, bool *ret_ready, struct err *err)
{
	struct row_seen seen = {all->job->key, false};
	struct err why = {0};
	int r = store_view(all->job->s->config.store, seen_step, &seen, err);

	*ret_ready = false;
	if (r || seen.existed)
		return r;
	r = all->asks ? ask_phase(all->job, made, &why) : ERR_PROVIDER_TIMEOUT;
	*ret_ready = r == 0 && made->phase == BERTH_PHASE_READY;
	if (*ret_ready || create_is_dead(r, made))
		return 0;
	if (r == 0 || is_refused(r))
		all->waiting++;
	else
		note_unasked(all, made, &why);
	return 0;
}

/* One that is too weak is found when its task comes. */
static int adopt_listed(struct adoption *all, struct made *listed, struct err *err)
{
	struct made made = *listed;
	struct ident ident;
	bool ready = made.phase == BERTH_PHASE_READY;
	int r = 0;

	all->tasks += *made.task != '\0';
	if (!*made.task || phase_is_over(made.phase) || ident_make(&ident, made.workspace, made.task, NULL))
		return 0;
	ident_key(&ident, all->job->key);
	if (!ready)
		r = find_ready(all, &made, &ready, err);
	listed->unasked = made.unasked;
	if (r || !ready || made.isolation < all->job->target->isolation_wanted)
		return r;
	return adopt_one(all->job, &made, &ident, &all->adopted, err);
}

static int adopt_all(struct adoption *all, const struct seen *seen, struct err *err)
{
	size_t *from = &warm_pool_of(all->job->s, all->job->target)->ask_from, first = *from;
	int r = 0;

	for (size_t n = 0; r == 0 && n < seen->count && !job_cancelled(all->job); n++) {
		size_t i = (first + n) % seen->count;

		all->asks = clock_left_ms(all->asks_until_ns) > 0;
		if (all->asks)
			*from = i + 1;
		r = adopt_listed(all, &seen->sessions[i], err);
	}
	return r;
}

/* What is not ready yet keeps the target pending until orphans are taken, and what could not be asked even then. */
int sweep_adopt(struct job *job, const struct seen *seen, bool last, struct err *err)
{
	struct adoption all = {.job = job, .asks_until_ns = binding_min(clock_after_ms(ASKS_MS), job->deadline_ns)};
	struct done done = {job->s, job->target->conf->name};
	int r = adopt_all(&all, seen, err);
	size_t unasked = all.failed + all.put_off;

	if (r || job_cancelled(job))
		return r;
	if (all.adopted || (all.tasks && !all.waiting && !unasked))
		log_warn("sessions of a lost store were adopted", KS("target", done.target),
			 KI("adopted", (int64_t)all.adopted), KI("with_identity", (int64_t)all.tasks),
			 KI("listed", (int64_t)seen->count));
	if (unasked)
		log_warn("sessions could not be asked whether they are to be adopted; they are left as they are",
			 KS("target", done.target), KI("failed", (int64_t)all.failed),
			 KI("put_off", (int64_t)all.put_off));
	return unasked || (all.waiting && !last) ? 0 : store_update(job->s->config.store, done_step, &done, err);
}
