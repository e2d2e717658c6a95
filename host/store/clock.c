/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of the store's guarded clock. Pure: any thread, readings are passed in. It must never go back,
 * whatever the wall clock or a restored mark says.
 */
#include "store/clock.h"

#include <string.h>

#include "core/clock.h"

#define JUMP_MS 2000

/* Whole milliseconds since the mark; a BOOTTIME before the mark counts as none. */
static int64_t since_mark_ms(const struct store_clock *clock, int64_t boot_ns)
{
	return boot_ns > clock->boot_ns ? (boot_ns - clock->boot_ns) / CLOCK_NS_PER_MS : 0;
}

static void set_boot(struct store_clock *clock, int64_t boot_ns, const char *boot_id)
{
	size_t len = strnlen(boot_id, sizeof(clock->boot_id) - 1);

	memcpy(clock->boot_id, boot_id, len);
	clock->boot_id[len] = '\0';
	clock->boot_ns = boot_ns;
}

bool store_clock_start(struct store_clock *clock, int64_t wall_ms, int64_t boot_ns, const char *boot_id)
{
	int64_t guess;

	if (clock->time_ms == 0) {
		clock->time_ms = wall_ms;
		clock->offset_ms = 0;
		set_boot(clock, boot_ns, boot_id);
		return false;
	}
	/* A time namespace may show another BOOTTIME under the same boot id: not comparable, hence another boot. */
	if (strcmp(clock->boot_id, boot_id) == 0 && boot_ns >= clock->boot_ns) {
		store_clock_mark(clock, boot_ns);
		return false;
	}
	if (!__builtin_add_overflow(wall_ms, clock->offset_ms, &guess) && guess > clock->time_ms)
		clock->time_ms = guess;
	set_boot(clock, boot_ns, boot_id);
	return true;
}

int64_t store_clock_now(const struct store_clock *clock, int64_t boot_ns)
{
	return clock->time_ms + since_mark_ms(clock, boot_ns);
}

bool store_clock_judge(struct store_clock *clock, int64_t wall_ms, int64_t boot_ns)
{
	int64_t offset = store_clock_now(clock, boot_ns) - wall_ms;
	int64_t moved = offset - clock->offset_ms;

	if (moved >= -JUMP_MS && moved <= JUMP_MS)
		return false;
	clock->offset_ms = offset;
	return true;
}

/* Moves the mark by whole milliseconds only: dropping the rest at every mark would make the clock slow. */
void store_clock_mark(struct store_clock *clock, int64_t boot_ns)
{
	int64_t ms = since_mark_ms(clock, boot_ns);

	clock->time_ms += ms;
	clock->boot_ns += ms * CLOCK_NS_PER_MS;
}
