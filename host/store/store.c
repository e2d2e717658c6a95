/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store as its users see it: dispatch to the implementation, and conveniences built on steps. Any thread. It must
 * never know which implementation it talks to.
 */
#include "store/store.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "store/ops.h"

int store_update(struct store *store, store_step step, void *arg, struct err *err)
{
	assert(store->magic == STORE_MAGIC);
	return store->ops->update(store, step, arg, err);
}

int store_view(struct store *store, store_step step, void *arg, struct err *err)
{
	assert(store->magic == STORE_MAGIC);
	return store->ops->view(store, step, arg, err);
}

struct get_arg {
	enum store_table table;
	const char *key;
	char *doc;
	size_t len;
};

static int get_step(struct txn *txn, void *arg, struct err *err)
{
	struct get_arg *get = arg;
	struct store_row row;
	int rc;

	free(get->doc);
	get->doc = NULL;
	rc = txn_get(txn, get->table, get->key, &row, err);
	if (rc != 0 || row.doc == NULL)
		return rc;
	get->doc = malloc(row.doc_len + 1);
	if (get->doc == NULL)
		return err_set(err, ERR_NOMEM, "no memory for a row of %zu bytes", row.doc_len);
	memcpy(get->doc, row.doc, row.doc_len);
	get->doc[row.doc_len] = '\0';
	get->len = row.doc_len;
	return 0;
}

int store_get(struct store *store, enum store_table table, const char *key, char **ret_doc, size_t *ret_len,
	      struct err *err)
{
	struct get_arg get = {.table = table, .key = key};
	int rc = store_view(store, get_step, &get, err);

	if (rc != 0) {
		free(get.doc);
		return rc;
	}
	*ret_doc = get.doc;
	if (ret_len != NULL)
		*ret_len = get.doc != NULL ? get.len : 0;
	return 0;
}

int store_now(struct store *store, int64_t *ret_ms, struct err *err)
{
	assert(store->magic == STORE_MAGIC);
	return store->ops->now(store, ret_ms, err);
}

const char *store_id(const struct store *store)
{
	return store->ops->id != NULL ? store->ops->id(store) : store->id;
}

bool store_is_lost(struct store *store)
{
	assert(store->magic == STORE_MAGIC);
	return store->ops->lost != NULL && store->ops->lost(store);
}

int store_renew(struct store *store, bool begin, struct err *err)
{
	assert(store->magic == STORE_MAGIC);
	return store->ops->renew != NULL ? store->ops->renew(store, begin, err) : 0;
}

bool store_is_new(const struct store *store)
{
	return store->is_new;
}

bool store_is_exclusive(const struct store *store)
{
	return store->ops->exclusive;
}

bool store_healthy(struct store *store, struct err *err)
{
	assert(store->magic == STORE_MAGIC);
	return store->ops->healthy(store, err);
}

int64_t store_hold_ms(struct store *store)
{
	assert(store->magic == STORE_MAGIC);
	return store->ops->hold_ms != NULL ? store->ops->hold_ms(store) : 0;
}

int store_listen(struct store *store, void (*fn)(const char *key, void *arg), void *arg, struct err *err)
{
	assert(store->magic == STORE_MAGIC);
	return store->ops->listen != NULL ? store->ops->listen(store, fn, arg, err) : 0;
}

void store_close(struct store *store)
{
	if (store == NULL)
		return;
	assert(store->magic == STORE_MAGIC);
	store->ops->close(store);
}
