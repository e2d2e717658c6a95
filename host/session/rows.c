/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading many rows: pages of one snapshot each, so that no reader holds the store up. Any thread; never writes, and so never
 * renews anything.
 */
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/log.h"
#include "session/session_private.h"

#define PAGE 256
#define PAGE_ARENA (64 * LIMIT_MIB)

bool split_key(const char *key, struct ident *ret)
{
	const char *slash = strchr(key, '/');
	char workspace[IDENT_PART_MAX + 1];

	if (!slash || (size_t)(slash - key) > IDENT_PART_MAX)
		return false;
	memcpy(workspace, key, (size_t)(slash - key));
	workspace[slash - key] = '\0';
	return ident_make(ret, workspace, slash + 1, NULL) == 0;
}

struct page {
	struct sessions *s;
	const char *workspace;
	struct buf after; /* key */
	struct arena *arena;
	struct page_row {
		struct ident ident;
		struct binding b;
	} rows[PAGE];
	size_t count, seen;
	struct err err; /* of the last row that cannot be read, or why reading ended */
	char bad[IDENT_KEY_MAX + 1];
	int code;
};

static bool take_row(const struct store_row *stored, void *arg)
{
	struct page *page = arg;
	struct page_row *row = &page->rows[page->count];

	page->seen++;
	buf_clear(&page->after);
	if (buf_puts(&page->after, stored->key)) {
		page->code = err_set(&page->err, ERR_NOMEM, "no memory is left to read the rows");
		return false;
	}
	if (!split_key(stored->key, &row->ident))
		return true;
	page->code = binding_decode(page->arena, &row->ident, stored->doc, stored->doc_len, &row->b, &page->err);
	page->count += page->code == 0;
	if (page->code == ERR_CORRUPT) {
		ident_key(&row->ident, page->bad);
		page->code = 0;
	}
	return page->code == 0;
}

static int page_step(struct txn *txn, void *arg, struct err *err)
{
	struct page *page = arg;
	char *after = arena_strdup(txn_arena(txn), page->after.ptr ? page->after.ptr : "");
	int r;

	page->count = page->seen = 0;
	page->code = 0;
	page->bad[0] = '\0';
	arena_reset(page->arena);
	if (!after)
		return err_set(err, ERR_NOMEM, "no memory is left to read the rows");
	r = txn_scan(txn, STORE_TASK, page->workspace, after, false, PAGE, take_row, page, err);
	if (r == 0 && page->code) {
		*err = page->err;
		r = page->code;
	}
	return r;
}

int rows_each(struct sessions *s, const char *workspace, const char *after,
	      bool (*fn)(const struct ident *ident, const struct binding *b, void *arg), void *arg, struct err *err)
{
	struct page *page = calloc(1, sizeof(*page));
	bool more = page != NULL;
	int r = 0;

	if (page)
		page->arena = arena_new(PAGE_ARENA);
	if (!page || !page->arena) {
		free(page);
		return err_set(err, ERR_NOMEM, "no memory is left to read the rows");
	}
	page->s = s;
	page->workspace = workspace;
	buf_init(&page->after, 2 * IDENT_KEY_MAX);
	buf_puts(&page->after, after ? after : "");
	while (r == 0 && more) {
		r = store_view(s->config.store, page_step, page, err);
		if (r == 0 && page->bad[0])
			log_error("a task's row cannot be read, it is left out", KS("key", page->bad),
				  KS("error", page->err.msg));
		more = r == 0 && page->seen == PAGE;
		for (size_t i = 0; r == 0 && i < page->count; i++) {
			if (!fn(&page->rows[i].ident, &page->rows[i].b, arg)) {
				more = false;
				break;
			}
		}
	}
	buf_fini(&page->after);
	arena_free(page->arena);
	free(page);
	return r;
}
