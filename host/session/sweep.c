/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sweep: sessions of this deployment that no row knows. One job per target and round: first the provider's own
 * list, then the rows, so that whatever was written before its session was made is seen. What nobody names is a
 * suspect; one that was a suspect in the round before too, and is old enough, is claimed in one atomic step that looks
 * again, and then released like any other. Never deletes anything itself, and concludes nothing from a list that failed
 * or a store that was lost.
 */
#include "session/sweep.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"
#include "plugin/cursors.h"

#define LIST_MS 300000
#define LIST_ARENA (1024 * LIMIT_MIB)
#define PAGE 256	  /* rows per snapshot */
#define LONG_LIST 10000   /* sessions */

/* ---- the provider's list ---- */

struct listing {
	struct job *job;
	struct seen *seen;
	struct err err;
};

static int take_listed(void *arg, const struct berth_session_info *info)
{
	struct listing *listing = arg;
	struct seen *seen = listing->seen;

	if (seen->count == seen->cap) {
		size_t cap = seen->cap ? seen->cap * 2 : 256;
		struct made *grown = realloc(seen->sessions, cap * sizeof(*grown));

		if (!grown)
			return err_set(&listing->err, ERR_NOMEM, "no memory is left for a provider's list");
		seen->sessions = grown;
		seen->cap = cap;
	}
	if (made_copy(listing->job->arena, info, &seen->sessions[seen->count], &listing->err))
		return listing->err.code;
	seen->count++;
	return 0;
}

static int op_list(struct call *call, const void *arg, struct err *err)
{
	return call_list(call, arg, err);
}

static int list_pages(struct listing *listing, struct err *err)
{
	const struct call_sink sink = {.session = take_listed, .arg = listing};
	struct job *job = listing->job;
	struct cursors cursors = {.count = 0};
	char *cursor = arena_strdup(job->arena, "");
	int r = cursor ? 0 : err_set(err, ERR_NOMEM, "no memory is left for a provider's list");

	while (r == 0 && cursor) {
		struct call *call;
		const char *next = NULL;

		r = job_call(job, job->deadline_ns, &sink, op_list, cursor, &call, err);
		if (r == 0) {
			next = call_cursor(call);
			r = cursors_take(&cursors, next, err);
		}
		cursor = r == 0 && next ? arena_strdup(job->arena, next) : NULL;
		if (r == 0 && next && !cursor)
			r = err_set(err, ERR_NOMEM, "no memory is left for a provider's list");
		job_done(job, call);
	}
	return r;
}

static int index_list(struct seen *seen, struct err *err)
{
	int r = 0;

	seen->refs = map_new();
	seen->tokens = map_new();
	for (size_t i = 0; r == 0 && seen->refs && seen->tokens && i < seen->count; i++) {
		r = map_put(seen->refs, seen->sessions[i].ref, &seen->sessions[i]);
		if (r == 0 && *seen->sessions[i].intent)
			r = map_put(seen->tokens, seen->sessions[i].intent, &seen->sessions[i]);
	}
	if (r || !seen->refs || !seen->tokens)
		return err_set(err, ERR_NOMEM, "no memory is left for a provider's list");
	return 0;
}

int seen_list(struct job *job, struct seen *ret, struct err *err)
{
	struct listing listing = {.job = job, .seen = ret};
	int r = store_now(job->s->config.store, &ret->listed_ms, err);

	if (r == 0)
		r = list_pages(&listing, err);
	return r ? r : index_list(ret, err);
}

/* A long list was hundreds of thousands of small blocks. Who frees something large next would put them together, on this thread's
 * behalf and with its own work waiting. */
void seen_fini(struct seen *seen)
{
	free(seen->sessions);
	map_free(seen->refs);
	map_free(seen->tokens);
	if (seen->count >= LONG_LIST)
		malloc_trim(0);
}

/* ---- does anybody know it? ---- */

struct judge {
	struct job *job;
	const struct seen *seen;
	size_t first, count; /* of seen */
	bool named[PAGE];
};

static bool has_identity(const struct made *made, struct ident *ret)
{
	return *made->task && ident_make(ret, made->workspace, made->task, NULL) == 0;
}

/* Most rows name their session; that is seen without reading all of the row. */
static bool names_at_once(struct arena *arena, const struct store_row *row, const char *ref)
{
	const char *text = arena_printf(arena, "\"ref\":\"%s\"", ref);

	return text && !strpbrk(ref, "\"\\") && memmem(row->doc, row->doc_len, text, strlen(text));
}

static int row_names(struct txn *txn, const struct ident *ident, const struct made *made, bool *ret, struct err *err)
{
	char key[IDENT_KEY_MAX + 1];
	struct store_row stored;
	struct binding b;
	int r;

	*ret = false;
	ident_key(ident, key);
	r = txn_get(txn, STORE_TASK, key, &stored, err);
	if (r || !stored.doc)
		return r;
	*ret = names_at_once(txn_arena(txn), &stored, made->ref);
	if (*ret)
		return 0;
	r = binding_decode(txn_arena(txn), ident, stored.doc, stored.doc_len, &b, err);
	*ret = r == ERR_CORRUPT || (r == 0 && binding_names(&b, made->ref, made->intent));
	return r == ERR_CORRUPT ? 0 : r; /* what it names cannot be read: its task's sessions are left alone */
}

/* Entries are named by their token; what carries none of ours, by its ref. */
static void orphan_key(const struct target *target, const struct made *made, char ret[WARM_KEY_MAX + 1])
{
	char digest[65];

	if (ident_is_random(made->intent, "", 32)) {
		warm_key(target->conf->name, made->intent, ret);
		return;
	}
	secret_sha256_hex(made->ref, strlen(made->ref), digest);
	warm_key(target->conf->name, digest, ret);
}

static int entry_names(struct txn *txn, const struct target *target, const struct made *made, bool *ret,
		       struct err *err)
{
	char key[WARM_KEY_MAX + 1];
	struct store_row stored;
	int r;

	orphan_key(target, made, key);
	r = txn_get(txn, STORE_WARM, key, &stored, err);
	*ret = r == 0 && stored.doc;
	return r;
}

static int is_named(struct txn *txn, const struct target *target, const struct made *made, bool *ret, struct err *err)
{
	struct ident ident;
	int r = 0;

	*ret = false;
	if (has_identity(made, &ident))
		r = row_names(txn, &ident, made, ret, err);
	if (r == 0 && !*ret)
		r = entry_names(txn, target, made, ret, err);
	return r;
}

static int judge_step(struct txn *txn, void *arg, struct err *err)
{
	struct judge *judge = arg;
	int r = 0;

	for (size_t i = 0; r == 0 && i < judge->count; i++)
		r = is_named(txn, judge->job->target, &judge->seen->sessions[judge->first + i], &judge->named[i], err);
	return r;
}

/* ---- claims ---- */

struct claim {
	struct job *job;
	const struct made *made;
	struct binding_session session; /* sealed for the row */
	bool claimed;
};

static int claim_row(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	struct claim *claim = arg;
	const struct target *target = claim->job->target;
	struct binding_found found = {
		.target = target->conf->name,
		.region = target->conf->region ? target->conf->region : "",
		.intent = claim->made->intent,
		.session = &claim->session,
	};
	bool named;
	int r = entry_names(txn, target, claim->made, &named, err);

	(void)s;
	claim->claimed = false;
	if (r || named)
		return r;
	r = row_next_fence(txn, row, &found.fence, err);
	if (r == 0)
		r = txn_next(txn, &found.incarnation, err);
	if (r == 0)
		claim->claimed = binding_claim_orphan(txn_arena(txn), &row->b, row->now, &found, err);
	row->changed = claim->claimed;
	return r;
}

/* Without an identity: an entry that is to be released, which no begin can reserve. */
static int claim_entry(struct txn *txn, void *arg, struct err *err)
{
	struct claim *claim = arg;
	const struct made *made = claim->made;
	char key[WARM_KEY_MAX + 1];
	struct warm_entry entry;
	int r;

	claim->claimed = false;
	orphan_key(claim->job->target, made, key);
	r = warm_get(txn, key, &entry, err);
	if (r || entry.state != WARM_ABSENT)
		return r;
	entry.intent = made->intent;
	entry.ref = made->ref;
	entry.sealed_state = claim->session.sealed_state;
	warm_to_releasing(&entry, txn_now(txn));
	claim->claimed = true;
	return warm_put(txn, &entry, WARM_ABSENT, err);
}

/* Rows name a session that carries no identity only while it is assigned; then its entry names it too. This looks at
 * every row all the same, before anything is taken that cannot say whose it is. */
struct anywhere {
	const struct made *made;
	bool named;
};

static bool look_anywhere(const struct ident *ident, const struct binding *b, void *arg)
{
	struct anywhere *anywhere = arg;

	(void)ident;
	anywhere->named = binding_names(b, anywhere->made->ref, anywhere->made->intent);
	return !anywhere->named;
}

static int claim_nameless(struct claim *claim, struct err *err)
{
	struct sessions *s = claim->job->s;
	struct anywhere anywhere = {.made = claim->made};
	int r;

	r = rows_each(s, NULL, "", look_anywhere, &anywhere, err);
	if (r || anywhere.named)
		return r;
	return store_update(s->config.store, claim_entry, claim, err);
}

static int claim_one(struct job *job, const struct made *made, struct err *err)
{
	struct claim claim = {.job = job, .made = made};
	struct ident ident;
	bool task = has_identity(made, &ident);
	int r;

	/* Sealed for the row that will name it. */
	if (task)
		ident_key(&ident, job->key);
	else
		orphan_key(job->target, made, job->key);
	r = made_seal(job, made, &claim.session, err);
	if (r == 0)
		r = task ? row_update(job->s, &ident, claim_row, &claim, err) : claim_nameless(&claim, err);
	if (r == ERR_CORRUPT) {
		log_error("a session that nobody knows cannot be claimed: its task's row is damaged",
			  KS("target", job->target->conf->name), KS("ref", made->ref), KS("task", task ? job->key : ""),
			  KS("error", err->msg));
		err_clear(err);
		return 0; /* the others are not its matter */
	}
	if (r == 0 && claim.claimed) {
		log_warn("a session that nobody knows will be deleted", KS("target", job->target->conf->name),
			 KS("ref", made->ref), KS("task", task ? job->key : ""));
		session_kick_gc(job->s);
	}
	return r;
}

/* ---- a round ---- */

struct suspect {
	int64_t since_ms;
};

static bool free_suspect(const char *key, void *value, void *arg)
{
	(void)key;
	(void)arg;
	free(value);
	return true;
}

static void suspects_free(struct map *suspects)
{
	if (suspects)
		map_each(suspects, free_suspect, NULL);
	map_free(suspects);
}

void sweep_forget(struct warm_pool *pool)
{
	suspects_free(pool->suspects);
	pool->suspects = NULL;
}

static bool is_old(const struct job *job, const struct made *made, const struct suspect *before, int64_t now)
{
	const struct conf *conf = job->s->config.conf;
	int64_t age_ms = conf->scheduling_ms + conf->starting_ms + job->target->create_settle_ms;

	return now - (made->created_ms ? made->created_ms : before->since_ms) > age_ms;
}

static int suspect_one(struct job *job, const struct made *made, int64_t now, struct map *next, struct err *err)
{
	struct map *former = warm_pool_of(job->s, job->target)->suspects;
	const struct suspect *before = former ? map_get(former, made->ref) : NULL;
	struct suspect *suspect;

	if (map_get(next, made->ref)) /* listed twice */
		return 0;
	if (made->unasked && !before)
		return 0;
	suspect = calloc(1, sizeof(*suspect));
	if (suspect)
		suspect->since_ms = before ? before->since_ms : now;
	if (!suspect || map_put(next, made->ref, suspect)) {
		free(suspect);
		return err_set(err, ERR_NOMEM, "no memory is left to sweep");
	}
	return before && !made->unasked && is_old(job, made, before, now) ? claim_one(job, made, err) : 0;
}

static int judge_all(struct job *job, const struct seen *seen, struct map *next, struct err *err)
{
	struct judge *judge = calloc(1, sizeof(*judge));
	int r = judge ? 0 : err_set(err, ERR_NOMEM, "no memory is left to sweep");

	for (size_t first = 0; r == 0 && first < seen->count && !job_cancelled(job); first += PAGE) {
		size_t left = seen->count - first;

		*judge = (struct judge){.job = job, .seen = seen, .first = first, .count = left < PAGE ? left : PAGE};
		r = store_view(job->s->config.store, judge_step, judge, err);
		for (size_t i = 0; r == 0 && i < judge->count; i++) {
			if (!judge->named[i])
				r = suspect_one(job, &seen->sessions[first + i], seen->listed_ms, next, err);
		}
	}
	free(judge);
	return r;
}

static int sweep(struct job *job, const struct seen *seen, struct err *err)
{
	struct warm_pool *pool = warm_pool_of(job->s, job->target);
	struct map *next = map_new();
	int r = next ? judge_all(job, seen, next, err) : err_set(err, ERR_NOMEM, "no memory is left to sweep");

	/* A round that failed counts for nothing. */
	sweep_forget(pool);
	pool->suspects = r ? NULL : next;
	if (r)
		suspects_free(next);
	return r;
}

static int use_big_arena(struct job *job, struct err *err)
{
	struct arena *arena = arena_new(LIST_ARENA);

	if (!arena)
		return err_set(err, ERR_NOMEM, "no memory is left to sweep");
	arena_free(job->arena);
	job->arena = arena;
	return 0;
}

static int round_of(struct job *job, const struct sweep_state *state, struct seen *seen, struct err *err)
{
	bool hold = store_hold_ms(job->s->config.store) > 0; /* who looks dead may only have been unable to say otherwise */
	int r = seen_list(job, seen, err);

	if (r == 0 && !hold)
		r = sweep_pool(job, seen, err);
	if (r == 0 && state->pending && !hold)
		r = sweep_adopt(job, seen, state->on, err);
	if (r == 0 && state->on && session_may_act(job->s) && !hold)
		r = sweep(job, seen, err);
	return r;
}

void sweep_run(struct job *job)
{
	struct sweep_state state;
	struct seen seen = {0};
	struct err err = {0};
	bool pool = false;
	int r = sweep_look(job->s, job->target, &state, &err);

	job->deadline_ns = clock_after_ms(LIST_MS);
	if (r == 0 && !state.on)
		log_debug("no orphan of a target is looked for: the store is new to it",
			  KS("target", job->target->conf->name));
	if (r == 0)
		r = sweep_has_pool(job, &pool, &err);
	if (r == 0 && (state.on || state.pending || pool))
		r = use_big_arena(job, &err);
	if (r == 0 && (state.on || state.pending || pool))
		r = round_of(job, &state, &seen, &err);
	if (r && !job_cancelled(job))
		log_warn("a target could not be swept; nothing was concluded", KS("target", job->target->conf->name),
			 KS("code", err_name(r)), KS("error", err.msg));
	if (r)
		sweep_forget(warm_pool_of(job->s, job->target));
	seen_fini(&seen);
}
