/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A credential that is a text or the content of a file which is replaced now and then (tokens of service accounts are,
 * about hourly, by swapping a link). Not locked: its owner's lock protects it.
 */
#ifndef KUBERNETES_MATERIAL_H
#define KUBERNETES_MATERIAL_H

#include <time.h>

#include "text.h"

struct material {
	char *text; /* as last read */
	char *path; /* NULL: the text is all there is */
	struct timespec mtime;
	uint64_t inode;
	int64_t read_ns;
};

bool material_is_set(const struct material *m);
/* Reads the file again when it was replaced or was last read a minute ago; always with `force`. A file that cannot be
 * read or is empty leaves what was there; without anything it is an error. *ret_text is a copy to be wiped by
 * material_drop. */
int32_t material_get(struct material *m, bool force, char **ret_text, struct kerr *err);
void material_drop(char *text);
void material_fini(struct material *m);

#endif
