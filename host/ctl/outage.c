/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that does not answer while something is followed. Any thread: two output streams and the wait for the end notice the
 * same outage, and one of them says it, once. Never decides how long is tried.
 */
#include "ctl/ctl.h"

#include <inttypes.h>
#include <stdatomic.h>

#include "core/clock.h"

#define WORD_MS 3000 /* a restart is shorter, and worth no word */

static _Atomic int64_t since_ns; /* 0: it answers */
static atomic_bool told;

void ctl_outage_noticed(void)
{
	int64_t began = 0, now = clock_boot_ns();

	if (atomic_compare_exchange_strong(&since_ns, &began, now) || now - began < WORD_MS * CLOCK_NS_PER_MS ||
	    atomic_exchange(&told, true))
		return;
	fflush(stdout);
	fprintf(stderr, "berthctl: berthd does not answer; trying again for %d s\n", CTL_OUTAGE_MS / 1000);
}

void ctl_outage_over(void)
{
	atomic_store(&since_ns, 0);
	atomic_store(&told, false);
}
