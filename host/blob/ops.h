/* SPDX-License-Identifier: Apache-2.0 */
/* Internal: what an object store implements. Keys and prefixes have been checked when they arrive here. */
#ifndef BLOB_OPS_H
#define BLOB_OPS_H

#include "blob/blob.h"

#define BLOB_MAGIC 0x424c4f42u

struct blob_ops {
	int (*put_file)(struct blob_store *blobs, const char *key, const char *path, const struct blob_info *info,
			struct err *err);
	int (*put_bytes)(struct blob_store *blobs, const char *key, const void *ptr, size_t len, struct err *err);
	int (*read)(struct blob_store *blobs, const char *key, uint64_t offset, uint64_t length,
		    int (*fn)(void *arg, const void *ptr, size_t len), void *arg, struct err *err);
	int (*size)(struct blob_store *blobs, const char *key, uint64_t *ret_size, struct err *err);
	int (*remove)(struct blob_store *blobs, const char *key, struct err *err);
	int (*remove_prefix)(struct blob_store *blobs, const char *prefix, struct err *err);
	int (*check)(struct blob_store *blobs, struct err *err);
	int (*adopt)(struct blob_store *blobs, const char *store_id, struct err *err);
	const char *(*staging_dir)(const struct blob_store *blobs);
	void (*close)(struct blob_store *blobs); /* frees the store */
};

/* First member of every implementation's store. */
struct blob_store {
	unsigned magic;
	const struct blob_ops *ops;
};

#endif
