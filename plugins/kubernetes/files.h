/* SPDX-License-Identifier: Apache-2.0 */
/* Files through a session's executor. Semantics are those of the operations in provider.h. */
#ifndef KUBERNETES_FILES_H
#define KUBERNETES_FILES_H

#include "kube.h"
#include "session.h"

/* An operation of the executor without bytes: stat, list, remove, move, mark, changes. Takes the arguments. */
int32_t files_ask(struct kube *k, struct berth_call *call, struct session *session, const char *path,
		  struct json_object *arguments, struct kerr *err);
/* Bytes to the host. `paths` is for tar/export only. Takes the arguments. */
int32_t files_fetch(struct kube *k, struct berth_call *call, struct session *session, const char *path,
		    struct json_object *arguments, const struct berth_str *paths, size_t path_count, struct kerr *err);
/* Bytes from the host. Takes the arguments. */
int32_t files_store(struct kube *k, struct berth_call *call, struct session *session, const char *path,
		    struct json_object *arguments, struct kerr *err);

#endif
