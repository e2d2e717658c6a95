/* SPDX-License-Identifier: Apache-2.0 */
/* Deleting objects, and the folders that become empty by it. Any thread. Nothing outside the objects' folder is ever
 * touched. */
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blob/fs.h"

/* What is not found in a folder that is away is not gone: it comes back with the folder. */
int fs_remove(struct blob_store *blobs, const char *key, struct err *err)
{
	struct fs_store *store = fs_of(blobs);
	int rc = fs_check(blobs, err);

	if (rc != 0)
		return rc;
	if (unlinkat(store->objects_fd, key, 0) != 0) {
		/* A folder of that name, or an object above it: there is no such object. */
		if (errno == ENOENT || errno == ENOTDIR || errno == EISDIR)
			return 0;
		return fs_error(err, errno, "delete", key);
	}
	return fs_prune_parents(store->objects_fd, key, err);
}

/* Removes one entry of a walk; folders after what is in them. What others delete or add meanwhile is no error. */
static int remove_entry(const FTSENT *entry)
{
	switch (entry->fts_info) {
	case FTS_D:
		return 0;
	case FTS_DP:
		if (entry->fts_level == FTS_ROOTLEVEL || rmdir(entry->fts_accpath) == 0)
			return 0;
		return errno == ENOENT || errno == ENOTEMPTY || errno == EEXIST ? 0 : errno;
	case FTS_DNR:
	case FTS_ERR:
	case FTS_NS:
		return entry->fts_errno == ENOENT ? 0 : entry->fts_errno;
	default:
		return unlink(entry->fts_accpath) == 0 || errno == ENOENT ? 0 : errno;
	}
}

int fs_empty(const char *path, struct err *err)
{
	char *copy = strdup(path);
	char *roots[] = {copy, NULL};
	FTS *walk = copy != NULL ? fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL) : NULL;
	FTSENT *entry;
	int number = 0, code;

	if (walk == NULL) {
		free(copy);
		return err_set(err, ERR_NOMEM, "no memory to walk a folder");
	}
	while ((entry = fts_read(walk)) != NULL) {
		code = remove_entry(entry);
		number = number == 0 ? code : number;
	}
	fts_close(walk);
	free(copy);
	return number != 0 ? fs_error(err, number, "delete what is below", strrchr(path, '/') + 1) : 0;
}

/* Whether there is a folder of that name. */
static int find_prefix(struct fs_store *store, const char *prefix, bool *ret_found, struct err *err)
{
	struct stat st;

	*ret_found = false;
	if (fstatat(store->objects_fd, prefix, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : fs_error(err, errno, "look for", prefix);
	*ret_found = S_ISDIR(st.st_mode);
	return 0;
}

int fs_remove_prefix(struct blob_store *blobs, const char *prefix, struct err *err)
{
	struct fs_store *store = fs_of(blobs);
	char *path = NULL, *inside = NULL;
	bool found = false;
	int rc = fs_check(blobs, err);

	if (rc == 0)
		rc = find_prefix(store, prefix, &found, err);
	if (rc != 0 || !found)
		return rc;
	if (asprintf(&path, "%s/" FS_OBJECTS "/%s", store->root, prefix) < 0 || asprintf(&inside, "%s/x", prefix) < 0) {
		free(path);
		return err_set(err, ERR_NOMEM, "no memory for a path");
	}
	rc = fs_empty(path, err);
	if (rc == 0)
		rc = fs_prune_parents(store->objects_fd, inside, err);
	free(inside);
	free(path);
	return rc;
}
