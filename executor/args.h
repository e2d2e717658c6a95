/* SPDX-License-Identifier: Apache-2.0 */
/* A request's arguments: JSON by tables. */
#ifndef EXECUTOR_ARGS_H
#define EXECUTOR_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <berth/types.h>

struct json_object;

struct args {
	struct json_object *json; /* strings and lists point into it */
	struct json_object *forget;
	struct berth_str execution_id, cwd, signal, path, from, to, token;
	int64_t attempt, timeout_ms, stdout_max, stderr_max, kill_grace_ms, drain_grace_ms;
	int64_t stdout_offset, stderr_offset, offset, length, mode, size;
	bool keep_descendants, has_stdin, recursive;
};

enum args_type { ARGS_STRING, ARGS_INTEGER, ARGS_BOOLEAN, ARGS_LIST };

struct args_key {
	const char *name; /* NULL ends a table */
	enum args_type type;
	bool required;
	size_t offset; /* in struct args */
	int64_t min;   /* of an integer */
	int64_t max;   /* and of a list's members */
	int64_t absent; /* value when it is not there */
};

/* Fills *ret_args by the table. 0, or -1 with a sentence that names the key. args_fini in any case. */
int args_parse(const char *text, size_t len, const struct args_key *keys, struct args *ret_args, char *ret_text,
	       size_t cap);
/* The same of a member of a list, which has to live as long as *ret_args; there is nothing to be freed. */
int args_take(struct json_object *member, const struct args_key *keys, struct args *ret_args, char *ret_text,
	      size_t cap);
void args_fini(struct args *args);

#endif
