/* SPDX-License-Identifier: Apache-2.0 */
/* A root directory for file operations, with a directory beside it that must stay untouched. */
#ifndef LOCALFS_FIXTURE_H
#define LOCALFS_FIXTURE_H

#include "fake_host.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <berth/localfs.h>
#include <berth/provider.h>

struct fs_fixture {
	char base[64];
	char root[96];
	int outside; /* descriptor of <base>/outside, which holds "secret" */
	int root_fd;
	struct berth_localfs fs;
	struct berth_call call;
	mode_t umask;
};

static inline void put_file(int dir, const char *name, const void *data, size_t len)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), len);
	close(fd);
}

static inline int fs_setup(void **state)
{
	struct fs_fixture *fx = calloc(1, sizeof(*fx));

	assert_non_null(fx);
	fx->umask = umask(027);
	snprintf(fx->base, sizeof(fx->base), "/tmp/berth-fs-XXXXXX");
	assert_non_null(mkdtemp(fx->base));
	snprintf(fx->root, sizeof(fx->root), "%s/root", fx->base);
	assert_int_equal(mkdir(fx->root, 0755), 0);
	fx->root_fd = open(fx->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	snprintf(fx->root, sizeof(fx->root), "%s/outside", fx->base);
	assert_int_equal(mkdir(fx->root, 0755), 0);
	fx->outside = open(fx->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(fx->root, sizeof(fx->root), "%s/root", fx->base);
	assert_true(fx->root_fd >= 0 && fx->outside >= 0);
	put_file(fx->outside, "secret", "secret", 6);
	fx->fs = (struct berth_localfs){.struct_size = sizeof(fx->fs), .root_fd = fx->root_fd, .uid = -1, .gid = -1};
	fake_call_init(&fx->call);
	*state = fx;
	return 0;
}

static inline int fs_teardown(void **state)
{
	struct fs_fixture *fx = *state;
	char rm[] = "/bin/rm", options[] = "-rf";
	char *argv[] = {rm, options, fx->base, NULL}, *no_env[] = {NULL};
	pid_t pid;

	umask(fx->umask);
	fake_call_fini(&fx->call);
	close(fx->root_fd);
	close(fx->outside);
	assert_int_equal(posix_spawn(&pid, rm, NULL, NULL, argv, no_env), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	free(fx);
	return 0;
}

/* A fresh call for the next operation. */
static inline struct berth_call *next_call(struct fs_fixture *fx)
{
	fake_call_fini(&fx->call);
	fake_call_init(&fx->call);
	return &fx->call;
}

static inline int32_t fs_write(struct fs_fixture *fx, const char *path, const void *data, size_t len, uint32_t mode)
{
	struct berth_file_write write = {
		.struct_size = sizeof(write), .mode = mode, .path = fake_str(path), .size = len};
	struct berth_call *call = next_call(fx);

	call->source = data;
	call->source_len = len;
	return berth_localfs_write(&fake_host, call, &fx->fs, &write);
}

static inline int32_t fs_read(struct fs_fixture *fx, const char *path, uint64_t offset, uint64_t length)
{
	struct berth_str str = fake_str(path);

	return berth_localfs_read(&fake_host, next_call(fx), &fx->fs, &str, offset, length);
}

static inline int32_t fs_stat(struct fs_fixture *fx, const char *path)
{
	struct berth_str str = fake_str(path);

	return berth_localfs_stat(&fake_host, next_call(fx), &fx->fs, &str);
}

static inline int32_t fs_list(struct fs_fixture *fx, const char *path, uint32_t flags)
{
	struct berth_str str = fake_str(path);

	return berth_localfs_list(&fake_host, next_call(fx), &fx->fs, &str, flags);
}

static inline int32_t fs_remove(struct fs_fixture *fx, const char *path, uint32_t flags)
{
	struct berth_str str = fake_str(path);

	return berth_localfs_remove(&fake_host, next_call(fx), &fx->fs, &str, flags);
}

static inline int32_t fs_move(struct fs_fixture *fx, const char *from, const char *to)
{
	struct berth_str a = fake_str(from), b = fake_str(to);

	return berth_localfs_move(&fake_host, next_call(fx), &fx->fs, &a, &b);
}

static inline int32_t fs_import(struct fs_fixture *fx, const char *path, const void *data, size_t len)
{
	struct berth_str str = fake_str(path);
	struct berth_call *call = next_call(fx);

	call->source = data;
	call->source_len = len;
	return berth_localfs_import(&fake_host, call, &fx->fs, &str);
}

static inline int32_t fs_export(struct fs_fixture *fx, const char *path)
{
	struct berth_str str = fake_str(path);

	return berth_localfs_export(&fake_host, next_call(fx), &fx->fs, &str, 1);
}

static inline const struct fake_file *listed(const struct fs_fixture *fx, const char *path)
{
	for (size_t i = 0; i < fx->call.file_count; i++)
		if (strcmp(fx->call.files[i].path, path) == 0)
			return &fx->call.files[i];
	return NULL;
}

static inline void assert_data(const struct fs_fixture *fx, const void *data, size_t len)
{
	assert_int_equal(fx->call.stream[BERTH_STREAM_DATA].len, len);
	if (len)
		assert_memory_equal(fx->call.stream[BERTH_STREAM_DATA].ptr, data, len);
}

/* Entries of the root that are there but not listed: temporary names left behind. */
static inline int leftovers(const struct fs_fixture *fx)
{
	DIR *dir = opendir(fx->root);
	struct dirent *entry;
	int count = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir)))
		count += strncmp(entry->d_name, ".berth-", 7) == 0;
	closedir(dir);
	return count;
}

#endif
