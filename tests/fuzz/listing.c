/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the list of its files that a sandbox sends to `berthctl get --recursive`. Whatever it says, an entry that may be
 * copied has a path below the folder that was asked for, and a link that is kept leads nowhere else.
 */
#include <stdlib.h>
#include <string.h>

#include "core/ident.h"
#include "ctl/tree.h"
#include "fuzz.h"

/* Follows a target from its link by names alone; false when it gets above the top. */
static bool stays_below(const char *path, const char *target)
{
	int depth = 0;

	if (*target == '/')
		return false;
	for (const char *c = path; *c; c++)
		depth += *c == '/';
	for (; *target; target += strspn(target, "/")) {
		size_t len = strcspn(target, "/");

		if (len == 2 && !memcmp(target, "..", 2))
			depth--;
		else if (len != 1 || *target != '.')
			depth++;
		if (depth < 0)
			return false;
		target += len;
	}
	return true;
}

static void check_entry(struct entry *entry)
{
	struct err err = {0};
	struct buf full;

	FUZZ_CHECK(entry->path && entry->size >= 0 && entry->mode <= 07777);
	FUZZ_CHECK(entry->sha256[0] == '\0' || (strlen(entry->sha256) == 64 && entry->kind == ENTRY_FILE));
	FUZZ_CHECK(!entry->target || entry->kind == ENTRY_LINK);
	if (entry->problem)
		return;
	FUZZ_CHECK(entry->kind != ENTRY_OTHER);
	buf_init(&full, 1 << 20);
	tree_join("base", entry->path, &full);
	FUZZ_CHECK(!full.error && ident_path_check("path", full.ptr, full.len, false, &err) == 0);
	FUZZ_CHECK(!strncmp(full.ptr, "base", 4) && (!full.ptr[4] || full.ptr[4] == '/'));
	FUZZ_PLANTED(full.ptr, full.len);
	buf_fini(&full);
	if (entry->kind == ENTRY_LINK && entry->target && !tree_judge_link(entry, "keep") && !entry->problem)
		FUZZ_CHECK(stays_below(entry->path, entry->target));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy = fuzz_copy(data, size);
	struct tree tree = {0};

	if (tree_parse("base", copy, size, &tree)) {
		FUZZ_CHECK(tree.top == ENTRY_FOLDER || !tree.count);
		for (size_t i = 0; i < tree.count; i++) {
			FUZZ_CHECK(!i || strcmp(tree.entries[i - 1].path, tree.entries[i].path) < 0);
			FUZZ_CHECK(tree_find(&tree, tree.entries[i].path) == &tree.entries[i]);
			check_entry(&tree.entries[i]);
		}
	}
	tree_fini(&tree);
	free(copy);
	return 0;
}
