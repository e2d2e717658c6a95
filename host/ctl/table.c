/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables, JSON output and reading of answers. One thread. Control bytes of answers never reach the terminal.
 */
#include "ctl/ctl.h"

#include <inttypes.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/json.h"

#define COLUMN_MAX 16
#define SHRINK_LEAST 8

struct json_object *ctl_at(struct json_object *json, const char *path)
{
	char name[64];

	while (json && *path) {
		size_t len = strcspn(path, ".");

		snprintf(name, sizeof(name), "%.*s", (int)len, path);
		if (!json_object_is_type(json, json_type_object) || !json_object_object_get_ex(json, name, &json))
			return NULL;
		path += len + (path[len] == '.');
	}
	return json;
}

const char *ctl_text(struct json_object *json, const char *path)
{
	struct json_object *found = ctl_at(json, path);

	return found && !json_object_is_type(found, json_type_object) && !json_object_is_type(found, json_type_array)
		       ? json_object_get_string(found)
		       : "";
}

int64_t ctl_number(struct json_object *json, const char *path, int64_t absent)
{
	struct json_object *found = ctl_at(json, path);

	return found && json_object_is_type(found, json_type_int) ? json_object_get_int64(found) : absent;
}

void ctl_json(struct json_object *json)
{
	puts(json_object_to_json_string_ext(json, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE));
}

static size_t terminal_width(void)
{
	struct winsize size;

	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_col)
		return SIZE_MAX;
	return size.ws_col;
}

static size_t column_widths(struct json_object *items, const struct ctl_column *columns, size_t *widths)
{
	size_t count = 0;

	for (; columns[count].title && count < COLUMN_MAX; count++) {
		widths[count] = strlen(columns[count].title);
		for (size_t i = 0; i < json_object_array_length(items); i++) {
			size_t len = strlen(ctl_text(json_object_array_get_idx(items, i), columns[count].path));

			if (len > widths[count])
				widths[count] = len;
		}
	}
	return count;
}

static void shrink(const struct ctl_column *columns, size_t *widths, size_t count, size_t room)
{
	size_t total = 0;

	for (size_t i = 0; i < count; i++)
		total += widths[i] + 2;
	for (size_t i = 0; i < count && total > room; i++) {
		size_t over = total - room, least = widths[i] < SHRINK_LEAST ? widths[i] : SHRINK_LEAST;
		size_t cut = widths[i] - least < over ? widths[i] - least : over;

		if (columns[i].shrink) {
			widths[i] -= cut;
			total -= cut;
		}
	}
}

static void print_cell(const char *text, size_t width, bool last)
{
	size_t len = strlen(text);
	bool cut = len > width;

	for (size_t i = 0; i < len && i < width - cut; i++)
		putchar((unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i]);
	if (cut)
		putchar('~');
	if (!last)
		printf("%*s", (int)(width - (len < width ? len : width)) + 2, "");
}

void ctl_table(struct json_object *items, const struct ctl_column *columns)
{
	size_t widths[COLUMN_MAX], count = column_widths(items, columns, widths);

	shrink(columns, widths, count, terminal_width());
	for (size_t i = 0; i < count; i++)
		print_cell(columns[i].title, widths[i], i + 1 == count);
	putchar('\n');
	for (size_t row = 0; row < json_object_array_length(items); row++) {
		for (size_t i = 0; i < count; i++)
			print_cell(ctl_text(json_object_array_get_idx(items, row), columns[i].path), widths[i], i + 1 == count);
		putchar('\n');
	}
}

/* Moves one page's items over; puts the next cursor into cursor ("" = last page). */
static int take_page(struct ctl *ctl, const char *path, const char *cursor, int64_t limit, struct json_object *items,
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
		rc = ctl_explain(ctl, &reply, "list");
	page = rc ? NULL : ctl_at(reply.json, "items");
	for (size_t i = 0; page && i < json_object_array_length(page); i++)
		json_object_array_add(items, json_object_get(json_object_array_get_idx(page, i)));
	*ret_cursor = strdup(rc ? "" : ctl_text(reply.json, "next_cursor"));
	ctl_reply_fini(&reply);
	return rc;
}

int ctl_list(struct ctl *ctl, const char *path, int64_t limit, struct json_object **ret_items)
{
	struct json_object *items = json_object_new_array();
	char *cursor = strdup("");
	int rc = 0;

	do {
		int64_t left = limit - (int64_t)json_object_array_length(items);
		char *next = NULL;

		rc = take_page(ctl, path, cursor, left > 100 ? 100 : left, items, &next);
		free(cursor);
		cursor = next;
	} while (!rc && cursor && *cursor && (int64_t)json_object_array_length(items) < limit);
	free(cursor);
	*ret_items = items;
	return rc;
}
