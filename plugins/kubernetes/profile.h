/* SPDX-License-Identifier: Apache-2.0 */
/* What a template may not ask for: by the restricted Pod Security profile, and no credential of the cluster. Pure. */
#ifndef KUBERNETES_PROFILE_H
#define KUBERNETES_PROFILE_H

#include <json-c/json.h>

#include "text.h"

/* Where a message points. */
struct place {
	const char *file;
	const char *container; /* NULL: the pod itself */
	struct kerr *err;
};

/* INVALID. */
int32_t profile_refuse(const struct place *at, const char *field, const char *why);
/* Of a pod, {metadata, spec}, without its containers. */
int32_t profile_check_pod(const struct place *at, struct json_object *tree);
int32_t profile_check_container(const struct place *at, struct json_object *container);

#endif
