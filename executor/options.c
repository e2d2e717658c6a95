/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the table of options: flag, environment variable, default, type. Main thread only. A flag beats the environment.
 */
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct option_row {
	const char *flag; /* NULL: environment only */
	const char *variable;
	const char *absent;
	enum { TEXT, NUMBER } type;
	size_t offset;
	long min, max;
};

static const struct option_row rows[] = {
	{"--listen", "BERTH_EXECUTOR_LISTEN", "[::]:8080", TEXT, offsetof(struct options, listen), 0, 0},
	{"--root", "BERTH_EXECUTOR_ROOT", "/workspace", TEXT, offsetof(struct options, root), 0, 0},
	{"--state", "BERTH_EXECUTOR_STATE", "/run/berth", TEXT, offsetof(struct options, state), 0, 0},
	{"--keys", "BERTH_EXECUTOR_KEYS_FILE", NULL, TEXT, offsetof(struct options, keys_file), 0, 0},
	{NULL, "BERTH_EXECUTOR_KEYS", NULL, TEXT, offsetof(struct options, keys), 0, 0},
	{"--pod-uid", "BERTH_POD_UID", NULL, TEXT, offsetof(struct options, pod_uid), 0, 0},
	/* The running program itself, also when its file is gone. */
	{"--helper", "BERTH_EXECUTOR_HELPER", "/proc/self/exe", TEXT, offsetof(struct options, helper), 0, 0},
	{"--uid", "BERTH_EXECUTOR_UID", "-1", NUMBER, offsetof(struct options, uid), -1, INT32_MAX},
	{"--gid", "BERTH_EXECUTOR_GID", "-1", NUMBER, offsetof(struct options, gid), -1, INT32_MAX},
	{"--max-operations", "BERTH_EXECUTOR_MAX_OPERATIONS", "128", NUMBER, offsetof(struct options, max_operations),
	 1, 1024},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static int set(struct options *options, const struct option_row *row, const char *value, char *text, size_t cap)
{
	void *field = (char *)options + row->offset;
	char *end;
	long number;

	if (row->type == TEXT) {
		*(const char **)field = value;
		return 0;
	}
	errno = 0;
	number = strtol(value, &end, 10);
	if (errno || *end || end == value || number < row->min || number > row->max) {
		snprintf(text, cap, "%s: '%s' is not a number from %ld to %ld", row->flag, value, row->min, row->max);
		return -1;
	}
	/* All number fields are 32 bits wide. */
	*(int32_t *)field = (int32_t)number;
	return 0;
}

static int set_flag(struct options *options, const char *flag, const char *value, char *text, size_t cap)
{
	for (size_t i = 0; i < ROWS; i++)
		if (rows[i].flag && strcmp(rows[i].flag, flag) == 0 && value)
			return set(options, &rows[i], value, text, cap);
	snprintf(text, cap, value ? "%s: no such flag" : "%s: a value is missing, or there is no such flag", flag);
	return -1;
}

static int check(const struct options *options, char *text, size_t cap)
{
	const char *uid = options->pod_uid;

	if (!uid || !*uid || strlen(uid) > TOKEN_UID_MAX || !token_id_ok(uid, strlen(uid))) {
		snprintf(text, cap, "--pod-uid or BERTH_POD_UID must be 1 to %u of A-Za-z0-9._-", TOKEN_UID_MAX);
		return -1;
	}
	if (options->root[0] != '/' || options->state[0] != '/') {
		snprintf(text, cap, "--root and --state must be absolute paths");
		return -1;
	}
	return 0;
}

int options_parse(int argc, char **argv, struct options *ret_options, char *text, size_t cap)
{
	memset(ret_options, 0, sizeof(*ret_options));
	for (size_t i = 0; i < ROWS; i++) {
		const char *value = getenv(rows[i].variable);

		if (!value || !*value)
			value = rows[i].absent;
		if (value && set(ret_options, &rows[i], value, text, cap) < 0)
			return -1;
	}
	for (int i = 0; i < argc; i += 2)
		if (set_flag(ret_options, argv[i], i + 1 < argc ? argv[i + 1] : NULL, text, cap) < 0)
			return -1;
	return check(ret_options, text, cap);
}
