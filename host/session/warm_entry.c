/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry of a warm session: its stored form and the judgements about it. Pure functions, any thread. Never gives
 * back to the pool what may have had a task.
 */
#include "session/warm.h"

#include <stdio.h>
#include <string.h>

#include "core/limits.h"

#define RELEASE_FIRST_MS 1000

static const char *const state_words[] = {
#define X(name, word) [WARM_##name] = word,
	WARM_STATES(X)
#undef X
};

#define STR(key, field)                                                                                                \
	{                                                                                                              \
		key, JSON_STR, JSON_OMIT, offsetof(struct warm_entry, field)                                           \
	}
#define NUM(key, field, most)                                                                                          \
	{                                                                                                              \
		key, JSON_I64, JSON_OMIT, offsetof(struct warm_entry, field), .min = 0, .max = (most)                  \
	}
#define I64(key, field) NUM(key, field, INT64_MAX)

const struct json_field warm_fields[] = {
	{"state", JSON_STR, JSON_REQUIRED, offsetof(struct warm_entry, state_word)},
	{"intent", JSON_STR, JSON_REQUIRED, offsetof(struct warm_entry, intent)},
	STR("pool_key", pool_key),
	STR("owner", owner),
	I64("create_until", create_until_ms),
	STR("ref", ref),
	STR("sealed_state", sealed_state),
	STR("boot_id", boot_id),
	STR("root", root),
	STR("isolation", isolation),
	I64("created", created_ms),
	I64("expires", expires_ms),
	I64("made", made_ms),
	STR("task", task),
	{"used", JSON_BOOL, JSON_OMIT, offsetof(struct warm_entry, used)},
	NUM("tries", tries, INT32_MAX), /* room to count on */
	I64("next", next_ms),
	STR("error", error),
	{0},
};

void warm_key(const char *target, const char *intent, char ret[WARM_KEY_MAX + 1])
{
	snprintf(ret, WARM_KEY_MAX + 1, "%s/%s", target, intent);
}

static void fill_absent_strings(struct warm_entry *entry)
{
	for (const struct json_field *field = warm_fields; field->name; field++) {
		const char **at = (const char **)(void *)((char *)entry + field->off);

		if (field->type == JSON_STR && !*at)
			*at = "";
	}
}

static bool read_state(struct warm_entry *entry)
{
	for (size_t i = WARM_MAKING; i < WARM_STATE_COUNT; i++) {
		if (strcmp(state_words[i], entry->state_word) == 0) {
			entry->state = (enum warm_state)i;
			return true;
		}
	}
	return false;
}

int warm_decode(struct arena *arena, const char *key, const char *doc, size_t len, struct warm_entry *ret,
		struct err *err)
{
	const char *slash = strrchr(key, '/');
	int r = 0;

	memset(ret, 0, sizeof(*ret));
	if (doc)
		r = json_decode_text(arena, warm_fields, doc, len, ret, sizeof(*ret), err);
	if (r)
		return r;
	fill_absent_strings(ret);
	if (doc && !read_state(ret))
		return err_set(err, ERR_CORRUPT, "warm entry %.64s: its state is not known", key);
	ret->key = arena_strdup(arena, key);
	ret->target = arena_strndup(arena, key, slash ? (size_t)(slash - key) : 0);
	return ret->key && ret->target ? 0 : err_set(err, ERR_NOMEM, "no memory is left for a warm entry");
}

bool warm_counts(enum warm_state state)
{
	return state == WARM_MAKING || state == WARM_READY || state == WARM_RELEASING;
}

bool warm_is_old(const struct warm_entry *entry, int64_t now)
{
	return entry->expires_ms && now >= entry->made_ms + (entry->expires_ms - entry->made_ms) / 2;
}

bool warm_fits(const struct warm_entry *entry, const char *pool_key, int64_t now, int64_t margin_ms, int64_t lasts_ms)
{
	if (entry->state != WARM_READY || strcmp(entry->pool_key, pool_key) != 0 || warm_is_old(entry, now))
		return false;
	return !entry->expires_ms || entry->expires_ms - margin_ms - now >= lasts_ms;
}

void warm_pool_key(const struct target *target, char ret[65])
{
	const struct conf_target *conf = target->conf;
	struct buf buf;

	buf_init(&buf, LIMIT_JOB_ARENA);
	buf_printf(&buf, "%u\n%lld\n%lld\n%lld\n%d\n", target->isolation_wanted, (long long)conf->cpu_millis,
		   (long long)conf->memory, (long long)conf->disk, conf->allow_internet);
	buf_printf(&buf, "%s\n%s\n%s\n", conf->provider, conf->region ? conf->region : "",
		   conf->image ? conf->image : "");
	for (size_t i = 0; i < conf->setting_count; i++)
		buf_printf(&buf, "%s=%s\n", conf->settings[i].key, conf->settings[i].value);
	secret_sha256_hex(buf.ptr ? buf.ptr : "", buf.len, ret);
	buf_fini(&buf);
}

static void set_state(struct warm_entry *entry, enum warm_state state)
{
	entry->state = state;
	entry->state_word = state_words[state];
	if (state != WARM_MAKING)
		entry->owner = "";
}

void warm_to_ready(struct warm_entry *entry, int64_t now)
{
	set_state(entry, WARM_READY);
	entry->create_until_ms = 0;
	entry->task = "";
	if (!entry->made_ms)
		entry->made_ms = now;
}

void warm_to_releasing(struct warm_entry *entry, int64_t now)
{
	set_state(entry, WARM_RELEASING);
	entry->tries = 0;
	entry->next_ms = now;
}

void warm_release_failed(struct warm_entry *entry, int64_t now, int64_t most_ms, const char *why)
{
	entry->tries++;
	entry->next_ms = binding_after(now, binding_backoff(entry->tries, RELEASE_FIRST_MS, most_ms, (uint64_t)now));
	entry->error = why;
}

/* ---- inside steps ---- */

int warm_get(struct txn *txn, const char *key, struct warm_entry *ret, struct err *err)
{
	struct store_row stored;
	int r = txn_get(txn, STORE_WARM, key, &stored, err);

	return r ? r : warm_decode(txn_arena(txn), key, stored.doc, stored.doc_len, ret, err);
}

static const char *count_name(struct txn *txn, const char *target)
{
	return arena_printf(txn_arena(txn), "warm:%s", target);
}

int warm_count(struct txn *txn, const char *target, int64_t *ret, struct err *err)
{
	const char *name = count_name(txn, target);

	return name ? txn_count_get(txn, name, ret, err)
		    : err_set(err, ERR_NOMEM, "no memory is left for a counter's name");
}

static int write_row(struct txn *txn, const struct warm_entry *entry, struct err *err)
{
	struct store_row stored = {.key = entry->key};
	struct buf doc;
	int r;

	if (entry->state == WARM_ABSENT)
		return txn_delete(txn, STORE_WARM, entry->key, err);
	/* The state is part of the group: a begin looks at ready entries alone. */
	stored.group = arena_printf(txn_arena(txn), "%s/%s", entry->target, entry->state_word);
	stored.due_ms = entry->state == WARM_RELEASING ? binding_max(entry->next_ms, 1) : 0;
	buf_init(&doc, LIMIT_MIB);
	r = json_encode(&doc, warm_fields, entry, 0);
	if (r || !stored.group) {
		r = err_set(err, r ? r : ERR_NOMEM, "a warm entry cannot be written");
	} else {
		stored.doc = doc.ptr;
		stored.doc_len = doc.len;
		r = txn_put(txn, STORE_WARM, &stored, err);
	}
	buf_fini(&doc);
	return r;
}

int warm_put(struct txn *txn, const struct warm_entry *entry, enum warm_state was, struct err *err)
{
	int64_t delta = (int64_t)warm_counts(entry->state) - (int64_t)warm_counts(was);
	const char *name = count_name(txn, entry->target);
	int r = name ? write_row(txn, entry, err) : err_set(err, ERR_NOMEM, "no memory is left for a counter's name");

	if (r == 0 && delta)
		r = txn_count_add(txn, name, delta, err);
	return r;
}

/* ---- reservations ---- */

struct pick {
	struct txn *txn;
	const char *pool_key;
	int64_t margin_ms, lasts_ms;
	char key[WARM_KEY_MAX + 1];
};

static bool see_ready(const struct store_row *row, void *arg)
{
	struct pick *pick = arg;
	struct warm_entry entry;

	if (warm_decode(txn_arena(pick->txn), row->key, row->doc, row->doc_len, &entry, NULL) ||
	    !warm_fits(&entry, pick->pool_key, txn_now(pick->txn), pick->margin_ms, pick->lasts_ms))
		return true;
	snprintf(pick->key, sizeof(pick->key), "%s", row->key);
	return false;
}

int warm_pick(struct sessions *s, struct txn *txn, const struct target *target, int64_t lasts_ms,
	      struct warm_entry *ret, struct err *err)
{
	char pool_key[65];
	struct pick pick = {
		.txn = txn, .pool_key = pool_key, .margin_ms = s->rules.expiry_margin_ms, .lasts_ms = lasts_ms};
	const char *group = arena_printf(txn_arena(txn), "%s/%s", target->conf->name, state_words[WARM_READY]);
	int r;

	memset(ret, 0, sizeof(*ret));
	if (!target->conf->warm || !target_can(target, BERTH_CAP_ASSIGN_TAGS))
		return 0;
	if (!group)
		return err_set(err, ERR_NOMEM, "no memory is left to look for a warm session");
	warm_pool_key(target, pool_key);
	r = txn_scan(txn, STORE_WARM, group, "", false, SIZE_MAX, see_ready, &pick, err);
	if (r || !*pick.key)
		return r;
	r = warm_get(txn, pick.key, ret, err);
	if (r == 0 && !warm_fits(ret, pool_key, txn_now(txn), pick.margin_ms, lasts_ms))
		memset(ret, 0, sizeof(*ret));
	return r;
}

int warm_reserve(struct txn *txn, struct warm_entry *entry, const char *task, struct err *err)
{
	enum warm_state was = entry->state;

	set_state(entry, WARM_RESERVED);
	entry->task = task;
	return warm_put(txn, entry, was, err);
}

static bool is_bound(const struct warm_entry *entry, const struct binding *b)
{
	size_t len = strlen(b->workspace_id);

	return entry->state == WARM_RESERVED && strncmp(entry->task, b->workspace_id, len) == 0 &&
	       entry->task[len] == '/' && strcmp(entry->task + len + 1, b->task_id) == 0;
}

static int give_back(struct txn *txn, struct binding *b, struct warm_entry *entry, struct err *err)
{
	b->warm = "";
	if (!is_bound(entry, b))
		return 0;
	if (entry->used)
		set_state(entry, WARM_ABSENT);
	else
		warm_to_ready(entry, txn_now(txn));
	return warm_put(txn, entry, WARM_RESERVED, err);
}

int warm_bound(struct txn *txn, struct binding *b, const char *ref, struct err *err)
{
	struct warm_entry entry;
	int r;

	if (!*b->warm)
		return 0;
	r = warm_get(txn, b->warm, &entry, err);
	if (r || entry.used)
		return r;
	if (strcmp(entry.ref, ref) != 0)
		return give_back(txn, b, &entry, err);
	entry.used = true;
	return is_bound(&entry, b) ? warm_put(txn, &entry, WARM_RESERVED, err)
				   : err_set(err, ERR_INTERNAL, "a warm session is reserved for another task");
}

int warm_unbind(struct txn *txn, struct binding *b, struct err *err)
{
	struct warm_entry entry;
	int r = *b->warm ? warm_get(txn, b->warm, &entry, err) : 0;

	if (r || !*b->warm)
		return r;
	return give_back(txn, b, &entry, err);
}
