/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handlers behind the route table, one file per resource. Each is an `int handler(struct req *, struct err *)` of
 * router.h.
 */
#ifndef API_RESOURCES_H
#define API_RESOURCES_H

#include "api/api.h"
#include "api/req.h"

struct api {
	struct api_config config;
	struct server *server; /* the main thread's: a request may come before it is set and uses its own */
	int64_t started_ns, started_ms;
};

extern const struct route api_routes[];

static inline struct api *api_of(const struct req *req)
{
	return req->ctx;
}

/* health.c */
int health_get(struct req *req, struct err *err);
int ready_get(struct req *req, struct err *err);
/* metrics.c */
void metrics_start(void); /* before the server */
int metrics_get(struct req *req, struct err *err);
/* executions.c */
int execution_post(struct req *req, struct err *err);
int execution_get(struct req *req, struct err *err);
bool execution_get_quick(struct req *req);
int execution_delete(struct req *req, struct err *err);
int execution_get_list(struct req *req, struct err *err);
/* The record's identity, when the token reaches it; ERR_NOT_FOUND in the same words otherwise. */
struct execution_head;
int execution_reach(struct req *req, const char *id, struct execution_head *ret, struct err *err);
/* events.c */
int events_get(struct req *req, struct err *err);
/* outputs.c */
int output_get_stdout(struct req *req, struct err *err);
int output_get_stderr(struct req *req, struct err *err);
/* files.c */
int file_put(struct req *req, struct err *err);
int file_get(struct req *req, struct err *err);
int file_delete(struct req *req, struct err *err);
int file_post_move(struct req *req, struct err *err);
/* transfer.c */
int transfer_check_put(struct req *req, struct err *err);
int transfer_put(struct req *req, struct err *err);
int transfer_get(struct req *req, struct err *err);
/* sessions.c */
int session_get_list(struct req *req, struct err *err);
int task_get(struct req *req, struct err *err);
int task_delete(struct req *req, struct err *err);
/* admin.c */
int admin_post_verify(struct req *req, struct err *err);
int admin_get_targets(struct req *req, struct err *err);
int admin_post_drain(struct req *req, struct err *err);
int admin_post_undrain(struct req *req, struct err *err);
/* operators.c */
int admin_get_providers(struct req *req, struct err *err);
int admin_get_hosts(struct req *req, struct err *err);
int admin_get_deadletters(struct req *req, struct err *err);
int admin_get_deadletter(struct req *req, struct err *err);
int admin_post_deadletter(struct req *req, struct err *err);
int admin_delete_deadletter(struct req *req, struct err *err);
int manifest_get(struct req *req, struct err *err);
int unsupported_any(struct req *req, struct err *err);
int admin_recover(struct req *req, struct err *err);

#endif
