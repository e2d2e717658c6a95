/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: what the execution layer reads back: records (first byte 'r'), claims ('c'), queue messages ('m'),
 * environment files ('e'). What was read can be written and read again.
 */
#include <stdlib.h>
#include <string.h>

#include "execution/env.h"
#include "execution/event.h"
#include "execution/record.h"
#include "fuzz.h"

#define ID "sexec_018bcfe5680abcdef0123456"

static struct buf *new_buf(struct buf *buf)
{
	buf_init(buf, 1 << 22);
	return buf;
}

static void check_record(struct arena *arena, const struct record *r)
{
	struct buf first, second, shown;
	struct record again;

	FUZZ_CHECK(record_encode(r, new_buf(&first), NULL) == 0);
	FUZZ_CHECK(record_encode_public(r, new_buf(&shown), NULL) == 0);
	FUZZ_CHECK(record_decode(arena, ID, first.ptr, first.len, &again, NULL) == 0);
	FUZZ_CHECK(record_encode(&again, new_buf(&second), NULL) == 0);
	FUZZ_CHECK(first.len == second.len && memcmp(first.ptr, second.ptr, first.len) == 0);
	for (size_t i = 0; i < 4; i++) {
		const char *texts[] = {r->target, r->reason, r->session_id, r->command.cwd};

		if (texts[i])
			FUZZ_PLANTED(texts[i], strlen(texts[i]));
	}
	buf_fini(&first);
	buf_fini(&second);
	buf_fini(&shown);
}

static void fuzz_record(struct arena *arena, const char *doc, size_t len)
{
	enum record_status status = RECORD_NONE;
	struct record r;
	struct err err = {0};
	bool known = record_decode_status(arena, ID, doc, len, &status, NULL) == 0;

	FUZZ_CHECK(known == (status != RECORD_NONE));
	if (record_decode(arena, ID, doc, len, &r, &err) != 0) {
		FUZZ_CHECK(err.code == ERR_CORRUPT && strstr(err.msg, ID));
		return;
	}
	FUZZ_CHECK(known && r.status == status && r.revision > 0 && strcmp(r.id, ID) == 0);
	check_record(arena, &r);
}

static void fuzz_claim(struct arena *arena, const char *doc, size_t len)
{
	struct buf first, second;
	struct claim c;

	if (claim_decode(arena, ID, doc, len, &c, NULL) != 0)
		return;
	FUZZ_CHECK(claim_encode(&c, new_buf(&first)) == 0);
	FUZZ_CHECK(claim_decode(arena, ID, first.ptr, first.len, &c, NULL) == 0);
	FUZZ_CHECK(claim_encode(&c, new_buf(&second)) == 0);
	FUZZ_CHECK(first.len == second.len && memcmp(first.ptr, second.ptr, first.len) == 0);
	buf_fini(&first);
	buf_fini(&second);
}

static void fuzz_message(const char *doc, size_t len)
{
	char id[IDENT_ID_MAX + 1] = "";
	const char *why = NULL;
	struct json_object *json = NULL;
	struct buf dead;

	if (event_parse_message(doc, len, id, &why))
		FUZZ_CHECK(record_id_valid(id) && !why);
	else
		FUZZ_CHECK(why && *why && !*id);
	/* The dead letter of a message can always be read. */
	FUZZ_CHECK(event_render_dead("why", "subject", 7, doc, len, new_buf(&dead)) == 0);
	FUZZ_CHECK(json_parse(dead.ptr, dead.len, &json, NULL) == 0);
	json_object_put(json);
	buf_fini(&dead);
}

static void fuzz_env(struct arena *arena, const char *text, size_t len)
{
	struct berth_pair *pairs = NULL;
	size_t count = 0, at = 0;

	if (env_parse(arena, text, len, &pairs, &count, NULL) != 0)
		return;
	for (size_t i = 0; i < count; i++) {
		FUZZ_CHECK(pairs[i].name.ptr == text + at &&
			   pairs[i].value.ptr == pairs[i].name.ptr + pairs[i].name.len + 1);
		at += pairs[i].name.len + 1 + pairs[i].value.len + 1;
		FUZZ_CHECK(!memchr(pairs[i].value.ptr, '\0', pairs[i].value.len));
	}
	FUZZ_CHECK(at == len || at == len + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	uint8_t kind = fuzz_byte(&in);
	struct arena *arena = arena_new(1 << 22);
	char *doc = fuzz_copy(in.ptr, in.len);

	if (kind == 'r')
		fuzz_record(arena, doc, in.len);
	else if (kind == 'c')
		fuzz_claim(arena, doc, in.len);
	else if (kind == 'm')
		fuzz_message(doc, in.len);
	else if (kind == 'e')
		fuzz_env(arena, doc, in.len);
	free(doc);
	arena_free(arena);
	return 0;
}
