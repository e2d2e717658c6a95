/* SPDX-License-Identifier: Apache-2.0 */
/* What a plugin says of itself, for people: berthd --describe. */
#ifndef PLUGIN_DESCRIBE_H
#define PLUGIN_DESCRIBE_H

#include <stdint.h>

#include "core/buf.h"
#include "core/err.h"

/* ,"capabilities":["renew",…] */
void plugin_put_capabilities(struct buf *out, uint64_t capabilities);
/* Loads the file as a start would, with every check and the trial in a child (`probe`, see loader_load), and appends its descriptor
 * as one JSON object. Main thread of a process that does nothing else. */
int plugin_describe(const char *file, const char *probe, struct buf *out, struct err *err);

#endif
