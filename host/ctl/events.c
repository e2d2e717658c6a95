/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events: what happened to an execution, live, from the server-sent events of the API. Main thread. A connection that drops is
 * taken up again after the last event that was seen.
 */
#include "ctl/commands.h"

#include <unistd.h>

#include "core/clock.h"
#include "core/err.h"
#include "core/json.h"
#include "core/limits.h"

#define PAUSE_MS 200

struct events {
	struct ctl *ctl;
	struct buf line;  /* not yet ended */
	struct buf data;  /* of the event that is being read */
	char id[24];	  /* of the event that is being read */
	char last[24];	  /* of the last one shown */
	char kind[16];
	bool seen;	  /* one was: then an outage is waited for */
	bool ended;	  /* the last one there is was */
	int64_t until_ns;
};

/* How it ended is in the record only. */
static void put_ending(struct events *e, const char *id, struct buf *line)
{
	static const char *const paths[] = {"reason", "error"};
	struct ctl_reply reply;
	struct buf path;

	ctl_execution_path(&path, id, "");
	if (!ctl_try(e->ctl, "GET", path.ptr, NULL, NULL, &reply) && reply.status == 200) {
		if (*ctl_text(reply.json, "result.exit_code"))
			buf_printf(line, "  exit code %s", ctl_text(reply.json, "result.exit_code"));
		for (size_t i = 0; i < 2; i++) {
			buf_puts(line, *ctl_text(reply.json, paths[i]) ? "  " : "");
			ctl_clean(line, ctl_text(reply.json, paths[i]));
		}
	}
	ctl_reply_fini(&reply);
	buf_fini(&path);
}

static void show_status(struct events *e, struct json_object *json)
{
	const char *type = ctl_text(json, "type"), *dot = strrchr(type, '.');
	const char *status = ctl_text(json, "data.status");
	struct buf line;

	e->ended = ctl_is_end(status);
	if (e->ctl->json) {
		ctl_json_line(json);
		return;
	}
	buf_init(&line, LIMIT_MIB);
	ctl_clean(&line, ctl_text(json, "time"));
	buf_puts(&line, "  ");
	ctl_clean(&line, dot ? dot + 1 : type);
	if (e->ended)
		put_ending(e, ctl_text(json, "data.execution_id"), &line);
	puts(line.ptr ? line.ptr : "");
	fflush(stdout);
	buf_fini(&line);
}

static void show(struct events *e)
{
	struct json_object *json = NULL;
	struct err err = {0};

	/* How far the outputs are is told too; `logs -f` shows them themselves. */
	if (e->data.len && !strcmp(e->kind, "status") && !json_parse(e->data.ptr, e->data.len, &json, &err))
		show_status(e, json);
	json_object_put(json);
	if (*e->id)
		snprintf(e->last, sizeof(e->last), "%s", e->id);
	e->seen = true;
	buf_clear(&e->data);
	e->kind[0] = e->id[0] = '\0';
}

static const char *field(const char *line, const char *name)
{
	size_t len = strlen(name);

	if (strncmp(line, name, len) != 0 || line[len] != ':')
		return NULL;
	return line + len + 1 + (line[len + 1] == ' ');
}

static void take_line(struct events *e, const char *line)
{
	const char *value;

	if (!*line)
		show(e);
	else if ((value = field(line, "data")))
		buf_puts(&e->data, value);
	else if ((value = field(line, "id")))
		snprintf(e->id, sizeof(e->id), "%s", value);
	else if ((value = field(line, "event")))
		snprintf(e->kind, sizeof(e->kind), "%s", value);
}

static int take(void *arg, const void *ptr, size_t len)
{
	struct events *e = arg;
	const char *at = ptr, *end = at + len, *newline;

	ctl_outage_over();
	e->until_ns = clock_after_ms(CTL_OUTAGE_MS);
	for (; (newline = memchr(at, '\n', (size_t)(end - at))); at = newline + 1) {
		buf_append(&e->line, at, (size_t)(newline - at));
		take_line(e, e->line.ptr ? e->line.ptr : "");
		buf_clear(&e->line);
		if (e->line.ptr)
			e->line.ptr[0] = '\0';
	}
	buf_append(&e->line, at, (size_t)(end - at));
	return e->line.error || e->data.error ? ctl_fail(CTL_ERROR, "an event is too large") : 0;
}

/* An answer that ended well and did not tell the end: the events are not kept any more, somebody between closed it, or it is no
 * berthd's. The record knows. */
static bool is_over(struct events *e, const char *id, int *ret_rc)
{
	struct ctl_reply reply;
	struct buf path;
	bool over = true;

	ctl_execution_path(&path, id, "");
	*ret_rc = ctl_call(e->ctl, "GET", path.ptr, NULL, &reply);
	buf_fini(&path);
	if (!*ret_rc && reply.status != 200)
		*ret_rc = ctl_explain(e->ctl, &reply, id, ctl_no_execution(id));
	else if (!*ret_rc && !*ctl_text(reply.json, "id"))
		*ret_rc = ctl_not_berthd(e->ctl);
	else if (!*ret_rc && ctl_is_end(ctl_text(reply.json, "status")))
		fprintf(stderr, "berthctl: the events that are kept do not tell its end; berthctl show %s does\n", id);
	else if (!*ret_rc && e->seen && clock_left_ms(e->until_ns))
		over = false;
	else if (!*ret_rc)
		*ret_rc = ctl_fail(CTL_UNAVAILABLE, "its events ended before it did; try again");
	ctl_reply_fini(&reply);
	return over;
}

/* True when there is nothing more to come. */
static bool once(struct events *e, const char *id, int *ret_rc)
{
	struct ctl_download how = {.sink = take, .arg = e, .silent = true, .patient = true};
	struct ctl_reply reply;
	char header[64];
	struct buf path;
	bool over;

	snprintf(header, sizeof(header), "Last-Event-ID: %s", e->last);
	how.header = *e->last ? header : NULL;
	ctl_execution_path(&path, id, "/events");
	*ret_rc = ctl_download(e->ctl, path.ptr, &how, &reply);
	over = *ret_rc == CTL_ERROR ||
	       (!*ret_rc && (!ctl_comes_back(reply.status) || !e->seen || !clock_left_ms(e->until_ns)));
	if (!*ret_rc && over && reply.status / 100 != 2)
		*ret_rc = ctl_explain(e->ctl, &reply, id, ctl_no_execution(id));
	if (!*ret_rc && over && reply.status / 100 == 2 && !e->ended)
		over = is_over(e, id, ret_rc);
	ctl_reply_fini(&reply);
	buf_fini(&path);
	buf_clear(&e->line);
	buf_clear(&e->data);
	return over;
}

int ctl_events(struct ctl *ctl, const struct ctl_args *args)
{
	struct events e = {.ctl = ctl};
	int rc;

	buf_init(&e.line, LIMIT_MIB);
	buf_init(&e.data, LIMIT_MIB);
	while (!once(&e, args->words[0], &rc)) {
		if (!e.seen || !clock_left_ms(e.until_ns)) {
			struct ctl_reply reply;

			rc = ctl_call(ctl, "GET", "/health", NULL, &reply); /* says what is wrong */
			ctl_reply_fini(&reply);
			rc = rc ? rc : ctl_fail(CTL_UNAVAILABLE, "berthd did not answer; try again");
			break;
		}
		ctl_outage_noticed();
		usleep(PAUSE_MS * 1000);
	}
	buf_fini(&e.line);
	buf_fini(&e.data);
	return rc;
}
