/* SPDX-License-Identifier: Apache-2.0 */
/* Writes to standard output in init. */
#include <stdio.h>

#define ZOO_NAME "init-prints"
#define ZOO_INIT bad_init
#include <berth/host.h>
static int32_t bad_init(const struct berth_host *given);
#include "zoo.h"

static int32_t bad_init(const struct berth_host *given)
{
	zoo_init(given);
	printf("ok init-prints 9.9\n");
	fflush(stdout);
	fprintf(stderr, "hello from a plugin\n");
	return BERTH_OK;
}
