/* SPDX-License-Identifier: Apache-2.0 */
/* YAML as JSON: kubeconfig files and templates are read into the trees that the rest of the plugin works with. Any
 * thread. */
#ifndef KUBERNETES_YAMLTREE_H
#define KUBERNETES_YAMLTREE_H

#include <json-c/json.h>

#include "text.h"

#define YAMLTREE_FILE_MAX ((size_t)1024 * 1024)

/* The first document of the text. `name` is what messages call it. *ret_tree is to be put. */
int32_t yamltree_parse(const char *name, const void *ptr, size_t len, struct json_object **ret_tree, struct kerr *err);
/* The same from a file; INVALID with the reason `file` when it cannot be read. */
int32_t yamltree_read(const char *path, struct json_object **ret_tree, struct kerr *err);
/* A whole file, at most YAMLTREE_FILE_MAX bytes. *ret_text is to be freed, and ends in NUL. */
int32_t yamltree_slurp(const char *path, char **ret_text, size_t *ret_len, struct kerr *err);

#endif
