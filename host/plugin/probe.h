/* SPDX-License-Identifier: Apache-2.0 */
/* The trial of a plugin in a child. */
#ifndef PLUGIN_PROBE_H
#define PLUGIN_PROBE_H

#include "plugin/loader.h"

#define PROBE_LIMIT_MS 10000

/* Runs `program --probe fd path name`; 0 when the child said ok. */
int probe_run(const char *program, int fd, const char *path, const char *name, int64_t limit_ms, struct err *err);

#endif
