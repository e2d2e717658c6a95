/* SPDX-License-Identifier: Apache-2.0 */
/* No mistake at all: what is reported of this copy is a mistake of the kit. */
#include "http.h"

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)ops;
	(void)host;
}
