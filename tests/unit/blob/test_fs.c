/* SPDX-License-Identifier: Apache-2.0 */
/* The directory store: objects come back as they went in, nothing half-written is seen, no folder is left behind. */
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "blob/blob.h"
#include "core/limits.h"

#define ID "0123456789abcdef0123456789abcdef"
#define PATH 512

struct fixture {
	char dir[256], root[PATH];
	struct blob_store *blobs;
};

static void path_in(const struct fixture *fixture, const char *name, char ret_path[PATH])
{
	assert_true(snprintf(ret_path, PATH, "%s/%s", fixture->dir, name) < PATH);
}

static void reopen(struct fixture *fixture)
{
	struct err err = {0};

	blob_close(fixture->blobs);
	fixture->blobs = NULL;
	if (blob_open_dir(fixture->root, ID, &fixture->blobs, &err) != 0)
		fail_msg("%s", err.msg);
}

static int setup(void **state)
{
	const char *base = getenv("TMPDIR");
	struct fixture *fixture = calloc(1, sizeof(*fixture));

	assert_non_null(fixture);
	snprintf(fixture->dir, sizeof(fixture->dir), "%s/berth-test-XXXXXX", base != NULL ? base : "/tmp");
	assert_non_null(mkdtemp(fixture->dir));
	path_in(fixture, "blobs", fixture->root);
	reopen(fixture);
	*state = fixture;
	return 0;
}

/* Walks a folder; counts what is in it, removes it when asked. */
static size_t walk(const char *path, bool remove_all)
{
	char *copy = strdup(path);
	char *roots[] = {copy, NULL};
	FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	size_t count = 0;
	FTSENT *entry;

	assert_non_null(fts);
	while ((entry = fts_read(fts)) != NULL) {
		if (entry->fts_info == FTS_D)
			continue;
		count += entry->fts_level > 0;
		if (remove_all)
			remove(entry->fts_accpath);
	}
	fts_close(fts);
	free(copy);
	return count;
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;

	blob_close(fixture->blobs);
	walk(fixture->dir, true);
	free(fixture);
	return 0;
}

static size_t count_in(const struct fixture *fixture, const char *name)
{
	char path[PATH];

	path_in(fixture, name, path);
	return walk(path, false);
}

static size_t count_staged(const struct fixture *fixture)
{
	return walk(blob_staging_dir(fixture->blobs), false);
}

struct sink {
	char *ptr;
	size_t len, largest, calls;
	int stop_with;
};

static int sink_piece(void *arg, const void *ptr, size_t len)
{
	struct sink *sink = arg;

	sink->ptr = realloc(sink->ptr, sink->len + len);
	memcpy(sink->ptr + sink->len, ptr, len);
	sink->len += len;
	sink->largest = len > sink->largest ? len : sink->largest;
	sink->calls++;
	return sink->stop_with;
}

static void put(struct fixture *fixture, const char *key, const char *text)
{
	struct err err = {0};

	if (blob_put_bytes(fixture->blobs, key, text, strlen(text), &err) != 0)
		fail_msg("%s", err.msg);
}

static void assert_reads(struct fixture *fixture, const char *key, uint64_t offset, uint64_t length, const char *text)
{
	struct sink sink = {0};
	struct err err = {0};

	if (blob_read(fixture->blobs, key, offset, length, sink_piece, &sink, &err) != 0)
		fail_msg("%s", err.msg);
	assert_int_equal(sink.len, strlen(text));
	if (sink.len > 0)
		assert_memory_equal(sink.ptr, text, sink.len);
	free(sink.ptr);
}

static void assert_absent(struct fixture *fixture, const char *key)
{
	struct sink sink = {0};
	struct err err = {0};
	uint64_t size;

	assert_int_equal(blob_size(fixture->blobs, key, &size, &err), ERR_NOT_FOUND);
	assert_int_equal(blob_read(fixture->blobs, key, 0, UINT64_MAX, sink_piece, &sink, &err), ERR_NOT_FOUND);
	assert_int_equal(sink.calls, 0);
}

static void test_bytes(void **state)
{
	struct fixture *fixture = *state;
	uint64_t size = 1;

	put(fixture, "executions/e1/stdout", "hello");
	put(fixture, "executions/e1/stderr", "");
	put(fixture, "top", "t");
	assert_reads(fixture, "executions/e1/stdout", 0, UINT64_MAX, "hello");
	assert_reads(fixture, "executions/e1/stdout", 1, 3, "ell");
	assert_reads(fixture, "executions/e1/stdout", 3, 100, "lo");
	assert_reads(fixture, "executions/e1/stdout", 5, UINT64_MAX, "");
	assert_reads(fixture, "executions/e1/stderr", 0, UINT64_MAX, "");
	assert_int_equal(blob_size(fixture->blobs, "executions/e1/stdout", &size, NULL), 0);
	assert_int_equal(size, 5);
	assert_int_equal(blob_size(fixture->blobs, "executions/e1/stderr", &size, NULL), 0);
	assert_int_equal(size, 0);
	put(fixture, "top", "again");
	assert_reads(fixture, "top", 0, UINT64_MAX, "again");
	reopen(fixture);
	assert_reads(fixture, "executions/e1/stdout", 0, UINT64_MAX, "hello");
	assert_int_equal(count_staged(fixture), 0);
}

static void test_absent(void **state)
{
	struct fixture *fixture = *state;

	put(fixture, "a/b", "x");
	assert_absent(fixture, "none");
	assert_absent(fixture, "none/at/all");
	assert_absent(fixture, "a");
	assert_absent(fixture, "a/b/c");
	assert_int_equal(blob_delete(fixture->blobs, "none", NULL), 0);
	assert_int_equal(blob_delete(fixture->blobs, "none/at/all", NULL), 0);
	assert_int_equal(blob_delete(fixture->blobs, "a", NULL), 0);
	assert_int_equal(blob_delete(fixture->blobs, "a/b/c", NULL), 0);
	assert_reads(fixture, "a/b", 0, UINT64_MAX, "x");
}

static void test_range_past_the_end(void **state)
{
	struct fixture *fixture = *state;
	struct sink sink = {0};
	struct err err = {0};

	put(fixture, "a", "12345");
	assert_int_equal(blob_read(fixture->blobs, "a", 6, 1, sink_piece, &sink, &err), ERR_RANGE);
	assert_int_equal(blob_read(fixture->blobs, "a", UINT64_MAX, UINT64_MAX, sink_piece, &sink, &err), ERR_RANGE);
	assert_int_equal(sink.calls, 0);
}

static void test_bad_keys(void **state)
{
	static const char *const keys[] = {"", ".", "..", "../x", "a/../b", "/a", "a//b", "a/", "a\\b", "a\nb", "\xff"};
	struct fixture *fixture = *state;
	struct err err = {0};
	uint64_t size;
	size_t i;

	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		assert_int_equal(blob_put_bytes(fixture->blobs, keys[i], "x", 1, &err), ERR_INVALID_REQUEST);
		assert_int_equal(blob_size(fixture->blobs, keys[i], &size, &err), ERR_INVALID_REQUEST);
		assert_int_equal(blob_delete(fixture->blobs, keys[i], &err), ERR_INVALID_REQUEST);
		assert_int_equal(blob_delete_prefix(fixture->blobs, keys[i], &err), ERR_INVALID_REQUEST);
	}
	/* Names of the store's own files are ordinary keys. */
	put(fixture, "store-id", "x");
	put(fixture, ".staging/x", "y");
	reopen(fixture);
	assert_reads(fixture, "store-id", 0, UINT64_MAX, "x");
	assert_reads(fixture, ".staging/x", 0, UINT64_MAX, "y");
}

static void test_object_and_folder(void **state)
{
	struct fixture *fixture = *state;
	struct err err = {0};

	put(fixture, "a/b", "x");
	assert_int_equal(blob_put_bytes(fixture->blobs, "a", "y", 1, &err), ERR_CONFLICT);
	assert_int_equal(blob_put_bytes(fixture->blobs, "a/b/c", "y", 1, &err), ERR_CONFLICT);
	assert_int_equal(count_staged(fixture), 0);
	assert_reads(fixture, "a/b", 0, UINT64_MAX, "x");
}

/* ---- files ---- */

static void make_file(const char *path, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	size_t i;

	assert_true(fd >= 0);
	for (i = 0; i < size; i += sizeof(uint32_t)) {
		uint32_t word = (uint32_t)i;

		assert_int_equal(write(fd, &word, sizeof(word)), sizeof(word));
	}
	close(fd);
}

static void assert_is_file(struct fixture *fixture, const char *key, size_t size)
{
	struct sink sink = {0};
	size_t i;

	assert_int_equal(blob_read(fixture->blobs, key, 0, UINT64_MAX, sink_piece, &sink, NULL), 0);
	assert_int_equal(sink.len, size);
	assert_true(sink.largest <= LIMIT_STREAM_WINDOW);
	for (i = 0; i < size; i += sizeof(uint32_t)) {
		uint32_t word;

		memcpy(&word, sink.ptr + i, sizeof(word));
		assert_int_equal(word, (uint32_t)i);
	}
	free(sink.ptr);
}

static void test_file_is_taken_over(void **state)
{
	struct fixture *fixture = *state;
	struct blob_info info = {.size = 300000};
	char path[PATH], stored[PATH];
	struct stat before, after;

	snprintf(path, sizeof(path), "%s/spool", blob_staging_dir(fixture->blobs));
	make_file(path, info.size);
	assert_int_equal(stat(path, &before), 0);
	assert_int_equal(blob_put_file(fixture->blobs, "executions/e1/stdout", path, &info, NULL), 0);
	assert_int_equal(access(path, F_OK), -1);
	path_in(fixture, "blobs/objects/executions/e1/stdout", stored);
	assert_int_equal(stat(stored, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_is_file(fixture, "executions/e1/stdout", info.size);
}

/* Needs a second file system; /dev/shm is one where the folder for tests is not in memory too. */
static void test_file_from_elsewhere(void **state)
{
	struct fixture *fixture = *state;
	struct blob_info info = {.size = 300000};
	char path[] = "/dev/shm/berth-test-XXXXXX";
	struct stat here, there;
	int fd = mkstemp(path);

	if (fd < 0)
		skip();
	close(fd);
	assert_int_equal(stat(path, &there), 0);
	assert_int_equal(stat(fixture->root, &here), 0);
	if (here.st_dev == there.st_dev) {
		unlink(path);
		skip();
	}
	make_file(path, info.size);
	assert_int_equal(blob_put_file(fixture->blobs, "a/b", path, &info, NULL), 0);
	assert_int_equal(access(path, F_OK), -1);
	assert_is_file(fixture, "a/b", info.size);
	assert_int_equal(count_staged(fixture), 0);
}

static void test_file_refused(void **state)
{
	struct fixture *fixture = *state;
	struct blob_info info = {.size = 9};
	char path[PATH], link[PATH];
	struct err err = {0};

	path_in(fixture, "file", path);
	path_in(fixture, "link", link);
	make_file(path, 8);
	assert_int_equal(blob_put_file(fixture->blobs, "a", path, &info, &err), ERR_CORRUPT);
	assert_int_equal(access(path, F_OK), 0);
	assert_absent(fixture, "a");
	info.size = 8;
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(blob_put_file(fixture->blobs, "a", link, &info, &err), ERR_IO);
	assert_int_equal(blob_put_file(fixture->blobs, "a", fixture->dir, &info, &err), ERR_IO);
	assert_int_equal(blob_put_file(fixture->blobs, "a", "/nonexistent/file", &info, &err), ERR_IO);
	put(fixture, "b/c", "x");
	assert_int_equal(blob_put_file(fixture->blobs, "b", path, &info, &err), ERR_CONFLICT);
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(blob_put_file(fixture->blobs, "a", path, &info, &err), 0);
}

static void test_reader_stops(void **state)
{
	struct fixture *fixture = *state;
	struct blob_info info = {.size = 300000};
	struct sink sink = {.stop_with = ERR_CANCELLED};
	struct err err = {0};
	char path[PATH];

	path_in(fixture, "file", path);
	make_file(path, info.size);
	assert_int_equal(blob_put_file(fixture->blobs, "a", path, &info, &err), 0);
	assert_int_equal(blob_read(fixture->blobs, "a", 0, UINT64_MAX, sink_piece, &sink, &err), ERR_CANCELLED);
	assert_int_equal(err.code, ERR_CANCELLED);
	assert_int_equal(sink.calls, 1);
	free(sink.ptr);
}

/* ---- deleting ---- */

static void test_delete_prunes(void **state)
{
	struct fixture *fixture = *state;

	put(fixture, "executions/e1/stdout", "x");
	put(fixture, "executions/e1/stderr", "x");
	put(fixture, "executions/e2/1/stdout/0", "x");
	assert_int_equal(blob_delete(fixture->blobs, "executions/e1/stdout", NULL), 0);
	assert_absent(fixture, "executions/e1/stdout");
	assert_reads(fixture, "executions/e1/stderr", 0, UINT64_MAX, "x");
	assert_int_equal(blob_delete(fixture->blobs, "executions/e1/stderr", NULL), 0);
	assert_int_equal(count_in(fixture, "blobs/objects/executions"), 4);
	assert_int_equal(blob_delete(fixture->blobs, "executions/e2/1/stdout/0", NULL), 0);
	assert_int_equal(count_in(fixture, "blobs/objects"), 0);
	put(fixture, "executions/e1/stdout", "y");
	assert_reads(fixture, "executions/e1/stdout", 0, UINT64_MAX, "y");
}

static void test_delete_prefix(void **state)
{
	struct fixture *fixture = *state;
	char link[PATH], target[PATH];

	put(fixture, "executions/e1/stdout", "x");
	put(fixture, "executions/e1/1/stdout/0", "x");
	put(fixture, "executions/e10/stdout", "x");
	put(fixture, "other", "x");
	path_in(fixture, "precious", target);
	make_file(target, 8);
	path_in(fixture, "blobs/objects/executions/e1/link", link);
	assert_int_equal(symlink(target, link), 0);
	assert_int_equal(blob_delete_prefix(fixture->blobs, "executions/e1", NULL), 0);
	assert_absent(fixture, "executions/e1/stdout");
	assert_absent(fixture, "executions/e1/1/stdout/0");
	assert_reads(fixture, "executions/e10/stdout", 0, UINT64_MAX, "x");
	assert_int_equal(access(target, F_OK), 0);
	assert_int_equal(blob_delete_prefix(fixture->blobs, "none", NULL), 0);
	assert_int_equal(blob_delete_prefix(fixture->blobs, "other", NULL), 0);
	assert_reads(fixture, "other", 0, UINT64_MAX, "x");
	assert_int_equal(blob_delete_prefix(fixture->blobs, "executions", NULL), 0);
	assert_int_equal(count_in(fixture, "blobs/objects"), 1);
}

/* ---- opening ---- */

static void assert_open_refused(const char *root, const char *id, const char *sentence)
{
	struct blob_store *blobs = NULL;
	struct err err = {0};

	assert_int_equal(blob_open_dir(root, id, &blobs, &err), ERR_CONFIG);
	assert_null(blobs);
	if (strstr(err.msg, sentence) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", err.msg, sentence);
}

static void test_open(void **state)
{
	struct fixture *fixture = *state;
	struct blob_store *blobs = NULL;
	char path[PATH];
	struct stat st;

	assert_int_equal(stat(fixture->root, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_open_refused(fixture->root, "ffffffffffffffffffffffffffffffff",
			    "belongs to the state database 0123456789abcdef0123456789abcdef, not to ffff");
	assert_int_equal(blob_open_dir(fixture->root, "", &blobs, NULL), 0);
	blob_close(blobs);
	path_in(fixture, "none/blobs", path);
	assert_open_refused(path, ID, "cannot be made");
	path_in(fixture, "file", path);
	make_file(path, 8);
	assert_open_refused(path, ID, "");
	path_in(fixture, "foreign", path);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(blob_open_dir(path, ID, &blobs, NULL), 0); /* empty: it may be used */
	blob_close(blobs);
}

static void test_open_foreign(void **state)
{
	struct fixture *fixture = *state;
	char path[PATH], file[PATH];

	path_in(fixture, "foreign", path);
	path_in(fixture, "foreign/thesis.txt", file);
	assert_int_equal(mkdir(path, 0700), 0);
	make_file(file, 8);
	assert_open_refused(path, ID, "is not empty and no object store of Berth");
	assert_int_equal(count_in(fixture, "foreign"), 1);
	path_in(fixture, "blobs/store-id", file);
	make_file(file, 0);
	assert_open_refused(fixture->root, ID, "has an empty id");
}

static void test_staging_is_cleaned(void **state)
{
	struct fixture *fixture = *state;
	char path[PATH];

	snprintf(path, sizeof(path), "%s/left", blob_staging_dir(fixture->blobs));
	make_file(path, 8);
	snprintf(path, sizeof(path), "%s/folder", blob_staging_dir(fixture->blobs));
	assert_int_equal(mkdir(path, 0700), 0);
	path_in(fixture, "blobs/.staging/older", path);
	make_file(path, 8);
	reopen(fixture);
	assert_int_equal(count_staged(fixture), 0);
	assert_int_equal(count_in(fixture, "blobs/.staging"), 2); /* the own folder and its lock */
	blob_close(fixture->blobs);
	assert_int_equal(count_in(fixture, "blobs/.staging"), 0);
	fixture->blobs = NULL;
	assert_int_equal(blob_open_dir(fixture->root, ID, &fixture->blobs, NULL), 0);
}

/* Hosts that share the folder start while others write. */
static void test_what_another_host_writes_is_left(void **state)
{
	struct fixture *fixture = *state;
	struct blob_store *other;
	struct blob_info info;
	char path[PATH];

	snprintf(path, sizeof(path), "%s/spool", blob_staging_dir(fixture->blobs));
	make_file(path, 8);
	assert_int_equal(blob_open_dir(fixture->root, ID, &other, NULL), 0);
	assert_string_not_equal(blob_staging_dir(other), blob_staging_dir(fixture->blobs));
	assert_int_equal(count_staged(fixture), 1);
	blob_close(other);
	assert_int_equal(blob_put_file(fixture->blobs, "executions/a/stdout", path, &(struct blob_info){.size = 8}, NULL), 0);
	assert_int_equal(blob_size(fixture->blobs, "executions/a/stdout", &info.size, NULL), 0);
	assert_int_equal(info.size, 8);
}

/* ---- threads ---- */

#define THREADS 8
#define ROUNDS 200

struct worker {
	pthread_t thread;
	struct blob_store *blobs;
	int number, failures;
	struct err err;
};

/* All in the same folders, which are pruned all the time. */
static void *worker_main(void *arg)
{
	struct worker *worker = arg;
	struct sink sink;
	char key[64];
	int i;

	snprintf(key, sizeof(key), "a/b/c/%d", worker->number);
	for (i = 0; i < ROUNDS; i++) {
		sink = (struct sink){0};
		worker->failures += blob_put_bytes(worker->blobs, key, key, strlen(key), &worker->err) != 0;
		worker->failures += blob_read(worker->blobs, key, 0, UINT64_MAX, sink_piece, &sink, &worker->err) != 0;
		worker->failures += sink.len != strlen(key);
		worker->failures += blob_delete(worker->blobs, key, &worker->err) != 0;
		free(sink.ptr);
	}
	return NULL;
}

static void put_and_read(struct fixture *fixture, const char *key)
{
	struct err err = {0};
	uint64_t size = 0;

	assert_int_equal(blob_put_bytes(fixture->blobs, key, "bytes", 5, &err), 0);
	assert_int_equal(blob_size(fixture->blobs, key, &size, &err), 0);
	assert_int_equal(size, 5);
}

static void test_a_folder_that_is_taken_away(void **state)
{
	struct fixture *fixture = *state;
	struct err err = {0};
	char away[PATH];
	uint64_t size;

	path_in(fixture, "away", away);
	put_and_read(fixture, "executions/a/stdout");
	assert_int_equal(blob_check(fixture->blobs, &err), 0);
	assert_int_equal(rename(fixture->root, away), 0);
	assert_int_equal(blob_check(fixture->blobs, &err), ERR_STORE);
	assert_string_equal(err.reason, "objects_missing");
	assert_non_null(strstr(err.msg, fixture->root));
	assert_int_equal(access(fixture->root, F_OK), -1); /* it is not made anew behind the operator's back */
	/* What is away is not deleted: it would come back without a record that leads to it. */
	assert_int_equal(blob_delete_prefix(fixture->blobs, "executions/a", &err), ERR_STORE);
	assert_int_equal(blob_delete_prefix(fixture->blobs, "executions/none", &err), ERR_STORE);
	assert_int_equal(blob_delete(fixture->blobs, "executions/none/stdout", &err), ERR_STORE);
	assert_int_equal(rename(away, fixture->root), 0);
	assert_int_equal(blob_check(fixture->blobs, &err), 0);
	assert_int_equal(blob_size(fixture->blobs, "executions/a/stdout", &size, &err), 0);
	assert_int_equal(blob_delete_prefix(fixture->blobs, "executions/a", &err), 0);
	assert_int_equal(blob_size(fixture->blobs, "executions/a/stdout", &size, &err), ERR_NOT_FOUND);
	put_and_read(fixture, "executions/b/stdout");
}

static void test_a_folder_that_is_removed(void **state)
{
	struct fixture *fixture = *state;
	struct err err = {0};
	uint64_t size;

	put_and_read(fixture, "executions/a/stdout");
	walk(fixture->root, true);
	assert_int_equal(blob_check(fixture->blobs, &err), ERR_STORE);
	assert_int_equal(blob_put_bytes(fixture->blobs, "executions/b/stdout", "b", 1, &err), ERR_STORE);
	assert_int_equal(blob_size(fixture->blobs, "executions/a/stdout", &size, &err), ERR_STORE);
	assert_int_equal(mkdir(fixture->root, 0700), 0);
	/* It may be where a file system belongs that is not mounted. */
	assert_int_equal(blob_check(fixture->blobs, &err), ERR_STORE);
	assert_int_equal(blob_put_bytes(fixture->blobs, "executions/b/stdout", "b", 1, &err), ERR_STORE);
	reopen(fixture);
	put_and_read(fixture, "executions/b/stdout");
}

static void test_a_folder_that_is_copied_back(void **state)
{
	struct fixture *fixture = *state;
	struct err err = {0};
	char copy[PATH], id[PATH], objects[PATH];
	struct blob_store *other;
	uint64_t size;

	path_in(fixture, "copy", copy);
	path_in(fixture, "blobs/store-id", id);
	path_in(fixture, "blobs/objects", objects);
	put_and_read(fixture, "executions/a/stdout");
	walk(fixture->root, true);
	assert_int_equal(blob_open_dir(copy, ID, &other, &err), 0);
	blob_close(other);
	assert_int_equal(rename(copy, fixture->root), 0);
	put_and_read(fixture, "executions/b/stdout"); /* without a check before */
	assert_int_equal(blob_check(fixture->blobs, &err), 0);
	assert_int_equal(blob_size(fixture->blobs, "executions/a/stdout", &size, &err), ERR_NOT_FOUND);
	assert_int_equal(access(id, F_OK), 0);
	assert_int_equal(access(objects, F_OK), 0);
	put_and_read(fixture, "executions/c/stdout");
}

/* Its lock stays, and is this process's own: it must not wait for it. */
static void test_a_staging_folder_that_is_removed(void **state)
{
	struct fixture *fixture = *state;
	struct err err = {0};
	char staging[PATH];

	put_and_read(fixture, "executions/a/stdout");
	assert_true(snprintf(staging, sizeof(staging), "%s", blob_staging_dir(fixture->blobs)) < PATH);
	walk(staging, true);
	assert_int_equal(access(staging, F_OK), -1);
	alarm(20); /* what waits for itself has to be ended */
	assert_int_equal(blob_check(fixture->blobs, &err), 0);
	put_and_read(fixture, "executions/b/stdout");
	alarm(0);
	assert_int_equal(access(staging, F_OK), 0);
}

static void test_a_folder_of_another_store_in_its_place(void **state)
{
	struct fixture *fixture = *state;
	struct err err = {0};
	struct blob_store *other;

	walk(fixture->root, true);
	assert_int_equal(blob_open_dir(fixture->root, "another", &other, &err), 0);
	blob_close(other);
	assert_int_equal(blob_check(fixture->blobs, &err), ERR_STORE);
	assert_int_equal(blob_put_bytes(fixture->blobs, "a", "b", 1, &err), ERR_STORE);
}

/* The state store was lost under two hosts: the first one marks the folder for the new one, the second one learns it. */
static void test_adopted(void **state)
{
	struct fixture *fixture = *state;
	struct blob_store *other;
	struct err err = {0};

	assert_int_equal(blob_open_dir(fixture->root, ID, &other, &err), 0);
	assert_int_equal(blob_adopt(fixture->blobs, "the-new-one", &err), 0);
	assert_int_equal(blob_adopt(fixture->blobs, "the-new-one", &err), 0);
	assert_int_equal(blob_check(fixture->blobs, &err), 0);
	assert_int_equal(blob_adopt(other, "a-third-one", &err), ERR_CONFIG); /* it is not its own any more */
	assert_int_equal(blob_adopt(other, "the-new-one", &err), 0);
	blob_close(other);
	assert_int_equal(blob_open_dir(fixture->root, ID, &other, &err), ERR_CONFIG);
	assert_int_equal(blob_open_dir(fixture->root, "the-new-one", &other, &err), 0);
	blob_close(other);
}

struct opener {
	pthread_t thread;
	const char *root;
	pthread_barrier_t *begin;
	struct blob_store *blobs;
	struct err err;
	int rc;
};

static void *opener_main(void *arg)
{
	struct opener *o = arg;

	pthread_barrier_wait(o->begin);
	o->rc = blob_open_dir(o->root, ID, &o->blobs, &o->err);
	return NULL;
}

/* The hosts of a fleet that are started for the first time. */
static void test_several_take_a_new_folder(void **state)
{
	struct fixture *fixture = *state;
	pthread_barrier_t begin;
	char root[PATH], name[24];

	pthread_barrier_init(&begin, NULL, THREADS);
	for (int round = 0; round < 50; round++) {
		struct opener openers[THREADS] = {0};

		snprintf(name, sizeof(name), "shared%d", round);
		path_in(fixture, name, root);
		for (int i = 0; i < THREADS; i++) {
			openers[i].root = root;
			openers[i].begin = &begin;
			assert_int_equal(pthread_create(&openers[i].thread, NULL, opener_main, &openers[i]), 0);
		}
		for (int i = 0; i < THREADS; i++)
			pthread_join(openers[i].thread, NULL);
		for (int i = 0; i < THREADS; i++) {
			if (openers[i].rc != 0)
				fail_msg("round %d: %s", round, openers[i].err.msg);
			blob_close(openers[i].blobs);
		}
	}
	pthread_barrier_destroy(&begin);
}

static void test_threads(void **state)
{
	struct fixture *fixture = *state;
	struct worker workers[THREADS];
	int i;

	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.blobs = fixture->blobs, .number = i};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	for (i = 0; i < THREADS; i++)
		if (workers[i].failures != 0)
			fail_msg("%d failures, last: %s", workers[i].failures, workers[i].err.msg);
	assert_int_equal(count_in(fixture, "blobs/objects"), 0);
	assert_int_equal(count_staged(fixture), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_bytes),
		TEST(test_absent),
		TEST(test_range_past_the_end),
		TEST(test_bad_keys),
		TEST(test_object_and_folder),
		TEST(test_file_is_taken_over),
		TEST(test_file_from_elsewhere),
		TEST(test_file_refused),
		TEST(test_reader_stops),
		TEST(test_delete_prunes),
		TEST(test_delete_prefix),
		TEST(test_open),
		TEST(test_open_foreign),
		TEST(test_staging_is_cleaned),
		TEST(test_what_another_host_writes_is_left),
		TEST(test_a_folder_that_is_taken_away),
		TEST(test_a_folder_that_is_removed),
		TEST(test_a_folder_that_is_copied_back),
		TEST(test_a_staging_folder_that_is_removed),
		TEST(test_a_folder_of_another_store_in_its_place),
		TEST(test_adopted),
		TEST(test_several_take_a_new_folder),
		TEST(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
