/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: a plugin's descriptor as found in memory. Every struct lies in a block of exactly the size that it
 * claims (when that may be true) and every text in one that ends where the text does, or where reading has to stop.
 * Starts as a good descriptor; the input says what is changed.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "plugin/loader.h"

#define BLOCKS_MAX 4096
#define LIST_MAX 300

static void *blocks[BLOCKS_MAX];
static size_t block_count;

static void *keep(void *block)
{
	FUZZ_CHECK(block && block_count < BLOCKS_MAX);
	return blocks[block_count++] = block;
}

static void drop_blocks(void)
{
	while (block_count)
		free(blocks[--block_count]);
}

/* Where reading has to stop: the limits of plugin/validate.c and the byte after. */
static char *endless(size_t limit)
{
	char *text = malloc(limit + 1);

	FUZZ_CHECK(text != NULL);
	memset(text, 'a', limit + 1);
	return keep(text);
}

static const char *text(struct fuzz_input *in, size_t limit, const char *usual)
{
	switch (fuzz_byte(in) % 8) {
	case 0:
		return NULL;
	case 1:
		return endless(limit);
	case 2:
	case 3: {
		size_t len = 0;
		char *copy = keep(fuzz_text(in, "\n", &len));

		return copy;
	}
	default:
		return keep(fuzz_copy(usual, strlen(usual)));
	}
}

/* A copy of the struct in as many bytes as it says it has; at least those that have to be looked at first. */
static void *claimed(struct fuzz_input *in, const void *ptr, size_t size, size_t least)
{
	uint32_t claim = (uint32_t)size;
	char *block;

	switch (fuzz_byte(in) % 8) {
	case 0:
		claim = (uint32_t)fuzz_number(in, 4);
		break;
	case 1:
		claim = (uint32_t)fuzz_number(in, 1);
		break;
	case 2:
		claim += fuzz_byte(in);
		break;
	}
	block = calloc(1, claim < least ? least : claim < 100000 ? claim : 100000);
	FUZZ_CHECK(block != NULL);
	memcpy(block, ptr, claim < least ? least : claim < size ? claim : size);
	if (least == sizeof(uint32_t))
		memcpy(block, &claim, sizeof(claim));
	else
		memcpy(block + offsetof(struct berth_provider, struct_size), &claim, sizeof(claim));
	return keep(block);
}

static size_t list_length(struct fuzz_input *in)
{
	size_t count = fuzz_byte(in);

	return count < 250 ? count % 6 : count + 10;
}

static const struct berth_option *const *options(struct fuzz_input *in)
{
	size_t count = list_length(in);
	const void **list = keep(calloc(count + 1, sizeof(*list)));

	FUZZ_CHECK(count < LIST_MAX);
	for (size_t i = 0; i < count; i++) {
		char usual[] = {'k', (char)('a' + i % 26), (char)('a' + i / 26), '\0'};
		struct berth_option option = {.type = in->len ? fuzz_byte(in) % 8 : 1};

		/* One after the other: the order inside an initializer is the compiler's. */
		option.key = text(in, 64, usual);
		option.default_text = fuzz_byte(in) & 1 ? text(in, 1025, "5") : NULL;
		option.required = fuzz_byte(in) % 3;
		option.secret = fuzz_byte(in) % 3;
		option.doc = text(in, 1025, "A sentence.");
		list[i] = claimed(in, &option, sizeof(option), sizeof(uint32_t));
	}
	return (const struct berth_option *const *)(void *)list;
}

static const struct berth_metric *const *metrics(struct fuzz_input *in)
{
	size_t count = list_length(in);
	const void **list = keep(calloc(count + 1, sizeof(*list)));

	for (size_t i = 0; i < count; i++) {
		char usual[] = {'m', (char)('a' + i % 26), (char)('a' + i / 26), '\0'};
		struct berth_metric metric = {.type = in->len ? fuzz_byte(in) % 4 : 1};

		metric.name = text(in, 64, usual);
		metric.unit = text(in, 64, "s");
		metric.doc = text(in, 1025, "A sentence.");
		list[i] = claimed(in, &metric, sizeof(metric), sizeof(uint32_t));
	}
	return (const struct berth_metric *const *)(void *)list;
}

static void no_operation(void)
{
}

static const struct berth_ops *operations(struct fuzz_input *in)
{
	struct berth_ops ops = {0};
	void (*op)(void) = no_operation;
	size_t missing = fuzz_byte(in);

	/* A table of pointers after its head; one or none is left out. */
	for (size_t at = offsetof(struct berth_ops, open), i = 0; at < sizeof(ops); at += sizeof(op), i++)
		if (i != missing)
			memcpy((char *)&ops + at, &op, sizeof(op));
	return claimed(in, &ops, sizeof(ops), sizeof(uint32_t));
}

static int32_t init(const struct berth_host *host)
{
	(void)host;
	return 0;
}

static const struct berth_provider *descriptor(struct fuzz_input *in)
{
	uint8_t odd = fuzz_byte(in);
	struct berth_provider desc = {.init = odd & 16 ? NULL : init};

	desc.magic = BERTH_PROVIDER_MAGIC ^ (odd & 1 ? (uint32_t)fuzz_number(in, 4) : 0);
	desc.abi_major = (uint16_t)(BERTH_ABI_MAJOR + (odd & 2 ? fuzz_byte(in) : 0));
	desc.abi_minor = (uint16_t)(odd & 4 ? fuzz_byte(in) : 0);
	desc.flags = odd & 8 ? fuzz_byte(in) : 0;
	desc.name = text(in, 64, "good");
	desc.version = text(in, 129, "1.0");
	desc.build_id = text(in, 129, "abc");
	desc.capabilities = fuzz_number(in, 2);
	desc.ops = odd & 32 ? NULL : operations(in);
	desc.options = odd & 64 ? NULL : options(in);
	desc.metrics = odd & 128 ? NULL : metrics(in);
	if (fuzz_byte(in) == 1)
		desc.reserved[fuzz_byte(in) % 3] = &desc;
	return claimed(in, &desc, sizeof(desc), offsetof(struct berth_provider, flags));
}

static void check_accepted(const struct plugin *plugin)
{
	size_t count = 0;

	FUZZ_CHECK(plugin->magic == PLUGIN_MAGIC && strcmp(plugin->name, "good") == 0 && plugin->desc.init == init);
	FUZZ_CHECK(plugin->ops.open && plugin->ops.release && plugin->ops.execute);
	for (const struct option_row *row = plugin->options; row->key; row++, count++) {
		FUZZ_CHECK(strlen(row->key) < 64 && row->doc);
		FUZZ_PLANTED(row->key, strlen(row->key));
		for (const struct option_row *other = plugin->options; other != row; other++)
			FUZZ_CHECK(strcmp(row->key, other->key) != 0);
	}
	FUZZ_CHECK(count <= 256 && plugin->metric_count <= 256);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct plugin plugin = {0};
	struct err err = {0};

	if (loader_validate(descriptor(&in), "/x/good.so", "good", &plugin, &err) == 0)
		check_accepted(&plugin);
	else
		FUZZ_CHECK(err.code < 0 && strstr(err.msg, "/x/good.so") && !plugin.options);
	free(plugin.options);
	drop_blocks();
	return 0;
}
