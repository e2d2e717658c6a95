/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of a workspace, taken while commands may still change it. Judged by inode and change time, since
 * modification times can be set at will. A file system stamps changes with the ticks of a coarse clock, so an entry
 * that changed within the last ticks is taken for unknown. No recursion; one directory open at a time; memory is
 * bounded by the entry limit.
 */
#include "localfs_snapshot.h"

#include <berth/types.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "localfs_internal.h"

/* Longer than a tick of any kernel (100 per second). */
#define RACY_NS INT64_C(12000000)

static int64_t stat_ctime_ns(const struct stat *st)
{
	return (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec;
}

static uint32_t kind_of(mode_t mode)
{
	if (S_ISREG(mode))
		return BERTH_FILE_REGULAR;
	if (S_ISDIR(mode))
		return BERTH_FILE_DIRECTORY;
	return S_ISLNK(mode) ? BERTH_FILE_SYMLINK : BERTH_FILE_OTHER;
}

static struct snapshot_entry *push(struct snapshot *snap)
{
	if (snap->count == snap->cap) {
		size_t cap = snap->cap ? snap->cap * 2 : 256;
		void *grown = realloc(snap->entries, cap * sizeof(snap->entries[0]));

		if (!grown)
			return NULL;
		snap->entries = grown;
		snap->cap = cap;
	}
	return &snap->entries[snap->count++];
}

/* Who works in the session closes its folders: that must not take the rest from a mark. The root is no such folder. */
static int cannot_look(struct snapshot *snap, const char *dir, int err)
{
	if (err != -EACCES || !*dir)
		return err;
	snap->closed++;
	return 0;
}

/* dir is the path of the directory, empty for the root. */
static int add(struct snapshot *snap, int dir_fd, const char *dir, const char *name)
{
	struct snapshot_entry *entry;
	struct stat st;
	char *path;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : cannot_look(snap, dir, -errno);
	if (strlen(dir) + 1 + strlen(name) > BERTH_PATH_MAX) {
		snap->unnamed++;
		return 0;
	}
	if (snap->count >= SNAPSHOT_ENTRIES_MAX)
		return -E2BIG;
	if (asprintf(&path, *dir ? "%s/%s" : "%s%s", dir, name) < 0)
		return -ENOMEM;
	entry = push(snap);
	if (!entry) {
		free(path);
		return -ENOMEM;
	}
	*entry = (struct snapshot_entry){.path = path,
					 .inode = st.st_ino,
					 .ctime_ns = stat_ctime_ns(&st),
					 .size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0,
					 .mode = st.st_mode & 0777,
					 .kind = kind_of(st.st_mode)};
	/* Which names a directory holds is told by the names themselves. */
	if (entry->kind == BERTH_FILE_DIRECTORY)
		entry->ctime_ns = 0;
	else if (entry->ctime_ns > snap->newest_ns)
		snap->newest_ns = entry->ctime_ns;
	return 0;
}

static int add_dir(struct snapshot *snap, int root_fd, const char *path, const struct snapshot_stop *stop)
{
	int fd = beneath_open(root_fd, *path ? path : ".", O_RDONLY | O_DIRECTORY, 0, BENEATH_NO_SYMLINKS);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;
	int rc = fd;

	if (!dir && fd >= 0) {
		rc = -errno;
		close(fd);
	}
	if (!dir) /* gone or swapped meanwhile */
		return rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP ? 0 : cannot_look(snap, path, rc);
	rc = 0;
	while (!rc && (entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && !localfs_temp_is(entry->d_name))
			rc = add(snap, dirfd(dir), path, entry->d_name);
		if (!rc && snap->count % LOCALFS_ASK_EVERY == 0)
			rc = stop->ask(stop->arg);
	}
	closedir(dir);
	return rc;
}

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct snapshot_entry *)a)->path, ((const struct snapshot_entry *)b)->path);
}

/* The entries are the queue: those behind `next` have not been looked into. */
static int walk(struct snapshot *snap, int root_fd, const struct snapshot_stop *stop)
{
	int rc = add_dir(snap, root_fd, "", stop);

	for (size_t next = 0; !rc && next < snap->count; next++) {
		/* The array moves as it grows, the path does not. */
		const char *path = snap->entries[next].path;
		size_t closed = snap->closed;

		if (snap->entries[next].kind == BERTH_FILE_DIRECTORY)
			rc = add_dir(snap, root_fd, path, stop);
		snap->entries[next].closed = snap->closed > closed;
	}
	if (!rc && snap->count)
		qsort(snap->entries, snap->count, sizeof(snap->entries[0]), compare);
	return rc;
}

static int64_t coarse_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* A quiet tree is looked at again once its last change lies far enough back; a busy one keeps its unknown entries. A stamp
 * may be a tick ahead of the coarse clock, where the file system stamps finer; one further ahead will not come closer. */
int snapshot_take(int root_fd, const struct snapshot_stop *stop, struct snapshot *ret)
{
	struct snapshot snap = {0};
	int64_t begin_ns = coarse_ns();
	int rc = walk(&snap, root_fd, stop);

	if (!rc && snap.newest_ns > begin_ns - RACY_NS && snap.newest_ns <= begin_ns + RACY_NS) {
		struct timespec tick = {.tv_nsec = 3 * RACY_NS};

		snapshot_fini(&snap);
		nanosleep(&tick, NULL);
		begin_ns = coarse_ns();
		rc = walk(&snap, root_fd, stop);
	}
	for (size_t i = 0; !rc && i < snap.count; i++)
		if (snap.entries[i].ctime_ns > begin_ns - RACY_NS)
			snap.entries[i].inode = 0;
	if (rc)
		snapshot_fini(&snap);
	else
		*ret = snap;
	return rc;
}

bool snapshot_hides(const struct snapshot *snap, const char *path)
{
	char above[BERTH_PATH_MAX + 1];
	struct snapshot_entry key = {.path = above}, *entry;

	snprintf(above, sizeof(above), "%s", path);
	for (char *slash; snap->closed && (slash = strrchr(above, '/'));) {
		*slash = '\0';
		entry = bsearch(&key, snap->entries, snap->count, sizeof(key), compare);
		if (entry)
			return entry->closed;
	}
	return false;
}

void snapshot_fini(struct snapshot *snap)
{
	for (size_t i = 0; i < snap->count; i++)
		free(snap->entries[i].path);
	free(snap->entries);
	*snap = (struct snapshot){0};
}

struct disk_entry {
	uint64_t inode;
	int64_t ctime_ns;
	uint64_t size;
	uint32_t mode;
	uint32_t kind;
	uint32_t path_len;
	uint32_t reserved;
};

static int write_entries(FILE *file, const struct snapshot *snap)
{
	for (size_t i = 0; i < snap->count; i++) {
		const struct snapshot_entry *e = &snap->entries[i];
		struct disk_entry disk = {e->inode, e->ctime_ns, e->size, e->mode, e->kind, (uint32_t)strlen(e->path),
					  0};

		if (fwrite(&disk, sizeof(disk), 1, file) != 1 ||
		    fwrite(e->path, 1, disk.path_len, file) != disk.path_len)
			return -EIO;
	}
	return 0;
}

static FILE *open_stream(int dir_fd, const char *name, int flags, const char *mode)
{
	int fd = openat(dir_fd, name, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
	FILE *file = fd >= 0 ? fdopen(fd, mode) : NULL;

	if (fd >= 0 && !file)
		close(fd);
	return file;
}

int snapshot_save(int dir_fd, const char *name, const struct snapshot *snap)
{
	char temporary[80];
	FILE *file;
	int rc;

	snprintf(temporary, sizeof(temporary), ".%s", name);
	file = open_stream(dir_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC, "w");
	if (!file)
		return -errno;
	rc = write_entries(file, snap);
	if (fclose(file) && !rc)
		rc = -errno;
	if (!rc && renameat(dir_fd, temporary, dir_fd, name))
		rc = -errno;
	if (rc)
		unlinkat(dir_fd, temporary, 0);
	return rc;
}

static int read_entry(FILE *file, const struct disk_entry *disk, struct snapshot *snap)
{
	struct snapshot_entry *entry;
	char *path;

	if (disk->path_len > BERTH_PATH_MAX || snap->count >= SNAPSHOT_ENTRIES_MAX)
		return -EBADMSG;
	path = malloc(disk->path_len + 1);
	if (!path)
		return -ENOMEM;
	path[disk->path_len] = '\0';
	if (fread(path, 1, disk->path_len, file) != disk->path_len) {
		free(path);
		return -EBADMSG;
	}
	entry = push(snap);
	if (!entry) {
		free(path);
		return -ENOMEM;
	}
	*entry = (struct snapshot_entry){path, disk->inode, disk->ctime_ns, disk->size, disk->mode, disk->kind, false};
	return 0;
}

int snapshot_load(int dir_fd, const char *name, struct snapshot *ret)
{
	struct snapshot snap = {0};
	struct disk_entry disk;
	FILE *file = open_stream(dir_fd, name, O_RDONLY, "r");
	int rc = 0;

	if (!file)
		return -errno;
	while (!rc && fread(&disk, sizeof(disk), 1, file) == 1)
		rc = read_entry(file, &disk, &snap);
	if (!rc && ferror(file))
		rc = -EIO;
	fclose(file);
	if (rc)
		snapshot_fini(&snap);
	else
		*ret = snap;
	return rc;
}
