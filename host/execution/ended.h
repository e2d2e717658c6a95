/* SPDX-License-Identifier: Apache-2.0 */
/* Public records of ended executions, kept in memory for readers. Any thread; takes a leaf lock only, waits for nothing. */
#ifndef EXECUTION_ENDED_H
#define EXECUTION_ENDED_H

#include <stdbool.h>

#include "execution/execution.h"

struct ended;

struct ended *ended_new(size_t max_bytes); /* NULL: no memory */
void ended_free(struct ended *ended);
/* The record lives `lasts_ms` more. Nothing is kept when that is over, when it is large, or without memory. */
void ended_put(struct ended *ended, const char *id, const struct execution_head *head, int64_t lasts_ms, const char *doc,
	       size_t len);
/* False: not kept, which says nothing about the record. buf may be NULL; else the text is appended. */
bool ended_get(struct ended *ended, const char *id, struct execution_head *ret, struct buf *buf);
void ended_drop(struct ended *ended, const char *id);
void ended_clear(struct ended *ended); /* drops all: they were another store's */

#endif
