/* SPDX-License-Identifier: Apache-2.0 */
/* Options, one instance per target, and check. open and close are serial; nothing of an instance changes in between. */
#include "httpprov.h"

#include <stdlib.h>
#include <string.h>

enum { OPT_BASE_URL, OPT_TOKEN, OPT_SILENCE, OPT_CREATE_SETTLE, OPT_COUNT };

#define OPTION(name, kind, text, ...)                                                                                  \
	{                                                                                                              \
		.struct_size = sizeof(struct berth_option), .type = BERTH_OPTION_##kind, .key = name,                  \
		.default_text = text, __VA_ARGS__                                                                      \
	}
static const struct berth_option options[OPT_COUNT] = {
	[OPT_BASE_URL] =
		OPTION("base_url", STRING, NULL, .required = 1, .doc = "Where the server listens, http://host:port."),
	[OPT_TOKEN] = OPTION("token", STRING, NULL, .secret = 1, .doc = "What the server wants as a bearer token."),
	[OPT_SILENCE] = OPTION("silence", DURATION, "45s",
			       .doc = "How long a command's stream may say nothing before it is opened again."),
	[OPT_CREATE_SETTLE] =
		OPTION("create_settle", DURATION, "0s", .doc = "How long after a lost create its session may appear."),
};
const struct berth_option *const prov_options[] = {&options[0], &options[1], &options[2], &options[3], NULL};

static const struct berth_option_value *value_of(const struct berth_open_args *args, unsigned which)
{
	for (size_t i = 0; i < args->option_count; i++)
		if (args->options[i]->is_set && !strcmp(args->options[i]->key, options[which].key))
			return args->options[i];
	return NULL;
}

static char *copy_of(struct berth_str text)
{
	return strndup(text.ptr ? text.ptr : "", text.len);
}

void prov_close(void *inst)
{
	struct prov *p = inst;

	if (!p)
		return;
	free(p->base_url);
	free(p->deployment);
	free(p);
}

int32_t prov_open(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
		  struct berth_instance_info *ret_info)
{
	const struct berth_option_value *url = value_of(args, OPT_BASE_URL), *silence = value_of(args, OPT_SILENCE),
					*settle = value_of(args, OPT_CREATE_SETTLE);
	struct prov *p;
	size_t len = url ? url->string.len : 0;

	while (len && url->string.ptr[len - 1] == '/')
		len--;
	if (len < 8 || (memcmp(url->string.ptr, "http://", 7) != 0 && memcmp(url->string.ptr, "https://", 8) != 0))
		return prov_fail(call, BERTH_INVALID, "base_url", "base_url must begin with http:// or https://");
	p = calloc(1, sizeof(*p));
	if (p) {
		p->target = args->target;
		p->silence_ms = silence ? silence->integer : 0;
		p->base_url = copy_of((struct berth_str){url->string.ptr, len});
		p->deployment = copy_of(args->deployment);
	}
	if (!p || !p->base_url || !p->deployment) {
		prov_close(p);
		return prov_fail(call, BERTH_UNAVAILABLE, "memory", "memory is out");
	}
	ret_info->capabilities = PROV_CAPABILITIES;
	ret_info->create_settle_ms = settle ? settle->integer : 0;
	ret_info->isolation = BERTH_ISOLATION_NONE;
	*ret_inst = p;
	return BERTH_OK;
}

int32_t prov_check(void *inst, struct berth_call *call)
{
	struct ask ask;
	int32_t rc;

	ask_init(&ask, inst, call, "GET", "/v1/check");
	rc = ask_json(&ask);
	if (!rc && wire_number(ask.json, "version") != 1)
		rc = prov_fail(call, BERTH_INVALID, "version", "the server speaks another version of the protocol");
	ask_fini(&ask);
	return rc;
}
