/* SPDX-License-Identifier: Apache-2.0 */
/* What /ready and /admin/targets both say about targets. Any thread. */
#ifndef API_REPORT_H
#define API_REPORT_H

#include <stdbool.h>

#include "core/buf.h"
#include "plugin/target.h"

/* A JSON array, one object per target in their order; `full` adds counters and the sentence why one is degraded. `drained`:
 * of each target, NULL with `full` false. */
void report_targets(const struct registry *registry, bool full, const bool *drained, struct buf *out);

#endif
