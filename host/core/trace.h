/* SPDX-License-Identifier: Apache-2.0 */
/* W3C trace context: one traceparent per request, taken over or made. Pure but for the random part; any thread. */
#ifndef CORE_TRACE_H
#define CORE_TRACE_H

#define TRACE_MAX 55 /* "00-" 32 "-" 16 "-" 2 */

/* The traceparent of what is done for a caller that gave `given` (NULL or malformed: a new trace): the same trace, a span
 * of our own. */
void trace_make(const char *given, char ret[TRACE_MAX + 1]);

#endif
