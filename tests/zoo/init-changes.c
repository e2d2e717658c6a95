/* SPDX-License-Identifier: Apache-2.0 */
/* Changes what belongs to the process. */
#include <locale.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#define ZOO_NAME "init-changes"
#define ZOO_INIT bad_init
#include <berth/host.h>
static int32_t bad_init(const struct berth_host *given);
#include "zoo.h"

static int32_t bad_init(const struct berth_host *given)
{
	zoo_init(given);
	if (chdir("/") || !setlocale(LC_ALL, "C.UTF-8"))
		return BERTH_INTERNAL;
	umask(0);
	signal(SIGTERM, SIG_IGN);
	signal(SIGPIPE, SIG_DFL);
	return BERTH_OK;
}
