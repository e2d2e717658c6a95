/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading answers and putting their values into words. Pure but for the clock that callers hand in; any thread. Control
 * bytes of answers never reach the terminal.
 */
#include <errno.h>
#include <inttypes.h>

#include "core/clock.h"
#include "ctl/ctl.h"

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

size_t ctl_length(struct json_object *list)
{
	return json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
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

int64_t ctl_seconds(const char *text)
{
	int64_t ms;
	char *end;

	if (!clock_parse_duration(text, &ms) && ms > 0)
		return (ms + 999) / 1000;
	errno = 0;
	ms = strtoll(text, &end, 10);
	return errno || *end || end == text || ms < 0 ? -1 : ms;
}

size_t ctl_control(const char *at)
{
	unsigned char c = (unsigned char)at[0], next = (unsigned char)at[1];

	if (c == 0xc2 && next >= 0x80 && next < 0xa0)
		return 2;
	return c < 0x20 || c == 0x7f;
}

void ctl_clean(struct buf *out, const char *text)
{
	while (*text) {
		size_t control = ctl_control(text);

		buf_append(out, control ? "?" : text, 1);
		text += control ? control : 1;
	}
}

/* Two units at most, as people say it: 45s, 3m20s, 5h10m, 3d4h. */
static void put_span(struct buf *out, int64_t ms)
{
	static const struct {
		int64_t seconds;
		const char *unit;
		int64_t part;
		const char *part_unit;
	} spans[] = {{86400, "d", 3600, "h"}, {3600, "h", 60, "m"}, {60, "m", 1, "s"}, {1, "s", 0, ""}};
	int64_t seconds = ms / 1000;
	size_t i = 0;

	while (i < 3 && seconds < spans[i].seconds)
		i++;
	buf_printf(out, "%" PRId64 "%s", seconds / spans[i].seconds, spans[i].unit);
	if (spans[i].part && seconds % spans[i].seconds / spans[i].part)
		buf_printf(out, "%" PRId64 "%s", seconds % spans[i].seconds / spans[i].part, spans[i].part_unit);
}

/* A moment seen from now; what cannot be read is shown as it is. */
static void put_moment(struct buf *out, const char *text, bool ahead, int64_t now_ms)
{
	int64_t at;

	if (!*text)
		return;
	if (clock_parse(text, &at)) {
		ctl_clean(out, text);
		return;
	}
	at = ahead ? at - now_ms : now_ms - at;
	if (at < 0)
		buf_puts(out, ahead ? "due" : "0s");
	else
		put_span(out, at);
}

void ctl_put_bytes(struct buf *out, int64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
	double size = (double)bytes / 1024;
	size_t i = 0;

	if (bytes < 1024) {
		buf_printf(out, "%" PRId64 " B", bytes);
		return;
	}
	for (; size >= 1024 && i < 3; i++)
		size /= 1024;
	buf_printf(out, "%.1f %s", size, units[i]);
}

static void put_ms(struct buf *out, int64_t ms)
{
	if (ms < 0)
		return;
	if (ms < 10000)
		buf_printf(out, "%" PRId64 ".%02ds", ms / 1000, (int)(ms % 1000 / 10));
	else
		put_span(out, ms);
}

static void put_list(struct buf *out, struct json_object *list)
{
	size_t count = ctl_length(list);

	for (size_t i = 0; i < count; i++) {
		buf_puts(out, i ? " " : "");
		ctl_clean(out, ctl_text(json_object_array_get_idx(list, i), ""));
	}
}

void ctl_value(struct buf *out, struct json_object *item, const struct ctl_column *column, int64_t now_ms)
{
	switch (column->form) {
	case CTL_AGE:
	case CTL_AGO:
	case CTL_UNTIL:
		put_moment(out, ctl_text(item, column->path), column->form == CTL_UNTIL, now_ms);
		buf_puts(out, column->form == CTL_AGO && out->len ? " ago" : "");
		break;
	case CTL_MS:
		put_ms(out, ctl_number(item, column->path, -1));
		break;
	case CTL_BYTES:
		if (ctl_number(item, column->path, -1) >= 0)
			ctl_put_bytes(out, ctl_number(item, column->path, 0));
		break;
	case CTL_LIST:
		put_list(out, ctl_at(item, column->path));
		break;
	default:
		ctl_clean(out, ctl_text(item, column->path));
	}
}
