/* SPDX-License-Identifier: Apache-2.0 */
/* Folders for tests, under TMPDIR. */
#include "tempdir.h"

#include <fts.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

void tempdir_make(struct tempdir *dir)
{
	const char *base = getenv("TMPDIR");

	snprintf(dir->root, sizeof(dir->root), "%s/berth-test-XXXXXX", base != NULL ? base : "/tmp");
	assert_non_null(mkdtemp(dir->root));
}

void tempdir_remove(struct tempdir *dir)
{
	char *roots[] = {dir->root, NULL};
	FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	FTSENT *entry;

	assert_non_null(walk);
	while ((entry = fts_read(walk)) != NULL)
		if (entry->fts_info != FTS_D)
			remove(entry->fts_accpath);
	fts_close(walk);
}

void tempdir_path(const struct tempdir *dir, const char *name, char ret_path[TEMPDIR_PATH])
{
	snprintf(ret_path, TEMPDIR_PATH, "%s/%s", dir->root, name);
}
