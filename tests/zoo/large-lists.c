/* SPDX-License-Identifier: Apache-2.0 */
/* Lists what a session may well hold and one call cannot: by the listed path, so many entries or names so long. */
#define ZOO_NAME "large-lists"
#define ZOO_FILE_LIST large_file_list
#include <stdio.h>
#include <stdlib.h>

#include <berth/provider.h>

static int32_t large_file_list(void *inst, struct berth_call *call, const struct berth_session *session,
			       const struct berth_str *path, uint32_t flags);
#include "zoo.h"

/* "100001" or "100001-900": the number of entries, the bytes of their names. */
static int32_t large_file_list(void *inst, struct berth_call *call, const struct berth_session *session,
			       const struct berth_str *path, uint32_t flags)
{
	struct berth_file_info info = {.struct_size = sizeof(info), .kind = BERTH_FILE_REGULAR, .mode = 0644};
	char text[32], pad[BERTH_PATH_MAX - 64], name[BERTH_PATH_MAX];
	unsigned long count, width = 0;
	int32_t rc = BERTH_OK;
	char *end;

	(void)inst;
	(void)session;
	(void)flags;
	snprintf(text, sizeof(text), "%.*s", (int)path->len, path->ptr);
	count = strtoul(text, &end, 10);
	if (*end)
		width = strtoul(end + 1, NULL, 10);
	memset(pad, 'x', sizeof(pad));
	pad[width < sizeof(pad) ? width : sizeof(pad) - 1] = '\0';
	for (unsigned long i = 0; !rc && i < count; i++) {
		snprintf(name, sizeof(name), "%s/%s%lu", text, pad, i);
		info.path = zoo_str(name);
		rc = host->emit_file(call, &info);
	}
	return rc;
}
