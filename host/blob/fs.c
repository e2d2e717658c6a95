/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory store: <root>/store-id names the state database it belongs to, <root>/objects holds the objects under
 * their keys, <root>/.staging what is being written (fs_stage.c). This file opens, checks and closes it; entered by the thread that
 * starts and stops the daemon, the check by any. It must never adopt a folder with somebody else's files in it.
 */
#include "blob/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"

#define ID_MAX 128
#define ID_NEW FS_ID "." /* and a random part: hosts of a fleet may begin in one moment */

static const char *fs_staging_dir(const struct blob_store *blobs)
{
	return ((const struct fs_store *)blobs)->staging;
}

static void fs_close(struct blob_store *blobs)
{
	struct fs_store *store = fs_of(blobs);

	if (store->objects_fd >= 0)
		close(store->objects_fd);
	if (store->staging_fd >= 0)
		close(store->staging_fd);
	if (store->staging != NULL)
		fs_stage_close(store);
	lock_fini(&store->lock);
	free(store->root);
	free(store->id);
	free(store->staging);
	store->base.magic = 0;
	free(store);
}

static const struct blob_ops fs_ops = {
	.put_file = fs_put_file,
	.put_bytes = fs_put_bytes,
	.read = fs_read,
	.size = fs_size,
	.remove = fs_remove,
	.remove_prefix = fs_remove_prefix,
	.check = fs_check,
	.adopt = fs_adopt,
	.staging_dir = fs_staging_dir,
	.close = fs_close,
};

static int config_error(struct err *err, const char *root, const char *what)
{
	return err_set(err, ERR_CONFIG, "the object store %.120s %s: %s", root, what, strerror(errno));
}

/* Whether the folder holds nothing but what a new store may find: a file system's lost+found, our own half-written
 * id. */
static int is_unused(int root_fd, const char *root, bool *ret_unused, struct err *err)
{
	int fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	if (dir == NULL) {
		config_error(err, root, "cannot be listed");
		if (fd >= 0)
			close(fd);
		return ERR_CONFIG;
	}
	*ret_unused = true;
	while ((entry = readdir(dir)) != NULL)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
		    strcmp(entry->d_name, "lost+found") != 0 && strncmp(entry->d_name, ID_NEW, strlen(ID_NEW)) != 0)
			*ret_unused = false;
	closedir(dir);
	return 0;
}

/* "" when there is no id file. */
static int read_id(int root_fd, const char *root, char ret_id[ID_MAX], struct err *err)
{
	int fd = openat(root_fd, FS_ID, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t len;

	ret_id[0] = '\0';
	if (fd < 0)
		return errno == ENOENT ? 0 : config_error(err, root, "has an id that cannot be read");
	len = read(fd, ret_id, ID_MAX - 1);
	close(fd);
	if (len < 0)
		return config_error(err, root, "has an id that cannot be read");
	ret_id[len] = '\0';
	ret_id[strcspn(ret_id, "\n")] = '\0';
	if (ret_id[0] == '\0')
		return err_set(err, ERR_CONFIG, "the object store %.120s has an empty id; it is damaged", root);
	return 0;
}

static int write_id(int root_fd, const char *root, const char *id, struct err *err)
{
	char text[ID_MAX + 1], name[sizeof(ID_NEW) + IDENT_ID_MAX] = ID_NEW;
	int len = snprintf(text, sizeof(text), "%s\n", id);
	int fd, number;

	if (len >= ID_MAX)
		return err_set(err, ERR_INTERNAL, "the id of the state database is too long");
	ident_random(name + strlen(name), "", 24);
	fd = openat(root_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return config_error(err, root, "cannot be written");
	number = fs_write_all(fd, text, (size_t)len);
	if (number == 0 && fsync(fd) != 0)
		number = errno;
	close(fd);
	if (number == 0 && (renameat(root_fd, name, root_fd, FS_ID) != 0 || fsync(root_fd) != 0))
		number = errno;
	if (number != 0)
		unlinkat(root_fd, name, 0);
	errno = number;
	return number != 0 ? config_error(err, root, "cannot be written") : 0;
}

static int compare_id(int root_fd, const char *root, const char *store_id, bool *ret_has_one, struct err *err)
{
	char id[ID_MAX];
	int rc = read_id(root_fd, root, id, err);

	*ret_has_one = rc == 0 && id[0] != '\0';
	if (*ret_has_one && strcmp(id, store_id) != 0)
		rc = err_set(err, ERR_CONFIG,
			     "the object store %.100s belongs to the state database %.32s, not to %.32s", root, id,
			     store_id);
	return rc;
}

/* Another host may take the folder in the same moment: what it has made is no stranger's, and the last id written counts. */
static int check_id(int root_fd, const char *root, const char *store_id, struct err *err)
{
	bool unused = false, has_one = false;
	char id[ID_MAX];
	int rc;

	if (store_id[0] == '\0')
		return read_id(root_fd, root, id, err);
	rc = compare_id(root_fd, root, store_id, &has_one, err);
	if (rc != 0 || has_one)
		return rc;
	rc = is_unused(root_fd, root, &unused, err);
	if (rc == 0 && !unused) {
		rc = compare_id(root_fd, root, store_id, &has_one, err);
		if (rc != 0 || has_one)
			return rc;
		rc = err_set(err, ERR_CONFIG,
			     "the folder %.120s is not empty and no object store of Berth; it is left as it is", root);
	}
	if (rc == 0)
		rc = write_id(root_fd, root, store_id, err);
	return rc != 0 ? rc : compare_id(root_fd, root, store_id, &has_one, err);
}

static int open_folder(int root_fd, const char *root, const char *name, int *ret_fd, struct err *err)
{
	if (mkdirat(root_fd, name, 0700) != 0 && errno != EEXIST)
		return config_error(err, root, "cannot be written");
	*ret_fd = openat(root_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return *ret_fd < 0 ? config_error(err, root, "cannot be opened") : 0;
}

/* The new folder's own entry must survive a crash as well as what is put into it. */
static int sync_above(const char *root)
{
	char above[PATH_MAX];
	int fd, number = 0;

	snprintf(above, sizeof(above), "%s/..", root);
	fd = open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	if (fsync(fd) != 0)
		number = errno;
	close(fd);
	return number;
}

static int open_root(const char *root, int *ret_fd, struct err *err)
{
	int number = mkdir(root, 0700) == 0 ? sync_above(root) : errno;

	if (number != 0 && number != EEXIST) {
		errno = number;
		return config_error(err, root, "cannot be made");
	}
	*ret_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return *ret_fd < 0 ? config_error(err, root, "cannot be opened") : 0;
}

static struct fs_store *fs_new(const char *root, const char *id)
{
	struct fs_store *store = calloc(1, sizeof(*store));

	if (store == NULL)
		return NULL;
	store->base.magic = BLOB_MAGIC;
	store->base.ops = &fs_ops;
	store->objects_fd = store->staging_fd = store->lock_fd = -1;
	lock_init(&store->lock, LOCK_BLOB);
	store->root = strdup(root);
	store->id = strdup(id);
	snprintf(store->stage, sizeof(store->stage), FS_STAGING "/");
	ident_random(store->stage + strlen(store->stage), "", 24);
	if (store->root == NULL || store->id == NULL || asprintf(&store->staging, "%s/%s", root, store->stage) < 0) {
		store->staging = NULL;
		fs_close(&store->base);
		return NULL;
	}
	return store;
}

static int open_folders(const struct fs_store *store, int root_fd, int *ret_objects, int *ret_staging, int *ret_lock,
			struct err *err)
{
	int rc = check_id(root_fd, store->root, store->id, err);

	if (rc == 0)
		rc = open_folder(root_fd, store->root, FS_OBJECTS, ret_objects, err);
	if (rc == 0)
		errno = fs_stage_open(store, root_fd, ret_staging, ret_lock);
	if (rc == 0 && *ret_staging < 0)
		rc = config_error(err, store->root, "cannot be written and locked");
	if (rc == 0 && fsync(root_fd) != 0)
		rc = config_error(err, store->root, "cannot be synced");
	return rc;
}

int blob_open_dir(const char *root, const char *store_id, struct blob_store **ret, struct err *err)
{
	struct fs_store *store = fs_new(root, store_id);
	int root_fd = -1, rc;

	if (store == NULL)
		return err_set(err, ERR_NOMEM, "no memory for the object store");
	rc = open_root(root, &root_fd, err);
	if (rc == 0)
		rc = open_folders(store, root_fd, &store->objects_fd, &store->staging_fd, &store->lock_fd, err);
	if (rc == 0)
		rc = fs_stage_sweep(store, root_fd, err);
	if (root_fd >= 0)
		close(root_fd);
	if (rc != 0)
		fs_close(&store->base);
	else
		*ret = &store->base;
	return rc;
}

/* ---- a folder that goes and comes ---- */

/* Whether the name in the root still is what the descriptor holds. */
static bool is_same(int root_fd, const char *name, int fd)
{
	struct stat named, held;

	return fstatat(root_fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &held) == 0 &&
	       named.st_dev == held.st_dev && named.st_ino == held.st_ino;
}

/* Other threads use the numbers without a lock: dup3 replaces what they mean in one step. */
static int replace(struct fs_store *store, int root_fd, struct err *err)
{
	int objects = -1, staging = -1, lock = -1;
	char id[ID_MAX];
	int rc = read_id(root_fd, store->root, id, err);

	/* An empty folder may be the place of a file system that is not mounted; only a start takes one into use. */
	if (rc == 0 && store->id[0] != '\0' && strcmp(id, store->id) != 0)
		rc = err_set(err, ERR_CONFIG, "the object store %.120s is not the one that was used: it has %s id",
			     store->root, id[0] ? "another" : "no");
	if (rc == 0)
		rc = open_folders(store, root_fd, &objects, &staging, &lock, err);
	if (rc == 0 && (dup3(objects, store->objects_fd, O_CLOEXEC) < 0 || dup3(staging, store->staging_fd, O_CLOEXEC) < 0))
		rc = config_error(err, store->root, "cannot be taken into use again");
	if (objects >= 0)
		close(objects);
	if (staging >= 0)
		close(staging);
	if (rc == 0) {
		close(store->lock_fd);
		store->lock_fd = lock;
	} else if (lock >= 0) {
		close(lock);
	}
	if (rc == 0)
		log_warn("the folder of the objects is another one, and is used from now on", KS("path", store->root));
	return rc;
}

static int look_again(struct fs_store *store, struct err *err)
{
	int root_fd = open(store->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = 0;

	if (root_fd < 0)
		return config_error(err, store->root, "is missing");
	if (!is_same(root_fd, FS_OBJECTS, store->objects_fd) || !is_same(root_fd, store->stage, store->staging_fd))
		rc = replace(store, root_fd, err);
	else if (faccessat(root_fd, store->stage, W_OK | X_OK, 0) != 0)
		rc = config_error(err, store->root, "cannot be written");
	close(root_fd);
	return rc;
}

int fs_check(struct blob_store *blobs, struct err *err)
{
	struct fs_store *store = fs_of(blobs);
	struct err why = {0};
	int rc;

	lock_take(&store->lock);
	rc = look_again(store, &why);
	lock_drop(&store->lock);
	if (rc != 0) {
		err_set(err, ERR_STORE, "%s", why.msg);
		err_reason(err, "objects_missing");
	}
	return rc != 0 ? ERR_STORE : 0;
}

/* Another host of the same folder may have been first. */
static int adopt_locked(struct fs_store *store, const char *id, struct err *err)
{
	char *copy = strdup(id);
	int root_fd = open(store->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char found[ID_MAX] = "";
	int rc = 0;

	if (copy == NULL)
		rc = err_set(err, ERR_NOMEM, "no memory for the object store");
	else if (root_fd < 0)
		rc = config_error(err, store->root, "is missing");
	if (rc == 0)
		rc = read_id(root_fd, store->root, found, err);
	if (rc == 0 && strcmp(found, id) != 0 && strcmp(found, store->id) != 0)
		rc = err_set(err, ERR_CONFIG, "the object store %.100s belongs to the state database %.32s, not to %.32s",
			     store->root, found, id);
	if (rc == 0 && strcmp(found, id) != 0)
		rc = write_id(root_fd, store->root, id, err);
	if (rc == 0) {
		free(store->id);
		store->id = copy;
		copy = NULL;
	}
	if (root_fd >= 0)
		close(root_fd);
	free(copy);
	return rc;
}

int fs_adopt(struct blob_store *blobs, const char *store_id, struct err *err)
{
	struct fs_store *store = fs_of(blobs);
	int rc;

	lock_take(&store->lock);
	rc = adopt_locked(store, store_id, err);
	lock_drop(&store->lock);
	return rc;
}
