/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's guarded clock: Unix milliseconds that never jump. Within one boot it advances with CLOCK_BOOTTIME alone, whatever the
 * wall clock does; across boots it goes on from the later of the stored time and the wall clock plus the stored offset.
 * Pure but for the readings passed in.
 */
#ifndef STORE_CLOCK_H
#define STORE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define STORE_CLOCK_MAX_MS INT64_C(253402300799999) /* the end of the year 9999 */

struct store_clock {
	int64_t time_ms;   /* store time at the mark */
	int64_t boot_ns;   /* CLOCK_BOOTTIME at the mark */
	int64_t offset_ms; /* store time minus wall time, as last judged; 0 on a new store */
	char boot_id[37];
};

/* Goes on from what was stored (zeroed: a new store). True when another boot id counts as an outage. */
bool store_clock_start(struct store_clock *clock, int64_t wall_ms, int64_t boot_ns, const char *boot_id);
int64_t store_clock_now(const struct store_clock *clock, int64_t boot_ns);
/* Judges the wall clock against BOOTTIME; absorbs a difference over 2 s into offset_ms; true when it did (log once). */
bool store_clock_judge(struct store_clock *clock, int64_t wall_ms, int64_t boot_ns);
void store_clock_mark(struct store_clock *clock, int64_t boot_ns);

#endif
