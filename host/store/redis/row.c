/* SPDX-License-Identifier: Apache-2.0 */
/* Rows and numbers of entries as they stand in Redis. Pure but for the cache; any thread. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/redis/redis.h"

#define SEQ_MASK ((UINT64_C(1) << REDIS_SEQ_BITS) - 1)
#define SEQ_MS_MAX (UINT64_C(1) << (63 - REDIS_SEQ_BITS))

static const char *const tables[STORE_TABLE_COUNT + 1] = {
#define X(name, text, whole) [STORE_##name] = text,
	STORE_TABLES(X)
#undef X
		[REDIS_TABLE_COUNTERS] = "counters",
};

const char *row_table(unsigned table)
{
	return tables[table];
}

int row_tail(struct arena *arena, const struct store_row *row, const char **ret, size_t *ret_len)
{
	char head[64];
	size_t group = strlen(row->group);
	size_t len = (size_t)snprintf(head, sizeof(head), "%lld %zu ", (long long)row->due_ms, group);
	char *text = arena_alloc(arena, len + group + row->doc_len + 1);

	if (text == NULL)
		return ERR_NOMEM;
	memcpy(text, head, len);
	memcpy(text + len, row->group, group);
	if (row->doc_len > 0)
		memcpy(text + len + group, row->doc, row->doc_len);
	*ret = text;
	*ret_len = len + group + row->doc_len;
	return 0;
}

/* A number and the blank after it. */
static bool take_number(const char **at, const char *end, int64_t *ret)
{
	int64_t number = 0;
	const char *from = *at;

	for (; *at < end && isdigit((unsigned char)**at); ++*at)
		if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, **at - '0', &number))
			return false;
	if (*at == from || *at == end || **at != ' ')
		return false;
	++*at;
	*ret = number;
	return true;
}

static int damaged(unsigned table, const char *key, struct err *err)
{
	err_set(err, ERR_STORE, "the state store: the row %.64s of %s is damaged", key, tables[table]);
	err_reason(err, "corrupt");
	return ERR_STORE;
}

static int no_memory(struct err *err)
{
	return err_set(err, ERR_NOMEM, "the step read more than it may hold; page through with `after`");
}

static int row_parse(struct arena *arena, unsigned table, const char *key, const char *text, size_t len,
		     struct cached_row *ret, struct err *err)
{
	const char *at = text, *end = text + len;
	int64_t rev, due, group;
	struct store_row row = {.key = key, .group = ""};

	if (!take_number(&at, end, &rev) || !take_number(&at, end, &due) || !take_number(&at, end, &group) ||
	    group > end - at)
		return damaged(table, key, err);
	row.due_ms = due;
	row.doc_len = (size_t)(end - at - group);
	if (group > 0)
		row.group = arena_strndup(arena, at, (size_t)group);
	row.doc = arena_strndup(arena, at + group, row.doc_len);
	if (row.group == NULL || row.doc == NULL)
		return no_memory(err);
	*ret = (struct cached_row){row, rev};
	return 0;
}

/* A counter is its number as text, and its own revision. */
static int parse_counter(struct arena *arena, const char *key, const redisReply *element, struct cached_row *ret,
			 struct err *err)
{
	struct store_row row = {.key = key, .group = "", .doc = "0", .doc_len = 1};

	if (element->type != REDIS_REPLY_NIL) {
		row.doc = arena_strndup(arena, element->str, (size_t)element->len);
		row.doc_len = (size_t)element->len;
	}
	if (row.doc == NULL)
		return no_memory(err);
	*ret = (struct cached_row){row, 0};
	return 0;
}

int row_take(struct rconn *conn, struct arena *arena, unsigned table, const char *key, const redisReply *element,
	     int64_t asof, struct cached_row *ret, struct err *err)
{
	int rc = 0;

	if (element->type != REDIS_REPLY_NIL && element->type != REDIS_REPLY_STRING)
		return damaged(table, key, err);
	if (table == REDIS_TABLE_COUNTERS)
		rc = parse_counter(arena, key, element, ret, err);
	else if (element->type == REDIS_REPLY_NIL)
		*ret = (struct cached_row){.row = {.key = key, .group = ""}};
	else
		rc = row_parse(arena, table, key, element->str, (size_t)element->len, ret, err);
	if (rc == 0)
		cache_put(conn->store->cache, table, ret, asof);
	return rc;
}

/* ---- numbers of entries ---- */

void seq_format(uint64_t seq, char ret_id[48], char ret_member[32])
{
	unsigned long long ms = seq >> REDIS_SEQ_BITS, n = seq & SEQ_MASK;

	snprintf(ret_id, 48, "%llu-%llu", ms, n);
	if (ret_member != NULL)
		snprintf(ret_member, 32, "%015llu-%07llu", ms, n);
}

bool seq_parse(const char *id, uint64_t *ret)
{
	unsigned long long ms, n = 0;
	char *end;

	errno = 0;
	ms = strtoull(id, &end, 10);
	if (*end == '-')
		n = strtoull(end + 1, &end, 10);
	if (errno != 0 || *end != '\0' || ms >= SEQ_MS_MAX || n > SEQ_MASK)
		return false;
	*ret = (uint64_t)ms << REDIS_SEQ_BITS | n;
	return true;
}
