/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials in files: opened by path every time, never kept open, because the file is another one after a rotation.
 * Runs under its owner's lock; reads small local files only.
 */
#include "material.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "yamltree.h"

#define AGE_NS INT64_C(60000000000)

bool material_is_set(const struct material *m)
{
	return m->text || m->path;
}

static bool is_same(const struct material *m, const struct stat *st)
{
	return m->inode == st->st_ino && m->mtime.tv_sec == st->st_mtim.tv_sec &&
	       m->mtime.tv_nsec == st->st_mtim.tv_nsec;
}

static bool is_fresh(const struct material *m)
{
	struct stat st;

	if (!m->path)
		return true;
	return m->text && text_boot_ns() - m->read_ns < AGE_NS && !stat(m->path, &st) && is_same(m, &st);
}

static size_t trim(char *text)
{
	size_t len = strlen(text);

	while (len && strchr(" \t\r\n", text[len - 1]))
		text[--len] = '\0';
	return len;
}

static int32_t reread(struct material *m, struct kerr *err)
{
	struct stat st = {0};
	char *text;
	size_t len;
	int32_t rc;

	/* Before the reading: a file that is replaced in between is read again the next time. */
	stat(m->path, &st);
	rc = yamltree_slurp(m->path, &text, &len, err);
	if (rc)
		return rc;
	if (!trim(text)) {
		free(text);
		return kerr_set(err, BERTH_INVALID, "credential", "%s is empty", m->path);
	}
	material_drop(m->text);
	m->text = text;
	m->mtime = st.st_mtim;
	m->inode = st.st_ino;
	m->read_ns = text_boot_ns();
	return BERTH_OK;
}

int32_t material_get(struct material *m, bool force, char **ret_text, struct kerr *err)
{
	if ((force && m->path) || !is_fresh(m)) {
		int32_t rc = reread(m, err);

		if (rc && !m->text)
			return rc;
	}
	*ret_text = strdup(m->text);
	return *ret_text ? BERTH_OK : kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory");
}

void material_drop(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

void material_fini(struct material *m)
{
	material_drop(m->text);
	free(m->path);
	*m = (struct material){0};
}
