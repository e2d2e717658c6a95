/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What --json prints: one document per command, of the shape that its row of the table says, on failure too. Main
 * thread, but for the notes of what failed, which come from any. Must never print a second document, nor one behind the
 * command's own.
 */
#include "ctl/ctl.h"

#include <ctype.h>
#include <pthread.h>

static struct {
	bool printed;
	pthread_mutex_t lock; /* of what follows */
	struct json_object *answer;
	int code;
	char *sentence;
} document = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char ctl_json_rule[] = "With --json a command prints one JSON document on standard output and nothing else "
			     "there: an object, for lists one with\n"
			     "\"items\", as the API answers them. What goes on (events) prints one object a line. A "
			     "command that fails without a\n"
			     "document of its own prints {\"error\", \"message\"}: the API's answer as it came, or in "
			     "berthctl's own words. A command line\n"
			     "that cannot be read prints nothing there.\n";

static const char *const shapes[] = {
#define X(name, text) text,
	CTL_SHAPES(X)
#undef X
};

const char *ctl_shape_text(const struct ctl_command *command)
{
	return shapes[command->json];
}

/* "not_found" */
static const char *exit_word(int code)
{
	static const struct {
		int code;
		const char *name;
	} exits[] = {
#define X(name, code_, text) {code_, #name},
		CTL_EXITS(X)
#undef X
	};
	static char word[32];
	size_t i = 0;

	while (i + 1 < sizeof(exits) / sizeof(*exits) && exits[i].code != code)
		i++;
	snprintf(word, sizeof(word), "%s", exits[i].code == code ? exits[i].name : "error");
	for (char *c = word; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	return word;
}

/* What moves a terminal is escaped; json-c knows of C0 alone. */
static void print(struct json_object *json, int flags)
{
	const char *text = json_object_to_json_string_ext(json, flags | JSON_C_TO_STRING_NOSLASHESCAPE);

	while (*text) {
		size_t len = strcspn(text, "\x7f\xc2"), control = text[len] ? ctl_control(text + len) : 0;

		len += text[len] && !control;
		fwrite(text, 1, len, stdout);
		text += len;
		if (control)
			printf("\\u%04x", (unsigned char)text[control - 1]);
		text += control;
	}
	putchar('\n');
}

void ctl_json(struct json_object *json)
{
	document.printed = true;
	if (json)
		print(json, JSON_C_TO_STRING_PRETTY);
	else
		puts("{}");
}

void ctl_json_items(struct json_object *items)
{
	struct json_object *list = json_object_new_object();

	json_object_object_add(list, "items", json_object_get(items));
	ctl_json(list);
	json_object_put(list);
}

void ctl_json_line(struct json_object *json)
{
	print(json, JSON_C_TO_STRING_PLAIN);
	fflush(stdout);
}

struct json_object *ctl_json_item(const char *name, const char *word, const char *done, int rc,
				  const struct ctl_reply *reply)
{
	struct json_object *item = json_object_new_object();
	const char *error = ctl_text(reply->json, "error"), *message = ctl_text(reply->json, "message");

	json_object_object_add(item, name, json_object_new_string(word));
	json_object_object_add(item, done, json_object_new_boolean(!rc));
	if (!rc)
		return item;
	json_object_object_add(item, "error", json_object_new_string(*error ? error : exit_word(rc)));
	json_object_object_add(item, "message",
			       json_object_new_string(*message ? message : "there was no answer of berthd's"));
	return item;
}

/* ---- what failed ---- */

void ctl_json_refused(struct json_object *answer)
{
	pthread_mutex_lock(&document.lock);
	if (!document.answer && json_object_is_type(answer, json_type_object))
		document.answer = json_object_get(answer);
	pthread_mutex_unlock(&document.lock);
}

void ctl_json_failed(int code, const char *sentence)
{
	pthread_mutex_lock(&document.lock);
	if (!document.sentence) {
		document.sentence = strdup(sentence);
		document.code = code;
	}
	pthread_mutex_unlock(&document.lock);
}

static struct json_object *error_of(int rc)
{
	struct json_object *error = json_object_new_object();
	int code = document.sentence ? document.code : rc;

	json_object_object_add(error, "error", json_object_new_string(exit_word(code)));
	json_object_object_add(error, "message", json_object_new_string(document.sentence ? document.sentence : ""));
	return error;
}

void ctl_json_end(const struct ctl_command *command, int rc)
{
	struct json_object *error;

	pthread_mutex_lock(&document.lock);
	if (rc && !document.printed && command->json != CTL_SHAPE_NONE) {
		error = document.answer ? json_object_get(document.answer) : error_of(rc);
		if (command->json == CTL_SHAPE_LINES)
			ctl_json_line(error);
		else
			ctl_json(error);
		json_object_put(error);
	}
	json_object_put(document.answer);
	free(document.sentence);
	document.answer = NULL;
	document.sentence = NULL;
	pthread_mutex_unlock(&document.lock);
}
