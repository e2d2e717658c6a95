/* SPDX-License-Identifier: Apache-2.0 */
/* The pod template: the operator's file under the fields that Berth insists on. Pure but for the file; any thread. */
#ifndef KUBERNETES_TEMPLATE_H
#define KUBERNETES_TEMPLATE_H

#include <json-c/json.h>

#include "text.h"

/* What open knows. Texts may be empty, except container. */
struct template_base {
	const char *container;	    /* the executor's */
	const char *image;	    /* of it, when the template names none */
	const char *executor_image; /* from which the executor is copied into it; empty: it is in the image */
	const char *runtime_class;
	const char *keys; /* BERTH_EXECUTOR_KEYS */
	const char *root; /* workspace root of the built-in template */
	unsigned port;
	int64_t cpu_millis, memory_bytes, disk_bytes; /* limits of containers that have none */
};

/* From a file (empty path: the built-in one). *ret is {metadata, spec}, to be put. INVALID names file and field. */
int32_t template_load(const char *path, const struct template_base *base, struct json_object **ret, struct kerr *err);
/* The same from a tree, which it changes; `name` is what messages call it. */
int32_t template_merge(const char *name, struct json_object *tree, const struct template_base *base, struct kerr *err);

/* What one session needs beside it. */
struct template_session {
	const char *name;
	const char *image; /* empty: the template's */
	uint64_t cpu_millis, memory_bytes, disk_bytes;
	int64_t seconds; /* activeDeadlineSeconds; 0: none */
	const struct berth_pair *env;
	size_t env_count;
};
/* A Pod object without labels; to be put. */
int32_t template_pod(struct json_object *template, const char *container, const struct template_session *session,
		     struct json_object **ret, struct kerr *err);
/* The executor's workspace root by its environment, or the executor's default. */
const char *template_root(struct json_object *pod, const char *container);

/* The object at key, made when there is none. NULL: something else stands there. */
struct json_object *template_object(struct json_object *parent, const char *key);
void template_set(struct json_object *parent, const char *key, const char *value);

#endif
