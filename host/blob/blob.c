/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The object store as its users see it: every key is checked here, once, before an implementation sees it. Any thread.
 * It must never let a key through that leads out of the store.
 */
#include "blob/blob.h"

#include <assert.h>
#include <string.h>

#include "blob/ops.h"
#include "core/ident.h"

static int check_key(const struct blob_store *blobs, const char *field, const char *key, struct err *err)
{
	assert(blobs->magic == BLOB_MAGIC);
	return ident_path_check(field, key, strlen(key), false, err);
}

int blob_put_file(struct blob_store *blobs, const char *key, const char *path, const struct blob_info *info,
		  struct err *err)
{
	int rc = check_key(blobs, "key", key, err);

	return rc != 0 ? rc : blobs->ops->put_file(blobs, key, path, info, err);
}

int blob_put_bytes(struct blob_store *blobs, const char *key, const void *ptr, size_t len, struct err *err)
{
	int rc = check_key(blobs, "key", key, err);

	return rc != 0 ? rc : blobs->ops->put_bytes(blobs, key, ptr, len, err);
}

int blob_read(struct blob_store *blobs, const char *key, uint64_t offset, uint64_t length,
	      int (*fn)(void *arg, const void *ptr, size_t len), void *arg, struct err *err)
{
	int rc = check_key(blobs, "key", key, err);

	return rc != 0 ? rc : blobs->ops->read(blobs, key, offset, length, fn, arg, err);
}

int blob_size(struct blob_store *blobs, const char *key, uint64_t *ret_size, struct err *err)
{
	int rc = check_key(blobs, "key", key, err);

	return rc != 0 ? rc : blobs->ops->size(blobs, key, ret_size, err);
}

int blob_delete(struct blob_store *blobs, const char *key, struct err *err)
{
	int rc = check_key(blobs, "key", key, err);

	return rc != 0 ? rc : blobs->ops->remove(blobs, key, err);
}

int blob_delete_prefix(struct blob_store *blobs, const char *prefix, struct err *err)
{
	int rc = check_key(blobs, "prefix", prefix, err);

	return rc != 0 ? rc : blobs->ops->remove_prefix(blobs, prefix, err);
}

int blob_check(struct blob_store *blobs, struct err *err)
{
	assert(blobs->magic == BLOB_MAGIC);
	return blobs->ops->check(blobs, err);
}

int blob_adopt(struct blob_store *blobs, const char *store_id, struct err *err)
{
	assert(blobs->magic == BLOB_MAGIC);
	return blobs->ops->adopt(blobs, store_id, err);
}

const char *blob_staging_dir(const struct blob_store *blobs)
{
	return blobs->ops->staging_dir(blobs);
}

void blob_close(struct blob_store *blobs)
{
	if (blobs == NULL)
		return;
	assert(blobs->magic == BLOB_MAGIC);
	blobs->ops->close(blobs);
}
