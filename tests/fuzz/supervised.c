/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the run directory's small files, which whatever runs in a sandbox may have written: status (first byte
 * 's'), started ('t'), poison ('p'), and the spec with its environment ('e', separated by a line "====").
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <berth/types.h>

#include "../../sdk/supervisor/sup.h"
#include "fuzz.h"

/* A number that does not fit its field must not arrive as another one. */
static void check_number(const char *text, const char *key, int64_t got)
{
	int64_t want = 0;

	FUZZ_CHECK(sup_number(text, key, &want) == 0 && want == got);
}

static void fuzz_status(int dir, const char *text, size_t len)
{
	struct sup_status status = {0}, again = {0};

	fuzz_write_file(dir, "status", text, len);
	if (sup_status_read(dir, &status) != 0)
		return;
	FUZZ_CHECK(status.kind && status.quiescent <= BERTH_QUIESCENT_NO);
	FUZZ_PLANTED(status.reason, strlen(status.reason));
	check_number(text, "exit_code", status.exit_code);
	check_number(text, "signal", status.signal);
	check_number(text, "survivors", status.survivors);
	check_number(text, "duration_ms", status.duration_ms);
	FUZZ_CHECK(status.duration_ms >= 0 && status.kept[0] <= INT64_MAX && status.kept[1] <= INT64_MAX);
	FUZZ_CHECK(status.dropped[0] <= INT64_MAX && status.dropped[1] <= INT64_MAX);
	for (const char *c = status.reason; *c; c++)
		FUZZ_CHECK((unsigned char)*c >= 0x20 && *c != 0x7f);
	FUZZ_CHECK(sup_status_write(dir, &status, 0) == 0 && sup_status_read(dir, &again) == 0);
	FUZZ_CHECK(again.kind == status.kind && again.exit_code == status.exit_code && again.kept[1] == status.kept[1]);
	FUZZ_CHECK(strcmp(again.reason, status.reason) == 0);
}

static void fuzz_started(int dir, const char *text, size_t len)
{
	struct sup_started started = {0};

	fuzz_write_file(dir, "started", text, len);
	if (sup_started_read(dir, &started) != 0)
		return;
	check_number(text, "attempt", started.attempt);
	check_number(text, "pid", started.pid);
	/* 0 and -1 are not a process; a signal to them would reach others. */
	FUZZ_CHECK(started.pid > 0 && started.leader >= 0);
	if (started.leader)
		check_number(text, "leader", started.leader);
	FUZZ_CHECK(strlen(started.boot) < SUP_BOOT_MAX);
	sup_supervisor_alive(&started);
}

static void fuzz_poison(int dir, const char *text, size_t len)
{
	struct sup_started started = {0};
	uint32_t attempt = 0, after = 0;

	unlinkat(dir, "started", 0);
	fuzz_write_file(dir, "poison", text, len);
	if (sup_poison_read(dir, &attempt) != 0)
		return;
	check_number(text, "attempt", attempt);
	FUZZ_CHECK(sup_poison(dir, 7, &started) == 0 && sup_poison_read(dir, &after) == 0);
	FUZZ_CHECK(after == (attempt > 7 ? attempt : 7));
}

static void fuzz_spec(int dir, struct fuzz_input *in)
{
	struct spec *spec = calloc(1, sizeof(*spec));
	size_t len = 0;
	char *text = fuzz_text(in, "\n====\n", &len);
	char *whole = fuzz_copy(text, len);

	/* The separator took the last newline, without which a line does not count. */
	fuzz_write_file(dir, "env", in->ptr, in->len);
	whole[len] = '\n';
	fuzz_write_file(dir, "spec", whole, len + 1);
	if (spec_load(spec, dir) == 0) {
		FUZZ_CHECK(spec->timeout_ms > 0 && spec->root[0] && spec->cwd[0]);
		FUZZ_CHECK(spec->max[0] <= INT64_MAX && spec->max[1] <= INT64_MAX);
		FUZZ_CHECK(spec->uid >= -1 && spec->gid >= -1);
		for (char **pair = spec->env; *pair; pair++)
			FUZZ_CHECK(strlen(*pair) < in->len);
	}
	if (spec->env)
		free(spec->env[0]); /* the whole file */
	free(spec->env);
	free(spec);
	free(whole);
	free(text);
}

static void fuzz_escape(const char *text, size_t len)
{
	char *escaped = malloc(3 * len + 16), *line = malloc(3 * len + 32), *back = malloc(len + 1);
	int n = sup_escape(text, len, escaped, 3 * len + 16);

	FUZZ_CHECK(n >= 0 && !strpbrk(escaped, "\n\r\t"));
	snprintf(line, 3 * len + 32, "other=1\nkey=%s\n", escaped);
	if (!memchr(text, '\0', len))
		FUZZ_CHECK(sup_value(line, "key", back, len + 1) == (int)len && memcmp(back, text, len) == 0);
	free(escaped);
	free(line);
	free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	uint8_t kind = fuzz_byte(&in);
	char *text = fuzz_copy(in.ptr, in.len);
	int dir = fuzz_folder_fd();

	fuzz_escape(text, in.len);
	if (kind == 's')
		fuzz_status(dir, text, in.len);
	else if (kind == 't')
		fuzz_started(dir, text, in.len);
	else if (kind == 'p')
		fuzz_poison(dir, text, in.len);
	else if (kind == 'e')
		fuzz_spec(dir, &in);
	free(text);
	return 0;
}
