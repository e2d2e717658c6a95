/* SPDX-License-Identifier: Apache-2.0 */
/* Hands over one byte of output and calls it SIZE_MAX bytes. */
#define ZOO_NAME "op-huge-output"
#include "execute.h"

BAD_EXECUTE(call)
{
	return host->sink_write(call, BERTH_STREAM_STDOUT, "x", SIZE_MAX);
}
