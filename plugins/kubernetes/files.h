/* SPDX-License-Identifier: Apache-2.0 */
/* Files through a session's executor. Semantics are those of the operations in provider.h. */
#ifndef KUBERNETES_FILES_H
#define KUBERNETES_FILES_H

#include "kube.h"
#include "session.h"

struct files_request {
	const char *path;	       /* "/v1/…" */
	struct json_object *arguments; /* taken, whatever comes of it */
	const struct berth_str *paths; /* of tar/export only */
	size_t path_count;
};

typedef int32_t files_fn(struct kube *k, struct berth_call *call, struct session *session,
			 const struct files_request *asked, struct kerr *err);

/* An operation of the executor without bytes: stat, list, remove, move, mark, changes. */
files_fn files_ask;
/* Bytes to the host. */
files_fn files_fetch;
/* Bytes from the host. */
files_fn files_store;

#endif
