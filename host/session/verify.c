/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify: every target's own list of sessions beside the rows. Any thread that may block for as long as the providers take.
 * Only reads. A session is unknown only if no row named it before nor after the list was made, and missing only if the same
 * incarnation was live before and after; so what merely moves meanwhile is neither.
 */
#include <stdlib.h>
#include <string.h>

#include "core/map.h"
#include "plugin/call.h"
#include "plugin/cursors.h"
#include "session/session_private.h"
#include "session/warm.h"

/* What is known of one target. */
struct known {
	struct sessions *s;
	const struct target *target;
	struct map *refs;    /* refs and tokens that rows name -> anything */
	struct map *live;    /* key of a live row -> struct live_row, from before */
	struct map *ready;   /* refs of ready warm entries, from before -> anything */
	struct map *listed;  /* refs that the provider told */
	struct buf *unknown, *missing;
	size_t bindings, sessions, warm, unknown_count, missing_count;
	bool after; /* second look at the rows */
	bool nomem;
};

struct live_row {
	int64_t incarnation;
	char ref[BERTH_REF_MAX + 1];
};

static void note(struct known *known, const char *name)
{
	if (*name && map_put(known->refs, name, known))
		known->nomem = true;
}

static void note_row(struct known *known, const struct binding *b)
{
	note(known, b->ref);
	note(known, b->intent);
	if (*b->warm)
		note(known, strrchr(b->warm, '/') + 1);
	for (size_t i = 0; i < b->superseded_count && binding_names_superseded(b); i++)
		note(known, b->superseded[i]);
	for (size_t i = 0; i < b->stray_count; i++)
		note(known, b->strays[i].ref);
}

static void put_name(struct buf *buf, size_t *count, const char *name)
{
	if ((*count)++)
		buf_puts(buf, ",");
	json_put_string(buf, name, strlen(name));
}

static void note_live(struct known *known, const char *key, const struct binding *b)
{
	struct live_row *row;

	if (!known->after) {
		row = calloc(1, sizeof(*row));
		known->nomem |= !row || map_put(known->live, key, row) != 0;
		if (row) {
			row->incarnation = b->incarnation;
			snprintf(row->ref, sizeof(row->ref), "%s", b->ref);
		}
		return;
	}
	known->bindings++;
	row = map_get(known->live, key);
	if (row && row->incarnation == b->incarnation && !map_get(known->listed, b->ref))
		put_name(known->missing, &known->missing_count, key);
}

static bool look_at_row(const struct ident *ident, const struct binding *b, void *arg)
{
	struct known *known = arg;
	char key[IDENT_KEY_MAX + 1];

	if (strcmp(b->target, known->target->conf->name) != 0 || b->state == BINDING_GONE)
		return true;
	note_row(known, b);
	ident_key(ident, key);
	if (b->state == BINDING_LIVE || b->state == BINDING_CAPTURING)
		note_live(known, key, b);
	else if (known->after && (b->state == BINDING_PROVISIONING || b->state == BINDING_HYDRATING))
		known->bindings++;
	return !known->nomem;
}

/* ---- warm entries ---- */

struct warm_page {
	struct known *known;
	struct txn *txn;
	int code;
};

static void note_warm(struct known *known, const struct warm_entry *entry)
{
	note(known, entry->ref);
	note(known, entry->intent);
	if (!known->after) {
		if (entry->state == WARM_READY && map_put(known->ready, entry->ref, known))
			known->nomem = true;
		return;
	}
	known->warm += warm_counts(entry->state);
	if (entry->state == WARM_READY && map_get(known->ready, entry->ref) && !map_get(known->listed, entry->ref))
		put_name(known->missing, &known->missing_count, entry->ref);
}

static bool look_at_entry(const struct store_row *row, void *arg)
{
	struct warm_page *page = arg;
	struct warm_entry entry;

	page->code = warm_decode(txn_arena(page->txn), row->key, row->doc, row->doc_len, &entry, NULL);
	if (page->code == 0)
		note_warm(page->known, &entry);
	return page->code == 0;
}

/* Reserved ones are named by their binding. One snapshot: an entry that moves would else be counted twice or not at all. */
static int warm_step(struct txn *txn, void *arg, struct err *err)
{
	static const char *const states[] = {"making", "ready", "releasing"};
	struct warm_page page = {.known = arg, .txn = txn};
	int r = 0;

	for (size_t i = 0; r == 0 && i < sizeof(states) / sizeof(*states); i++) {
		const char *group = arena_printf(txn_arena(txn), "%s/%s", page.known->target->conf->name, states[i]);

		r = group ? txn_scan(txn, STORE_WARM, group, "", false, SIZE_MAX, look_at_entry, &page, err)
			  : err_set(err, ERR_NOMEM, "no memory is left to verify");
	}
	return r == 0 && page.code ? err_set(err, page.code, "a warm entry cannot be read") : r;
}

static int look_at_rows(struct known *known, struct err *err)
{
	int r = rows_each(known->s, NULL, "", look_at_row, known, err);

	return r ? r : store_view(known->s->config.store, warm_step, known, err);
}

/* ---- the provider's list ---- */

struct listed { /* what a listed session is called */
	char intent[64];
};

static int take_session(void *arg, const struct berth_session_info *info)
{
	struct known *known = arg;
	char ref[BERTH_REF_MAX + 1];
	struct listed *listed = calloc(1, sizeof(*listed));

	if (!listed || info->ref.len > BERTH_REF_MAX)
		goto nomem;
	memcpy(ref, info->ref.ptr, info->ref.len);
	ref[info->ref.len] = '\0';
	if (info->intent.len < sizeof(listed->intent))
		memcpy(listed->intent, info->intent.ptr, info->intent.len);
	free(map_get(known->listed, ref));
	if (map_put(known->listed, ref, listed))
		goto nomem;
	return 0;
nomem:
	free(listed);
	known->nomem = true;
	return ERR_NOMEM;
}

static int list_target(struct known *known, int64_t deadline_ns, struct err *err)
{
	const struct call_sink sink = {.session = take_session, .arg = known};
	char *cursor = strdup("");
	int r = cursor ? 0 : err_set(err, ERR_NOMEM, "no memory is left to verify");
	struct cursors cursors = {.count = 0};

	while (r == 0 && cursor) {
		struct call *call = call_new((struct target *)(uintptr_t)known->target, deadline_ns, &sink);
		const char *next = NULL;

		if (call)
			call_set_apart(call);
		r = call ? call_list(call, cursor, err) : err_set(err, ERR_NOMEM, "no memory is left to verify");
		if (r == 0) {
			next = call_cursor(call);
			r = cursors_take(&cursors, next, err);
		}
		free(cursor);
		cursor = r == 0 && next ? strdup(next) : NULL;
		if (r == 0 && next && !cursor)
			r = err_set(err, ERR_NOMEM, "no memory is left to verify");
		call_free(call);
	}
	free(cursor);
	return r;
}

static bool judge_listed(const char *ref, void *value, void *arg)
{
	struct known *known = arg;
	const struct listed *listed = value;

	known->sessions++;
	/* A session that was just made is in its row by its token before it is by its ref. */
	if (!map_get(known->refs, ref) && !map_get(known->refs, listed->intent))
		put_name(known->unknown, &known->unknown_count, ref);
	return true;
}

/* ---- one target ---- */

static bool free_value(const char *key, void *value, void *arg)
{
	(void)key;
	(void)arg;
	free(value);
	return true;
}

static void known_fini(struct known *known)
{
	if (known->live)
		map_each(known->live, free_value, NULL);
	if (known->listed)
		map_each(known->listed, free_value, NULL);
	map_free(known->refs);
	map_free(known->live);
	map_free(known->ready);
	map_free(known->listed);
}

static int compare(struct known *known, int64_t deadline_ns, struct err *err)
{
	int r;

	known->refs = map_new();
	known->live = map_new();
	known->listed = map_new();
	known->ready = map_new();
	if (!known->refs || !known->live || !known->ready || !known->listed)
		return err_set(err, ERR_NOMEM, "no memory is left to verify");
	r = look_at_rows(known, err);
	if (r == 0)
		r = list_target(known, deadline_ns, err);
	known->after = true;
	if (r == 0)
		r = look_at_rows(known, err);
	if (r == 0 && known->nomem)
		r = err_set(err, ERR_NOMEM, "no memory is left to verify");
	if (r == 0)
		map_each(known->listed, judge_listed, known);
	return r;
}

static void put_target(struct buf *buf, const struct known *known, int code, const struct err *err)
{
	const char *name = known->target->conf->name;

	buf_puts(buf, "{\"name\":");
	json_put_string(buf, name, strlen(name));
	buf_printf(buf, ",\"provider_sessions\":%zu,\"bindings\":%zu,\"warm\":%zu,\"unknown\":[%s],\"missing\":[%s]",
		   known->sessions, known->bindings, known->warm, known->unknown->len ? known->unknown->ptr : "",
		   known->missing->len ? known->missing->ptr : "");
	if (code) {
		buf_puts(buf, ",\"error\":");
		json_put_string(buf, err->msg, strlen(err->msg));
	}
	buf_puts(buf, "}");
}

/* A target that cannot be asked is not verified; a row that cannot be read ends it all. */
static bool verify_target(struct sessions *s, const struct target *target, int64_t deadline_ns, struct buf *buf)
{
	struct buf unknown, missing;
	struct known known = {.s = s, .target = target, .unknown = &unknown, .missing = &missing};
	struct err err = {0};
	int r;

	buf_init(&unknown, buf->max);
	buf_init(&missing, buf->max);
	r = compare(&known, deadline_ns, &err);
	put_target(buf, &known, r, &err);
	known_fini(&known);
	buf_fini(&unknown);
	buf_fini(&missing);
	return r == 0 && known.unknown_count == 0 && known.missing_count == 0;
}

int session_verify(struct sessions *s, int64_t deadline_ns, struct buf *buf, bool *ret_ok, struct err *err)
{
	const struct registry *registry = s->config.registry;
	bool ok = true;

	buf_puts(buf, "{\"targets\":[");
	for (size_t i = 0; i < registry->target_count; i++) {
		if (i)
			buf_puts(buf, ",");
		ok &= verify_target(s, registry->targets[i], deadline_ns, buf);
	}
	buf_printf(buf, "],\"ok\":%s}", ok ? "true" : "false");
	*ret_ok = ok;
	return buf->error ? err_set(err, buf->error, "the result of verify does not fit") : 0;
}
