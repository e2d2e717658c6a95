/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YAML as JSON, by libyaml's documents. Plain scalars follow the core schema (null, booleans, numbers); quoted ones are
 * texts. Refuses what a tree cannot say: a key that is no scalar, a key twice, an alias that makes a tree too deep or
 * too large. Any thread; keeps nothing.
 */
#include "yamltree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#define DEPTH_MAX 64
#define NODES_MAX 100000

struct reader {
	const char *name;
	yaml_document_t *document;
	unsigned nodes; /* visited, aliases counted each time */
	struct kerr *err;
};

static struct json_object *refuse(struct reader *r, const yaml_node_t *node, const char *what)
{
	kerr_set(r->err, BERTH_INVALID, "yaml", "%s:%zu:%zu: %s", r->name, node ? node->start_mark.line + 1 : 0,
		 node ? node->start_mark.column + 1 : 0, what);
	return NULL;
}

static struct json_object *number_of(const char *text)
{
	char *end = NULL;
	int64_t whole;
	double number;

	if (!strchr("-+.0123456789", *text) || !*text)
		return NULL;
	errno = 0;
	whole = strtoll(text, &end, !strncmp(text, "0x", 2) ? 16 : !strncmp(text, "0o", 2) ? 8 : 10);
	if (!*end && end != text && !errno)
		return json_object_new_int64(whole);
	if (strspn(text, "-+.eE0123456789") != strlen(text))
		return NULL;
	number = strtod(text, &end);
	return *end || end == text ? NULL : json_object_new_double_s(number, text);
}

static bool is_one_of(const char *text, const char *const *words)
{
	for (; *words; words++)
		if (!strcmp(text, *words))
			return true;
	return false;
}

/* False: null, which json-c writes as a NULL pointer. */
static bool plain_of(const char *text, struct json_object **ret)
{
	static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
	static const char *const yes[] = {"true", "True", "TRUE", NULL};
	static const char *const no[] = {"false", "False", "FALSE", NULL};

	*ret = NULL;
	if (is_one_of(text, nulls))
		return false;
	if (is_one_of(text, yes) || is_one_of(text, no))
		*ret = json_object_new_boolean(is_one_of(text, yes));
	else
		*ret = number_of(text);
	if (!*ret)
		*ret = json_object_new_string(text);
	return true;
}

static bool build(struct reader *r, int index, unsigned depth, struct json_object **ret);

static struct json_object *build_list(struct reader *r, const yaml_node_t *node, unsigned depth)
{
	struct json_object *list = json_object_new_array();

	for (yaml_node_item_t *item = node->data.sequence.items.start; item < node->data.sequence.items.top; item++) {
		struct json_object *value;

		if (!build(r, *item, depth + 1, &value)) {
			json_object_put(list);
			return NULL;
		}
		json_object_array_add(list, value);
	}
	return list;
}

static const char *key_of(struct reader *r, const struct json_object *map, int index)
{
	const yaml_node_t *node = yaml_document_get_node(r->document, index);
	const char *key;

	if (!node || node->type != YAML_SCALAR_NODE) {
		refuse(r, node, "a key is no plain word");
		return NULL;
	}
	key = (const char *)node->data.scalar.value;
	if (json_object_object_get_ex(map, key, NULL)) {
		refuse(r, node, "a key stands twice");
		return NULL;
	}
	return key;
}

static struct json_object *build_map(struct reader *r, const yaml_node_t *node, unsigned depth)
{
	struct json_object *map = json_object_new_object();

	for (yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top; pair++) {
		const char *key = key_of(r, map, pair->key);
		struct json_object *value;

		if (!key || !build(r, pair->value, depth + 1, &value)) {
			json_object_put(map);
			return NULL;
		}
		json_object_object_add(map, key, value);
	}
	return map;
}

/* False: refused. *ret may be NULL, which is null. */
static bool build(struct reader *r, int index, unsigned depth, struct json_object **ret)
{
	const yaml_node_t *node = yaml_document_get_node(r->document, index);

	*ret = NULL;
	if (!node || depth > DEPTH_MAX || ++r->nodes > NODES_MAX)
		return refuse(r, node, "too deep or too large") != NULL;
	switch (node->type) {
	case YAML_SEQUENCE_NODE:
		*ret = build_list(r, node, depth);
		return *ret != NULL;
	case YAML_MAPPING_NODE:
		*ret = build_map(r, node, depth);
		return *ret != NULL;
	case YAML_SCALAR_NODE:
		if (strlen((const char *)node->data.scalar.value) != node->data.scalar.length)
			return refuse(r, node, "a text holds a NUL") != NULL;
		if (node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
			plain_of((const char *)node->data.scalar.value, ret);
		else
			*ret = json_object_new_string((const char *)node->data.scalar.value);
		return true;
	default:
		return refuse(r, node, "an empty document") != NULL;
	}
}

static int32_t build_document(struct reader *r, struct json_object **ret_tree)
{
	if (!yaml_document_get_root_node(r->document))
		return kerr_set(r->err, BERTH_INVALID, "yaml", "%s: the file is empty", r->name);
	/* Roots are numbered from 1. */
	if (!build(r, 1, 0, ret_tree))
		return BERTH_INVALID;
	if (json_object_is_type(*ret_tree, json_type_object))
		return BERTH_OK;
	json_object_put(*ret_tree);
	*ret_tree = NULL;
	return kerr_set(r->err, BERTH_INVALID, "yaml", "%s: expected a mapping at the top", r->name);
}

int32_t yamltree_parse(const char *name, const void *ptr, size_t len, struct json_object **ret_tree, struct kerr *err)
{
	struct reader r = {.name = name, .err = err};
	yaml_document_t document;
	yaml_parser_t parser;
	int32_t rc;

	if (!yaml_parser_initialize(&parser))
		return kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory");
	yaml_parser_set_input_string(&parser, ptr, len);
	if (yaml_parser_load(&parser, &document)) {
		r.document = &document;
		rc = build_document(&r, ret_tree);
		yaml_document_delete(&document);
	} else {
		rc = kerr_set(err, BERTH_INVALID, "yaml", "%s:%zu:%zu: %s", name, parser.problem_mark.line + 1,
			      parser.problem_mark.column + 1, parser.problem ? parser.problem : "no YAML");
	}
	yaml_parser_delete(&parser);
	return rc;
}

static int32_t read_all(const char *path, int fd, char **ret_text, size_t *ret_len, struct kerr *err)
{
	struct buf buf = {.max = YAMLTREE_FILE_MAX};
	char piece[4096];
	ssize_t got;

	while ((got = read(fd, piece, sizeof(piece))) > 0)
		buf_put(&buf, piece, (size_t)got);
	explicit_bzero(piece, sizeof(piece));
	if (got < 0 || buf.bad) {
		buf_wipe(&buf);
		return kerr_set(err, BERTH_INVALID, "file", "%s: %s", path,
				got < 0 ? "cannot be read" : "is larger than 1 MiB");
	}
	buf_put(&buf, "", 0);
	*ret_text = buf.ptr;
	*ret_len = buf.len;
	return buf.ptr ? BERTH_OK : kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory");
}

int32_t yamltree_slurp(const char *path, char **ret_text, size_t *ret_len, struct kerr *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int32_t rc;

	if (fd < 0)
		return kerr_set(err, BERTH_INVALID, "file", "%s: cannot be opened: %s", path,
				errno == ENOENT	  ? "no such file"
				: errno == EACCES ? "permission denied"
						  : "error");
	rc = read_all(path, fd, ret_text, ret_len, err);
	close(fd);
	return rc;
}

int32_t yamltree_read(const char *path, struct json_object **ret_tree, struct kerr *err)
{
	char *text;
	size_t len;
	int32_t rc = yamltree_slurp(path, &text, &len, err);

	if (rc)
		return rc;
	rc = yamltree_parse(path, text, len, ret_tree, err);
	explicit_bzero(text, len);
	free(text);
	return rc;
}
