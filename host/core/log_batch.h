/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines that may be written a moment later, many by one write(2): the line of each request, whose client has its answer
 * already. Every other line is written at once.
 */
#ifndef CORE_LOG_BATCH_H
#define CORE_LOG_BATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"

/* Without it, and after the stop, every line is written at once. One thread; ERR_NOMEM when it cannot be started. */
int log_batch_start(struct err *err);
void log_batch_stop(void); /* writes what is kept */

/* Any thread. False: nothing was kept, the caller writes the line itself. */
bool log_batch_add(const char *line, size_t len);

/* For an end without a stop: writes what is kept. Async-signal-safe, takes no lock; a line may come twice. */
void log_batch_rescue(void);

#endif
