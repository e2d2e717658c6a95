/* SPDX-License-Identifier: Apache-2.0 */
/* The gathering log beside a model: what is read is what was written, and after a sync the file has it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/limits.h"
#include "store/sqlite/sqlite.h"
#include "tempdir.h"

#define SIZE_MAX_OF_MODEL (1024 * LIMIT_KIB)
#define STEPS 20000

struct model {
	sqlite3_file *file;
	char path[TEMPDIR_PATH];
	unsigned char *bytes; /* of the file, as SQLite should see it */
	unsigned char *buf;
	size_t size, next; /* next: where the last write ended */
	unsigned seed;
};

static unsigned pick(struct model *m, unsigned below)
{
	m->seed = m->seed * 1103515245U + 12345U;
	return (m->seed >> 8) % below;
}

static sqlite3_file *open_log(char *path)
{
	sqlite3_vfs *vfs;
	sqlite3_file *file;
	int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_WAL;

	walfile_init();
	vfs = sqlite3_vfs_find(WALFILE_VFS);
	assert_non_null(vfs);
	file = calloc(1, (size_t)vfs->szOsFile);
	assert_non_null(file);
	assert_int_equal(vfs->xOpen(vfs, path, file, flags, &flags), SQLITE_OK);
	return file;
}

/* As a log is written: heads and pages one after another, now and then somewhere else, seldom the largest page. */
static void write_some(struct model *m)
{
	static const unsigned sizes[] = {24, 4096, 24, 4096, 24, 4096, 65536};
	size_t len = sizes[pick(m, pick(m, 50) ? 6 : 7)], at = pick(m, 12) ? m->next : pick(m, (unsigned)m->size + 1);

	if (at + len > SIZE_MAX_OF_MODEL)
		at = 0;
	memset(m->buf, (int)pick(m, 256), len);
	assert_int_equal(m->file->pMethods->xWrite(m->file, m->buf, (int)len, (sqlite3_int64)at), SQLITE_OK);
	memcpy(m->bytes + at, m->buf, len);
	m->next = at + len;
	if (m->next > m->size)
		m->size = m->next;
}

/* Half of the reads are of what was just written, some across its begin. */
static void read_some(struct model *m)
{
	static const unsigned sizes[] = {24, 4096, 4120};
	size_t len = sizes[pick(m, 3)], back = pick(m, 2) ? pick(m, 20000) : pick(m, (unsigned)m->size + 1), at;

	if (len > m->size)
		return;
	at = back > m->size ? 0 : m->size - back;
	if (at + len > m->size)
		at = m->size - len;
	assert_int_equal(m->file->pMethods->xRead(m->file, m->buf, (int)len, (sqlite3_int64)at), SQLITE_OK);
	assert_memory_equal(m->buf, m->bytes + at, len);
}

static void cut(struct model *m)
{
	sqlite3_int64 size = -1;

	assert_int_equal(m->file->pMethods->xFileSize(m->file, &size), SQLITE_OK);
	assert_int_equal(size, m->size);
	m->size = pick(m, (unsigned)m->size + 1);
	m->next = m->size;
	assert_int_equal(m->file->pMethods->xTruncate(m->file, (sqlite3_int64)m->size), SQLITE_OK);
	memset(m->bytes + m->size, 0, SIZE_MAX_OF_MODEL - m->size);
}

static void sync_all(struct model *m)
{
	FILE *other;

	assert_int_equal(m->file->pMethods->xSync(m->file, SQLITE_SYNC_NORMAL), SQLITE_OK);
	other = fopen(m->path, "rb");
	assert_non_null(other);
	assert_int_equal(fread(m->buf, 1, SIZE_MAX_OF_MODEL, other), m->size);
	fclose(other);
	assert_memory_equal(m->buf, m->bytes, m->size);
}

static void test_beside_a_model(void **state)
{
	struct model m = {.seed = 1, .bytes = calloc(1, SIZE_MAX_OF_MODEL), .buf = malloc(SIZE_MAX_OF_MODEL)};
	struct tempdir dir;

	(void)state;
	assert_true(m.bytes != NULL && m.buf != NULL);
	tempdir_make(&dir);
	tempdir_path(&dir, "db", m.path); /* whose mode the log gets */
	fclose(fopen(m.path, "w"));
	tempdir_path(&dir, "db-wal", m.path);
	m.file = open_log(m.path);
	for (int i = 0; i < STEPS; i++) {
		unsigned what = pick(&m, 1000);

		if (what < 600)
			write_some(&m);
		else if (what < 980)
			read_some(&m);
		else if (what < 983)
			cut(&m);
		else if (what < 990)
			sync_all(&m);
	}
	sync_all(&m);
	assert_int_equal(m.file->pMethods->xClose(m.file), SQLITE_OK);
	free(m.file);
	free(m.bytes);
	free(m.buf);
	tempdir_remove(&dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_beside_a_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
