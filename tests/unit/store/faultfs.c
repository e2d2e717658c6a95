/* SPDX-License-Identifier: Apache-2.0 */
/* The default VFS with three of its file methods replaced. Installed for the whole test program. */
#include "faultfs.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <string.h>

static atomic_int codes[FAULTFS_CALLS], works_left[FAULTFS_CALLS], once[FAULTFS_CALLS];
static sqlite3_vfs *real_vfs;
static sqlite3_vfs fault_vfs;

/* SQLite's own tables (databases and logs have different ones) and our copies of them. Opens are rare: one lock will
 * do. */
#define TABLES_MAX 8
static struct {
	const sqlite3_io_methods *real;
	sqlite3_io_methods fault;
} tables[TABLES_MAX];
static size_t table_count;
static pthread_mutex_t tables_lock = PTHREAD_MUTEX_INITIALIZER;

static const sqlite3_io_methods *real_of(const sqlite3_file *file)
{
	size_t i = 0;

	while (&tables[i].fault != file->pMethods)
		i++;
	return tables[i].real;
}

static int code_of(enum faultfs_call call)
{
	int code = atomic_load(&codes[call]), left = code != 0 ? atomic_fetch_sub(&works_left[call], 1) : 0;

	return left > 0 || (left < 0 && atomic_load(&once[call])) ? 0 : code;
}

static int fault_write(sqlite3_file *file, const void *ptr, int len, sqlite3_int64 at)
{
	int code = code_of(FAULTFS_WRITE);

	return code != 0 ? code : real_of(file)->xWrite(file, ptr, len, at);
}

static int fault_sync(sqlite3_file *file, int flags)
{
	int code = code_of(FAULTFS_SYNC);

	return code != 0 ? code : real_of(file)->xSync(file, flags);
}

static int fault_read(sqlite3_file *file, void *ptr, int len, sqlite3_int64 at)
{
	int code = code_of(FAULTFS_READ);

	return code != 0 ? code : real_of(file)->xRead(file, ptr, len, at);
}

/* Our copy of a table; NULL when there are more tables than we have room for. */
static const sqlite3_io_methods *fault_of(const sqlite3_io_methods *real)
{
	const sqlite3_io_methods *found = NULL;
	size_t i = 0;

	pthread_mutex_lock(&tables_lock);
	while (i < table_count && tables[i].real != real)
		i++;
	if (i == table_count && i < TABLES_MAX) {
		tables[i].fault = *real;
		tables[i].fault.xWrite = fault_write;
		tables[i].fault.xSync = fault_sync;
		tables[i].fault.xRead = fault_read;
		tables[i].real = real;
		table_count++;
	}
	if (i < table_count)
		found = &tables[i].fault;
	pthread_mutex_unlock(&tables_lock);
	return found;
}

/* The real file's object stays the real one; only its table of methods is a copy with ours in it. */
static int fault_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *ret_flags)
{
	int rc = real_vfs->xOpen(real_vfs, name, file, flags, ret_flags);

	(void)vfs;
	if (rc == SQLITE_OK)
		file->pMethods = fault_of(file->pMethods);
	return rc;
}

void faultfs_install(void)
{
	real_vfs = sqlite3_vfs_find(NULL);
	fault_vfs = *real_vfs;
	fault_vfs.zName = "fault";
	fault_vfs.xOpen = fault_open;
	sqlite3_vfs_register(&fault_vfs, 1);
}

void faultfs_set(enum faultfs_call call, int code)
{
	faultfs_set_after(call, 0, code);
}

void faultfs_set_after(enum faultfs_call call, int works, int code)
{
	atomic_store(&once[call], 0);
	atomic_store(&works_left[call], works);
	atomic_store(&codes[call], code);
}

void faultfs_set_once(enum faultfs_call call, int works, int code)
{
	faultfs_set_after(call, works, code);
	atomic_store(&once[call], 1);
}
