/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ctrl-C in the middle of what is sent or copied: a flag that exchanges and workers look at, so that no half file is left. Any thread; the
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

void ctl_stop_on_signal(bool on)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	/* Once: the second one ends the process. */
	struct sigaction now, action = {.sa_handler = on ? on_signal : SIG_DFL, .sa_flags = on ? (int)SA_RESETHAND : 0};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		sigaction(numbers[i], NULL, &now);
		if (on ? numbers[i] != SIGHUP || now.sa_handler != SIG_IGN : now.sa_handler == on_signal)
			sigaction(numbers[i], &action, NULL);
	}
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
