/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy of the mock provider with one mistake. A bug is a file that defines bend(): it replaces an operation in a copy
 * of the mock's table, or a service in a copy of the host's, which the mock then takes for the real ones. The mock's
 * own sources stay as they are.
 */
#ifndef BUG_H
#define BUG_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mock.h"

#define UNUSED __attribute__((unused))

const struct berth_provider *mock_provider_entry(void); /* the mock's own entry, by another name */

static const struct berth_host *real;

/* Called once with each table that matters and a scratch one for the other. */
static void bend(struct berth_ops *ops, struct berth_host *host);

/* root/sessions/<ref>/<what> */
UNUSED static void bug_path(char ret[8192], void *inst, const struct berth_session *session, const char *what)
{
	const struct mock *m = inst;

	snprintf(ret, 8192, "%s/sessions/%.*s/%s", m->store.root, (int)session->ref.len, session->ref.ptr, what);
}

#define BUG_OF mock_provider_entry
#include "bend.h"

#endif
