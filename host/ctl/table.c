/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables on standard output, and lists fetched page by page. Main thread. On a terminal a table is as wide as
 * that and long values end in an ellipsis; anywhere else every value is whole.
 */
#include "ctl/ctl.h"

#include <assert.h>
#include <inttypes.h>
#include <langinfo.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "core/clock.h"
#include "core/limits.h"
#include "core/utf8.h"

#define COLUMN_MAX 16
#define SHRINK_LEAST 6
#define ANY_LEAST 2
#define GAP 2

extern int wcwidth(wchar_t c); /* POSIX, but its header shows it under XSI only */

/* ---- width ---- */

static wchar_t decode(const char *ptr, size_t len)
{
	static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
	wchar_t c = (unsigned char)ptr[0] & masks[len];

	for (size_t i = 1; i < len; i++)
		c = c << 6 | ((unsigned char)ptr[i] & 0x3f);
	return c;
}

/* Bytes of the next character of text and the columns that it takes. */
static size_t step(const char *text, size_t left, bool wide, size_t *ret_columns)
{
	size_t len = wide ? utf8_length(text, left) : 1;
	int columns = len > 1 ? wcwidth(decode(text, len)) : 1;

	*ret_columns = columns < 0 ? 1 : (size_t)columns;
	return len ? len : 1;
}

static size_t width_of(const char *text, bool wide)
{
	size_t left = strlen(text), width = 0, columns, len;

	for (; left; left -= len, text += len) {
		len = step(text, left, wide, &columns);
		width += columns;
	}
	return width;
}

/* ---- table ---- */

struct table {
	const struct ctl_column *columns;
	size_t count, rows;
	size_t widths[COLUMN_MAX];
	char **cells; /* (rows + 1) * count; the first row holds the titles */
	bool wide;
};

static void fill(struct table *t, struct json_object *items, int64_t now_ms)
{
	while (t->count < COLUMN_MAX && t->columns[t->count].title)
		t->count++;
	assert(t->count > 0);
	t->rows = ctl_length(items) + 1;
	t->cells = calloc(t->rows * t->count, sizeof(*t->cells));
	for (size_t i = 0; t->cells && i < t->rows * t->count; i++) {
		const struct ctl_column *column = &t->columns[i % t->count];
		struct buf cell;
		size_t width;

		buf_init(&cell, LIMIT_MIB);
		buf_puts(&cell, "");
		if (i < t->count)
			buf_puts(&cell, column->title);
		else
			ctl_value(&cell, json_object_array_get_idx(items, i / t->count - 1), column, now_ms);
		t->cells[i] = buf_take(&cell);
		width = t->cells[i] ? width_of(t->cells[i], t->wide) : 0;
		if (width > t->widths[i % t->count])
			t->widths[i % t->count] = width;
	}
}

static size_t widest_of(const struct table *t, bool any, size_t least)
{
	size_t widest = t->count;

	for (size_t i = 0; i < t->count; i++)
		if ((any || t->columns[i].shrink) && t->widths[i] > least &&
		    (widest == t->count || t->widths[i] > t->widths[widest]))
			widest = i;
	return widest;
}

/* The widest of the columns that may shrink gives first, one column of the screen at a time: what is short stays whole. On a very
 * narrow terminal every column gives. */
static void shrink(struct table *t, size_t room)
{
	size_t total = 0;

	for (size_t i = 0; i < t->count; i++)
		total += t->widths[i] + (i ? GAP : 0);
	for (; total > room; total--) {
		size_t widest = widest_of(t, false, SHRINK_LEAST);

		if (widest == t->count)
			widest = widest_of(t, true, ANY_LEAST);
		if (widest == t->count)
			return;
		t->widths[widest]--;
	}
}

static void put_cell(struct buf *out, const struct table *t, const char *text, size_t width, bool last)
{
	size_t full = width_of(text, t->wide), left = strlen(text), used = 0, columns, len;
	bool cut = full > width;

	for (; left; left -= len, text += len) {
		len = step(text, left, t->wide, &columns);
		if (used + columns + cut > width)
			break;
		buf_append(out, text, len);
		used += columns;
	}
	if (cut) {
		buf_puts(out, t->wide ? "…" : "~");
		used++;
	}
	if (!last)
		buf_printf(out, "%*s", (int)(width - used) + GAP, "");
}

void ctl_table_text(struct buf *out, struct json_object *items, const struct ctl_column *columns, size_t room, bool wide,
		    int64_t now_ms)
{
	struct table t = {.columns = columns, .wide = wide};

	fill(&t, items, now_ms);
	if (room != SIZE_MAX)
		shrink(&t, room);
	for (size_t i = 0; t.cells && i < t.rows * t.count; i++) {
		bool last = i % t.count == t.count - 1;

		put_cell(out, &t, t.cells[i] ? t.cells[i] : "", t.widths[i % t.count], last);
		if (!last)
			continue;
		while (out->len && out->ptr[out->len - 1] == ' ')
			out->ptr[--out->len] = '\0';
		buf_puts(out, "\n");
	}
	for (size_t i = 0; t.cells && i < t.rows * t.count; i++)
		free(t.cells[i]);
	free(t.cells);
}

static size_t terminal_width(void)
{
	struct winsize size;

	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_col)
		return SIZE_MAX;
	return size.ws_col;
}

void ctl_table(struct json_object *items, const struct ctl_column *columns)
{
	struct buf out;

	buf_init(&out, 64 * LIMIT_MIB);
	ctl_table_text(&out, items, columns, terminal_width(), !strcasecmp(nl_langinfo(CODESET), "UTF-8"),
		       clock_wall_ms());
	if (out.error)
		ctl_fail(CTL_ERROR, "the table is too large; use --json or ask for less");
	else if (out.len)
		fwrite(out.ptr, 1, out.len, stdout);
	buf_fini(&out);
}

void ctl_rows(struct json_object *item, const struct ctl_column *rows)
{
	int64_t now_ms = clock_wall_ms();

	for (; rows->title; rows++) {
		struct buf text;

		buf_init(&text, LIMIT_MIB);
		ctl_value(&text, item, rows, now_ms);
		if (text.len)
			printf("%-14s %s\n", rows->title, text.ptr);
		buf_fini(&text);
	}
}

/* ---- lists ---- */

/* Moves one page's items over; puts the next cursor into cursor ("" = last page). */
static int take_page(struct ctl *ctl, const char *what, const char *path, const char *cursor, int64_t limit, struct json_object *items,
		     char **ret_cursor)
{
	struct json_object *page;
	struct ctl_reply reply;
	struct buf full;
	int rc;

	buf_init(&full, 16384);
	buf_puts(&full, path);
	ctl_query(&full, "cursor", *cursor ? cursor : NULL);
	buf_printf(&full, "%climit=%" PRId64, strchr(full.ptr, '?') ? '&' : '?', limit);
	rc = ctl_call(ctl, "GET", full.ptr, NULL, &reply);
	buf_fini(&full);
	if (!rc && reply.status != 200)
		rc = ctl_explain(ctl, &reply, what, NULL);
	if (!rc && !json_object_is_type(ctl_at(reply.json, "items"), json_type_array))
		rc = ctl_not_berthd(ctl);
	page = rc ? NULL : ctl_at(reply.json, "items");
	for (size_t i = 0; i < ctl_length(page); i++)
		json_object_array_add(items, json_object_get(json_object_array_get_idx(page, i)));
	*ret_cursor = strdup(rc ? "" : ctl_text(reply.json, "next_cursor"));
	ctl_reply_fini(&reply);
	return rc;
}

int ctl_list(struct ctl *ctl, const char *what, const char *path, int64_t limit, struct json_object **ret_list)
{
	struct json_object *list = json_object_new_object(), *items = json_object_new_array();
	char *cursor = strdup("");
	int rc = 0;

	do {
		int64_t left = limit - (int64_t)json_object_array_length(items);
		char *next = NULL;

		rc = take_page(ctl, what, path, cursor ? cursor : "", left > 100 ? 100 : left, items, &next);
		if (!rc && cursor && next && *next && strcmp(next, cursor) == 0)
			rc = ctl_fail(CTL_ERROR, "%s: the answer is not berthd's: its list does not go on", ctl->address);
		free(cursor);
		cursor = next;
	} while (!rc && cursor && *cursor && (int64_t)json_object_array_length(items) < limit);
	json_object_object_add(list, "items", items);
	if (!rc && cursor && *cursor)
		json_object_object_add(list, "next_cursor", json_object_new_string(cursor));
	free(cursor);
	*ret_list = list;
	return rc;
}

int ctl_show(struct ctl *ctl, const char *method, const char *path, const char *what, const char *hint,
	     void (*show)(struct json_object *json))
{
	struct ctl_reply reply;
	int rc = ctl_call(ctl, method, path, NULL, &reply);

	if (!rc && reply.status / 100 != 2)
		rc = ctl_explain(ctl, &reply, what, hint);
	else if (!rc && (ctl->json || !show))
		ctl_json(reply.json);
	else if (!rc)
		show(reply.json);
	ctl_reply_fini(&reply);
	return rc;
}
