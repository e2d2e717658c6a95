/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the table of used nonces. Entered by request threads through steps and by the GC's sweep. Must never let a nonce
 * be used twice for two things, and never drops a row before its token has surely ended.
 */
#include "execution/nonce.h"

#include <stdio.h>
#include <string.h>

#include "core/json.h"

#define PAGE 200

struct used {
	const char *id, *sha256;
};

static const struct json_field used_fields[] = {
	{.name = "id", .type = JSON_STR, .flags = JSON_OMIT, .off = offsetof(struct used, id)},
	{.name = "sha256", .type = JSON_STR, .flags = JSON_OMIT, .off = offsetof(struct used, sha256)},
	{0},
};

int nonce_refuse(struct err *err)
{
	return err_set(err, ERR_UNAUTHORIZED, "the token was used already");
}

int nonce_look_step(struct txn *txn, const char *key, const char *sha256, bool *ret_used,
		    char ret_id[IDENT_ID_MAX + 1], struct err *err)
{
	struct store_row row, record;
	struct used used;
	int rc = txn_get(txn, STORE_NONCE, key, &row, err);

	*ret_used = rc == 0 && row.doc;
	ret_id[0] = '\0';
	if (!*ret_used)
		return rc;
	rc = json_decode_text(txn_arena(txn), used_fields, row.doc, row.doc_len, &used, sizeof(used), err);
	if (rc || !used.id || !used.sha256 || !sha256 || strcmp(used.sha256, sha256) != 0)
		return rc;
	rc = txn_get(txn, STORE_EXECUTION, used.id, &record, err);
	if (rc == 0 && record.doc)
		snprintf(ret_id, IDENT_ID_MAX + 1, "%s", used.id);
	return rc;
}

int nonce_put_step(struct txn *txn, const char *key, int64_t expires_ms, const char *id, const char *sha256,
		   struct err *err)
{
	struct used used = {.id = id, .sha256 = sha256};
	struct buf buf;
	int rc;

	buf_init(&buf, 1024);
	rc = json_encode(&buf, used_fields, &used, 0);
	if (rc == 0)
		rc = txn_put(txn, STORE_NONCE,
			     &(struct store_row){.key = key,
						 .group = "",
						 .due_ms = expires_ms,
						 .doc = buf.ptr,
						 .doc_len = buf.len},
			     err);
	buf_fini(&buf);
	return rc;
}

struct sweep {
	char keys[PAGE][65];
	size_t count;
};

static bool see(const struct store_row *row, void *arg)
{
	struct sweep *sweep = arg;

	snprintf(sweep->keys[sweep->count++], sizeof(sweep->keys[0]), "%s", row->key);
	return sweep->count < PAGE;
}

int nonce_sweep_step(struct txn *txn, void *ret_more, struct err *err)
{
	struct sweep *sweep = arena_alloc(txn_arena(txn), sizeof(*sweep));
	int rc = sweep ? 0 : err_set(err, ERR_NOMEM, "no memory to look for old nonces");

	if (rc == 0)
		rc = txn_scan_due(txn, STORE_NONCE, txn_now(txn) - NONCE_KEEP_MS, PAGE, see, sweep, err);
	for (size_t i = 0; rc == 0 && i < sweep->count; i++)
		rc = txn_delete(txn, STORE_NONCE, sweep->keys[i], err);
	*(bool *)ret_more = rc == 0 && sweep->count == PAGE;
	return rc;
}
