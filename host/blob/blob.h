/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects: immutable bytes under a key ("executions/<id>/stdout"). A directory now; S3-compatible stores come behind the same
 * table. Any thread. Keys obey the path rule of core/ident.h.
 */
#ifndef BLOB_BLOB_H
#define BLOB_BLOB_H

#include <stdint.h>

#include "core/err.h"

struct blob_store;

struct blob_info {
	uint64_t size;
	char sha256[65];
};

/* root is made (0700) when absent; it carries an id file that must equal store_id, else ERR_CONFIG (store_id "" = do not check). */
int blob_open_dir(const char *root, const char *store_id, struct blob_store **ret, struct err *err);
void blob_close(struct blob_store *blobs);

/* Durable before it returns (file and folder synced). The file at path is taken over by rename when it is on the same file system,
 * else copied; it is gone afterwards on success. Digest and size are the caller's word, size is checked. */
int blob_put_file(struct blob_store *blobs, const char *key, const char *path, const struct blob_info *info,
		  struct err *err);
int blob_put_bytes(struct blob_store *blobs, const char *key, const void *ptr, size_t len, struct err *err);
/* Reads [offset, offset+length) in pieces; ERR_NOT_FOUND. length UINT64_MAX = to the end. */
int blob_read(struct blob_store *blobs, const char *key, uint64_t offset, uint64_t length,
	      int (*fn)(void *arg, const void *ptr, size_t len), void *arg, struct err *err);
int blob_size(struct blob_store *blobs, const char *key, uint64_t *ret_size, struct err *err);
int blob_delete(struct blob_store *blobs, const char *key, struct err *err); /* absent is 0 */
/* Deletes everything below "prefix/". */
int blob_delete_prefix(struct blob_store *blobs, const char *prefix, struct err *err);
/* Whether objects can be kept now: 0, or ERR_STORE with a sentence for the log. A folder that was taken away and is back, or
 * a copy of it in its place, is taken into use again; one without its id is not, and a missing one is not made. */
int blob_check(struct blob_store *blobs, struct err *err);
/* The state store was lost and another one has taken its place: the objects are that one's from now on. 0 also when they are. */
int blob_adopt(struct blob_store *blobs, const char *store_id, struct err *err);
/* Temporary files older than a crash are removed at open; this is where a caller may make files that blob_put_file will take over
 * by rename. */
const char *blob_staging_dir(const struct blob_store *blobs);

#endif
