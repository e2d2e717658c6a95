/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ctrl-C in the middle of a copy: a flag that exchanges and workers look at, so that no half file is left. Any thread; the
 * handler sets the flag and nothing else.
 */
#include "ctl/ctl.h"

#include <signal.h>
#include <stdatomic.h>

static atomic_int stopped_by;

static void on_signal(int number)
{
	atomic_store(&stopped_by, number);
}

void ctl_stop_on_signal(void)
{
	/* Once: the second one ends the process. */
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
}

bool ctl_stopped(void)
{
	return atomic_load(&stopped_by) != 0;
}

void ctl_die_if_stopped(void)
{
	int number = atomic_load(&stopped_by);
	struct sigaction action = {.sa_handler = SIG_DFL};

	if (!number)
		return;
	sigaction(number, &action, NULL);
	raise(number);
}
