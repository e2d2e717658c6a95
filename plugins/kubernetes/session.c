/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ref and the sealed state of a session, written and read. The state is lines of text behind a version; it holds
 * where the executor was last seen and whom it serves, and no secret. The last line, the pod's version, is there while
 * the session is warm only. Pure; any thread.
 */
#include "session.h"

#include <stdio.h>
#include <string.h>

#define VERSION "k1"

static bool take_line(struct berth_str *text, char *ret, size_t cap)
{
	const char *end = text->len ? memchr(text->ptr, '\n', text->len) : NULL;
	size_t len = end ? (size_t)(end - text->ptr) : 0;

	if (!end || len >= cap || memchr(text->ptr, '\0', len))
		return false;
	memcpy(ret, text->ptr, len);
	ret[len] = '\0';
	text->ptr += len + 1;
	text->len -= len + 1;
	return true;
}

bool session_of(const struct berth_session *session, struct session *ret)
{
	struct berth_str text = session->state;
	char version[8];

	*ret = (struct session){0};
	if (!names_ref(session->ref, &ret->ref))
		return false;
	memcpy(ret->pod, ret->ref.name, sizeof(ret->pod));
	memcpy(ret->uid, ret->ref.uid, sizeof(ret->uid));
	/* Before it was ready there is none, or less of it. */
	if (!text.len)
		return true;
	return take_line(&text, version, sizeof(version)) && !strcmp(version, VERSION) &&
	       take_line(&text, ret->pod, sizeof(ret->pod)) && take_line(&text, ret->uid, sizeof(ret->uid)) &&
	       take_line(&text, ret->ip, sizeof(ret->ip)) && take_line(&text, ret->instance, sizeof(ret->instance)) &&
	       take_line(&text, ret->workspace, sizeof(ret->workspace)) &&
	       take_line(&text, ret->task, sizeof(ret->task)) &&
	       (!text.len || take_line(&text, ret->version, sizeof(ret->version)));
}

void session_state(const struct session *session, char ret[1024])
{
	snprintf(ret, 1024, VERSION "\n%s\n%s\n%s\n%s\n%s\n%s\n%s%s", session->pod, session->uid, session->ip,
		 session->instance, session->workspace, session->task, session->version, *session->version ? "\n" : "");
}
