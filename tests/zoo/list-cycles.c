/* SPDX-License-Identifier: Apache-2.0 */
/* Its list goes from page to page in a ring, and each page is empty. */
#define ZOO_NAME "list-cycles"
#define ZOO_LIST bad_list
#include <berth/provider.h>
static int32_t bad_list(void *inst, struct berth_call *call, const struct berth_str *cursor);
#include "zoo.h"

static int32_t bad_list(void *inst, struct berth_call *call, const struct berth_str *cursor)
{
	const char *next = !cursor->len ? "a" : *cursor->ptr == 'a' ? "b" : *cursor->ptr == 'b' ? "c" : "a";
	const struct berth_str text = zoo_str(next);

	(void)inst;
	return host->emit_cursor(call, &text);
}
