/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the body of POST /sandbox/executions, from its bytes to the stored record and back. */
#include <stdlib.h>
#include <string.h>

#include "api/create.h"
#include "execution/validate.h"
#include "fuzz.h"

#define ID "sexec_018bcfe5680abcdef0123456"

static bool same(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : (!a || !*a) && (!b || !*b);
}

static void check_stored(struct arena *arena, struct record *r)
{
	struct record again;
	struct buf row, shown;

	buf_init(&row, 1 << 22);
	buf_init(&shown, 1 << 22);
	r->status = RECORD_QUEUED;
	r->revision = 1;
	r->created_ms = 1700000000000;
	FUZZ_CHECK(record_encode(r, &row, NULL) == 0);
	FUZZ_CHECK(record_encode_public(r, &shown, NULL) == 0);
	FUZZ_CHECK(record_decode(arena, ID, row.ptr, row.len, &again, NULL) == 0);
	FUZZ_CHECK(same(again.workspace_id, r->workspace_id) && same(again.task_id, r->task_id));
	FUZZ_CHECK(same(again.command.cwd, r->command.cwd) && same(again.session_id, r->session_id));
	FUZZ_CHECK(again.command.timeout_seconds == r->command.timeout_seconds);
	FUZZ_CHECK(again.command.artifact_count == r->command.artifact_count);
	FUZZ_CHECK(!again.command.command_body);
	buf_fini(&row);
	buf_fini(&shown);
}

static void check_created(struct arena *arena, const struct execution_create *in)
{
	static const struct conf conf = {
		.exec_timeout_ms = 600000, .exec_timeout_max_ms = 86400000, .output_max_bytes = 1 << 20};
	struct record r;

	FUZZ_CHECK(ident_part_valid(in->ident.workspace, strlen(in->ident.workspace)));
	FUZZ_CHECK(in->command_len == strlen(in->command_body) && strlen(in->body_sha256) == 64);
	if (validate_create(&conf, in, NULL) != 0)
		return;
	if (in->cwd)
		FUZZ_PLANTED(in->cwd, strlen(in->cwd));
	for (size_t i = 0; i < in->artifact_count; i++)
		FUZZ_CHECK(ident_path_check("path", in->artifact_paths[i], strlen(in->artifact_paths[i]), false,
					    NULL) == 0);
	validate_record(&conf, in, ID, &r);
	FUZZ_CHECK(r.command.timeout_seconds > 0);
	check_stored(arena, &r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct arena *arena = arena_new(1 << 22);
	char *body = fuzz_copy(data, size);
	struct execution_create in;
	struct err err = {0};

	if (create_parse(arena, body, size, &in, &err) == 0)
		check_created(arena, &in);
	else
		FUZZ_CHECK(err.code < 0 && err.msg[0]);
	free(body);
	arena_free(arena);
	return 0;
}
