/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the audit line: who did what to whose task, and how it was answered; for every command, file, teardown and
 * operator's action, refused ones included. Entered from loop threads and workers, once per request. Never holds a
 * command, content or a token.
 */
#include "api/intake.h"
#include "core/log.h"

void audit_log(const struct req *req)
{
	if (!req->route || !req->route->audit)
		return;
	log_info("audit", KI("audit", 1), KS("action", req->route->audit), KS("identity", req->token ? req->token->name : ""),
		 KS("client", req->client),
		 KS("workspace", req->audit.workspace), KS("task", req->audit.task), KS("object", req->audit.object),
		 KI("status", req->reply.status), KB("trace", req->trace + 3, 32));
}
