/* SPDX-License-Identifier: Apache-2.0 */
/* G1: every field of a descriptor, wrong in every way that can be told. Also random bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "core/secret.h"
#include "plugin/loader.h"

static int32_t any_init(const struct berth_host *host)
{
	(void)host;
	return BERTH_OK;
}

/* Only whether a slot is NULL matters here. */
static struct berth_ops ops;
static struct berth_option option, second;
static struct berth_metric metric;
static const struct berth_option *options[300];
static const struct berth_metric *metrics[300];
static struct berth_provider provider;

static void reset(void)
{
	static const char text[] = "x";
	char *slots = (char *)&ops;
	const char *any = text;

	memset(&ops, 0, sizeof(ops));
	for (size_t off = offsetof(struct berth_ops, open); off < sizeof(ops); off += sizeof(any))
		memcpy(slots + off, &any, sizeof(any));
	ops.struct_size = sizeof(ops);
	option = (struct berth_option){sizeof(option), BERTH_OPTION_DURATION, "wait", "5s", 0, 0, "How long."};
	second = (struct berth_option){sizeof(option), BERTH_OPTION_STRING, "api_key", NULL, 1, 1, "A key."};
	metric = (struct berth_metric){sizeof(metric), BERTH_METRIC_COUNTER, "calls", "", "Calls."};
	memset(options, 0, sizeof(options));
	memset(metrics, 0, sizeof(metrics));
	options[0] = &option;
	options[1] = &second;
	metrics[0] = &metric;
	provider = (struct berth_provider){
	    .magic = BERTH_PROVIDER_MAGIC,
	    .abi_major = BERTH_ABI_MAJOR,
	    .abi_minor = 0,
	    .struct_size = sizeof(provider),
	    .name = "test",
	    .version = "1",
	    .build_id = "b",
	    .capabilities = BERTH_CAP_ALL,
	    .init = any_init,
	    .ops = &ops,
	    .options = options,
	    .metrics = metrics,
	};
}

static void accept(struct plugin *ret)
{
	struct err err = {0};

	memset(ret, 0, sizeof(*ret));
	if (loader_validate(&provider, "/p/test.so", "test", ret, &err))
		fail_msg("%s", err.msg);
}

static void refuse(const char *part)
{
	struct plugin plugin = {0};
	struct err err = {0};

	assert_int_equal(loader_validate(&provider, "/p/test.so", "test", &plugin, &err), ERR_CONFIG);
	assert_null(plugin.options);
	if (strncmp(err.msg, "plugin /p/test.so: ", 19) || !strstr(err.msg, part))
		fail_msg("\"%s\" is not in: %s", part, err.msg);
	reset();
}

static void whole(void **state)
{
	struct plugin plugin;

	(void)state;
	reset();
	accept(&plugin);
	assert_string_equal(plugin.name, "test");
	assert_string_equal(plugin.options[0].key, "wait");
	assert_int_equal(plugin.options[0].type, OPTION_DURATION);
	assert_int_equal(plugin.options[1].flags, OPTION_REQUIRED | OPTION_SECRET);
	assert_null(plugin.options[2].key);
	assert_int_equal(plugin.metric_count, 1);
	free(plugin.options);
	provider.options = NULL;
	provider.metrics = NULL;
	accept(&plugin);
	assert_null(plugin.options[0].key);
	free(plugin.options);
}

static void g1_numbers(void **state)
{
	struct plugin plugin = {0};
	struct err err = {0};

	(void)state;
	reset();
	assert_int_equal(loader_validate(NULL, "/p/test.so", "test", &plugin, &err), ERR_CONFIG);
	provider.magic = 0;
	refuse("expected the magic word 42525448, got 00000000");
	provider.abi_major = 0;
	refuse("expected ABI 1.x, got 0.0");
	provider.abi_major = 2;
	refuse("expected ABI 1.x, got 2.0");
	provider.abi_minor = BERTH_ABI_MINOR + 1;
	refuse("or lower, needs 1.1");
	provider.struct_size = sizeof(provider) - 1;
	refuse("expected a descriptor of at least");
	provider.struct_size = UINT32_MAX;
	refuse("struct_size 4294967295");
	provider.flags = 1;
	refuse("expected flags 0, got 0x1");
	provider.reserved[2] = &provider;
	refuse("expected reserved[2] NULL");
}

static void g1_names(void **state)
{
	static char endless[200];

	(void)state;
	reset();
	memset(endless, 'x', sizeof(endless) - 1);
	provider.name = NULL;
	refuse("expected the name \"test\"");
	provider.name = "";
	refuse("expected the name \"test\"");
	provider.name = endless;
	refuse("expected the name \"test\"");
	provider.name = "tes\n";
	refuse("expected the name \"test\"");
	provider.name = "other";
	refuse("got \"other\"");
	provider.version = NULL;
	refuse("version");
	provider.version = endless;
	refuse("version");
	provider.build_id = "";
	refuse("build_id");
	provider.init = NULL;
	refuse("init");
	provider.ops = NULL;
	refuse("operation table");
}

/* Every slot in turn: needed always, or by its capability only. */
static void g1_operations(void **state)
{
	static const struct {
		const char *name;
		size_t off;
		uint64_t capability;
	} slots[] = {
#define SLOT(field, capability) {#field, offsetof(struct berth_ops, field), capability}
	    SLOT(open, 0),
	    SLOT(close, 0),
	    SLOT(find, 0),
	    SLOT(list, 0),
	    SLOT(provision, 0),
	    SLOT(await_ready, 0),
	    SLOT(inspect, 0),
	    SLOT(execute, 0),
	    SLOT(file_read, 0),
	    SLOT(file_write, 0),
	    SLOT(file_stat, 0),
	    SLOT(file_list, 0),
	    SLOT(file_remove, 0),
	    SLOT(file_move, 0),
	    SLOT(release, 0),
	    SLOT(reattach, BERTH_CAP_REATTACH),
	    SLOT(forget, BERTH_CAP_REATTACH),
	    SLOT(send_signal, BERTH_CAP_SIGNAL),
	    SLOT(import_tar, BERTH_CAP_BULK),
	    SLOT(export_tar, BERTH_CAP_BULK),
	    SLOT(mark, BERTH_CAP_CHANGES),
	    SLOT(changes, BERTH_CAP_CHANGES),
	    SLOT(renew, BERTH_CAP_RENEW),
	    SLOT(assign, BERTH_CAP_ASSIGN_TAGS),
	};
	struct plugin plugin;

	(void)state;
	reset();
	for (size_t i = 0; i < sizeof(slots) / sizeof(*slots); i++) {
		memset((char *)&ops + slots[i].off, 0, sizeof(void *));
		refuse(slots[i].name);
		memset((char *)&ops + slots[i].off, 0, sizeof(void *));
		provider.capabilities &= ~slots[i].capability;
		if (!slots[i].capability) {
			refuse("expected the operation");
			continue;
		}
		accept(&plugin);
		free(plugin.options);
		reset();
	}
	memset((char *)&ops + offsetof(struct berth_ops, check), 0, sizeof(void *));
	accept(&plugin);
	assert_null(plugin.ops.check);
	free(plugin.options);
	reset();
	provider.capabilities = BERTH_CAP_ALL + 1; /* of a later minor */
	accept(&plugin);
	assert_int_equal(plugin.desc.capabilities, 0);
	free(plugin.options);
	reset();
	ops.struct_size = 4;
	refuse("struct_size 4");
	ops.struct_size = UINT32_MAX;
	refuse("struct_size 4294967295");
}

/* The smaller size rules: what lies past it is not read, and absent. */
static void g1_short_operations(void **state)
{
	(void)state;
	reset();
	ops.struct_size = offsetof(struct berth_ops, release);
	refuse("expected the operation release");
}

static void g1_options(void **state)
{
	static const struct {
		struct berth_option option;
		const char *part;
	} cases[] = {
#define OPT(size, type, key, dflt, required, secret, doc) {size, type, key, dflt, required, secret, doc}
	    {OPT(8, 1, "a", NULL, 0, 0, "D."), "struct_size 8"},
	    {OPT(sizeof(option), 0, "a", NULL, 0, 0, "D."), "got 0"},
	    {OPT(sizeof(option), 7, "a", NULL, 0, 0, "D."), "got 7"},
	    {OPT(sizeof(option), 1, NULL, NULL, 0, 0, "D."), "got NULL"},
	    {OPT(sizeof(option), 1, "", NULL, 0, 0, "D."), "key of [a-z0-9_]"},
	    {OPT(sizeof(option), 1, "A", NULL, 0, 0, "D."), "key of [a-z0-9_]"},
	    {OPT(sizeof(option), 1, "a.b", NULL, 0, 0, "D."), "key of [a-z0-9_]"},
	    {OPT(sizeof(option), 1, "a", NULL, 0, 0, NULL), "sentence in doc"},
	    {OPT(sizeof(option), 1, "a", NULL, 2, 0, "D."), "required and secret 0 or 1"},
	    {OPT(sizeof(option), 2, "a", NULL, 0, 1, "D."), "secret of type STRING"},
	    {OPT(sizeof(option), 1, "a", "env:X", 0, 1, "D."), "secret without default"},
	    {OPT(sizeof(option), 2, "a", "many", 0, 0, "D."), "default that does not fit"},
	    {OPT(sizeof(option), 3, "a", "maybe", 0, 0, "D."), "default that does not fit"},
	    {OPT(sizeof(option), 4, "a", "5", 0, 0, "D."), "default that does not fit"},
	    {OPT(sizeof(option), 5, "a", "5", 0, 0, "D."), "default that does not fit"},
	    {OPT(sizeof(option), 6, "a", "nan", 0, 0, "D."), "default that does not fit"},
	    {OPT(sizeof(option), 1, "api_key", NULL, 0, 0, "D."), "declared twice"},
	};

	(void)state;
	reset();
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		option = cases[i].option;
		refuse(cases[i].part);
	}
	for (size_t i = 0; i < 299; i++)
		options[i] = &option;
	refuse("at most 256 options");
}

static void g1_metrics(void **state)
{
	(void)state;
	reset();
	metric.name = "Calls";
	refuse("metric 0");
	metric.type = 3;
	refuse("type of 1 to 2");
	metric.doc = NULL;
	refuse("sentence in doc");
	metric.struct_size = 0;
	refuse("struct_size 0");
	metrics[1] = &metric;
	refuse("declared twice");
}

/* Random numbers in every field that is not a pointer: never a crash, and a sentence whenever refused. */
static void random_numbers(void **state)
{
	(void)state;
	for (int i = 0; i < 20000; i++) {
		struct plugin plugin = {0};
		struct err err = {0};
		uint32_t bits[4];

		reset();
		secret_random(bits, sizeof(bits));
		provider.abi_minor = (uint16_t)(bits[0] & 1);
		provider.struct_size = bits[0] & 2 ? bits[1] : provider.struct_size;
		provider.capabilities = bits[2] & 0x3ff;
		ops.struct_size = bits[0] & 4 ? bits[3] % (2 * sizeof(ops)) : ops.struct_size;
		option.type = bits[1] & 15;
		option.struct_size = bits[0] & 8 ? bits[2] : option.struct_size;
		if (loader_validate(&provider, "/p/test.so", "test", &plugin, &err))
			assert_true(err.msg[0]);
		free(plugin.options);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(whole),         cmocka_unit_test(g1_numbers),          cmocka_unit_test(g1_names),
	    cmocka_unit_test(g1_operations), cmocka_unit_test(g1_short_operations), cmocka_unit_test(g1_options),
	    cmocka_unit_test(g1_metrics),    cmocka_unit_test(random_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
