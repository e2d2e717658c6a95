/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns two rows of `meta`: `shared.seal`, a box that the first host sealed, and `shared.objects`, the key of an object
 * that it wrote. A host that cannot open the one or find the other has a state key or a folder of its own, and would
 * serve sessions and outputs that nobody else can. Runs on the main thread at start.
 */
#include "execution/shared.h"

#include <stdlib.h>
#include <string.h>

#include "core/ident.h"

#define ROW_SEAL "shared.seal"
#define ROW_OBJECTS "shared.objects"
#define OBJECT_PREFIX "shared/"

struct first {
	const char *key;
	const char *doc;
	char *found; /* what stands there now */
};

/* The first one to come writes; the others read what it wrote. */
static int first_step(struct txn *txn, void *arg, struct err *err)
{
	struct first *first = arg;
	struct store_row row;
	int rc = txn_get(txn, STORE_META, first->key, &row, err);

	free(first->found);
	first->found = NULL;
	if (rc != 0)
		return rc;
	if (row.doc == NULL) {
		row = (struct store_row){.key = first->key, .doc = first->doc, .doc_len = strlen(first->doc)};
		rc = txn_put(txn, STORE_META, &row, err);
	}
	if (rc != 0)
		return rc;
	first->found = strndup(row.doc, row.doc_len);
	return first->found != NULL ? 0 : err_set(err, ERR_NOMEM, "no memory for a row");
}

static int check_seal(struct store *store, const struct seal *seal, struct err *err)
{
	struct first first = {.key = ROW_SEAL};
	char *box = NULL, *text = NULL;
	size_t len;
	int rc = seal_close_box(seal, ROW_SEAL, ROW_SEAL, strlen(ROW_SEAL), &box, err);

	first.doc = box;
	if (rc == 0)
		rc = store_update(store, first_step, &first, err);
	if (rc == 0 && seal_open_box(seal, ROW_SEAL, first.found, &text, &len, err) != 0)
		rc = err_set(
			err, ERR_CONFIG,
			"this host's state key is not the one of the other hosts of this store; copy theirs to the "
			"place that store.state_key names");
	free(text);
	free(first.found);
	free(box);
	return rc;
}

static int check_objects(struct store *store, struct blob_store *blobs, struct err *err)
{
	char key[sizeof(OBJECT_PREFIX) + IDENT_ID_MAX];
	struct first first = {.key = ROW_OBJECTS, .doc = key};
	struct err ignored;
	uint64_t size;
	int rc;

	ident_random(key, OBJECT_PREFIX, 24);
	rc = blob_put_bytes(blobs, key, "", 0, err);
	if (rc == 0)
		rc = store_update(store, first_step, &first, err);
	if (rc == 0 && strcmp(first.found, key) == 0)
		goto out;
	blob_delete(blobs, key, &ignored); /* an empty object more does no harm */
	if (rc == 0) {
		rc = blob_size(blobs, first.found, &size, err);
		if (rc == ERR_NOT_FOUND)
			rc = err_set(
				err, ERR_CONFIG,
				"objects.path is not the folder that the other hosts of this store use; mount theirs");
	}
out:
	free(first.found);
	return rc;
}

int shared_check(struct store *store, const struct seal *seal, struct blob_store *blobs, struct err *err)
{
	int rc;

	if (store_is_exclusive(store))
		return 0;
	rc = check_seal(store, seal, err);
	return rc != 0 ? rc : check_objects(store, blobs, err);
}
