/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks of a descriptor, as found in memory. Pure: reads what the descriptor points to, calls nothing in it.
 * Copies the smaller of the two sizes of each struct and zeroes the rest. Strings are read only up to their limits.
 */
#include "plugin/loader.h"

#include <stdarg.h>

#include "core/ident.h"

#define NAME_LEN_MAX 63
#define KEY_LEN_MAX 63
#define TEXT_LEN_MAX 128
#define DOC_LEN_MAX 1024
#define OPTIONS_MAX 256
#define METRICS_MAX 256
#define SIZE_MAX_SANE 65536u
/* Up to the last field of 1.0: what is appended later an older plugin does not have. */
#define END_OF(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))
#define PROVIDER_SIZE_1_0 END_OF(struct berth_provider, reserved)
#define OPS_SIZE_LEAST offsetof(struct berth_ops, open)
#define OPTION_SIZE_1_0 END_OF(struct berth_option, doc)
#define METRIC_SIZE_1_0 END_OF(struct berth_metric, doc)

struct check {
	const char *path;
	const char *name;
	struct err *err;
};

static int refuse(const struct check *check, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int refuse(const struct check *check, const char *fmt, ...)
{
	char text[192];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return err_set(check->err, ERR_CONFIG, "plugin %s: %s", check->path, text);
}

static int check_numbers(const struct check *check, const struct berth_provider *found)
{
	if (found->magic != BERTH_PROVIDER_MAGIC)
		return refuse(check, "expected the magic word %08x, got %08x", BERTH_PROVIDER_MAGIC, found->magic);
	if (found->abi_major != BERTH_ABI_MAJOR)
		return refuse(check, "expected ABI %d.x, got %u.%u", BERTH_ABI_MAJOR, found->abi_major,
			      found->abi_minor);
	if (found->abi_minor > BERTH_ABI_MINOR)
		return refuse(check, "expected ABI %d.%d or lower, needs %u.%u", BERTH_ABI_MAJOR, BERTH_ABI_MINOR,
			      found->abi_major, found->abi_minor);
	if (found->struct_size < PROVIDER_SIZE_1_0 || found->struct_size > SIZE_MAX_SANE)
		return refuse(check, "expected a descriptor of at least %zu bytes, got struct_size %u",
			      PROVIDER_SIZE_1_0, found->struct_size);
	if (found->flags)
		return refuse(check, "expected flags 0, got %#x", found->flags);
	for (size_t i = 0; i < sizeof(found->reserved) / sizeof(*found->reserved); i++)
		if (found->reserved[i])
			return refuse(check, "expected reserved[%zu] NULL, got a pointer", i);
	return 0;
}

/* NUL-terminated within max, printable. */
static bool is_text(const char *text, size_t max)
{
	size_t len = text ? strnlen(text, max + 1) : 0;

	if (!len || len > max || !ident_utf8_valid(text, len))
		return false;
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			return false;
	return true;
}

static bool is_key(const char *text, size_t max)
{
	size_t len = text ? strnlen(text, max + 1) : 0;

	return len > 0 && len <= max && text[0] >= 'a' && text[0] <= 'z' &&
	       strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_") == len;
}

static int check_names(const struct check *check, const struct berth_provider *desc)
{
	if (!is_text(desc->name, NAME_LEN_MAX))
		return refuse(check, "expected the name \"%s\", got none", check->name);
	if (strcmp(desc->name, check->name))
		return refuse(check, "expected the name \"%s\" as the file's, got \"%s\"", check->name, desc->name);
	if (!is_text(desc->version, TEXT_LEN_MAX))
		return refuse(check, "expected a version text of 1 to %d bytes, got none", TEXT_LEN_MAX);
	if (!is_text(desc->build_id, TEXT_LEN_MAX))
		return refuse(check, "expected a build_id text of 1 to %d bytes, got none", TEXT_LEN_MAX);
	if (!desc->init)
		return refuse(check, "expected an init function, got NULL");
	if (!desc->ops)
		return refuse(check, "expected an operation table, got NULL");
	return 0;
}

#define OP(field, capability)                                                                                          \
	{                                                                                                              \
#field, offsetof(struct berth_ops, field), capability                                                  \
	}
static const struct op_rule {
	const char *name;
	size_t off;
	uint64_t capability; /* 0: every provider has it */
} op_rules[] = {
    OP(open, 0),
    OP(close, 0),
    OP(find, 0),
    OP(list, 0),
    OP(provision, 0),
    OP(await_ready, 0),
    OP(inspect, 0),
    OP(execute, 0),
    OP(file_read, 0),
    OP(file_write, 0),
    OP(file_stat, 0),
    OP(file_list, 0),
    OP(file_remove, 0),
    OP(file_move, 0),
    OP(release, 0),
    OP(reattach, BERTH_CAP_REATTACH),
    OP(forget, BERTH_CAP_REATTACH),
    OP(send_signal, BERTH_CAP_SIGNAL),
    OP(import_tar, BERTH_CAP_BULK),
    OP(export_tar, BERTH_CAP_BULK),
    OP(mark, BERTH_CAP_CHANGES),
    OP(changes, BERTH_CAP_CHANGES),
    OP(renew, BERTH_CAP_RENEW),
    OP(assign, BERTH_CAP_ASSIGN_TAGS),
};

static const char *const capability_words[] = {
    "THREADSAFE", "REATTACH", "SIGNAL", "BULK", "CHANGES", "RENEW", "ASSIGN_TAGS", "NATIVE_POOL", "IDEMPOTENT_EXEC",
};

static bool has_op(const struct berth_ops *ops, size_t off)
{
	void (*op)(void);

	memcpy(&op, (const char *)ops + off, sizeof(op));
	return op != NULL;
}

static int check_ops(const struct check *check, const struct berth_ops *found, uint64_t capabilities,
		     struct berth_ops *ret)
{
	if (found->struct_size < OPS_SIZE_LEAST || found->struct_size > SIZE_MAX_SANE)
		return refuse(check, "expected an operation table of about %zu bytes, got struct_size %u", sizeof(*ret),
			      found->struct_size);
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, found, found->struct_size < sizeof(*ret) ? found->struct_size : sizeof(*ret));
	for (size_t i = 0; i < sizeof(op_rules) / sizeof(*op_rules); i++) {
		const struct op_rule *rule = &op_rules[i];

		if (has_op(ret, rule->off) || (rule->capability && !(capabilities & rule->capability)))
			continue;
		if (!rule->capability)
			return refuse(check, "expected the operation %s, got NULL", rule->name);
		return refuse(check, "declares the capability %s and lacks its operation %s",
			      capability_words[__builtin_ctzll(rule->capability)], rule->name);
	}
	return 0;
}

static const enum option_type option_types[] = {
    [BERTH_OPTION_STRING] = OPTION_STRING,   [BERTH_OPTION_INTEGER] = OPTION_INTEGER,
    [BERTH_OPTION_BOOLEAN] = OPTION_BOOLEAN, [BERTH_OPTION_DURATION] = OPTION_DURATION,
    [BERTH_OPTION_SIZE] = OPTION_SIZE,       [BERTH_OPTION_FLOAT] = OPTION_FLOAT,
};

static int check_option(const struct check *check, const struct berth_option *found, size_t at, struct option_row *ret)
{
	struct option_value value = {0};
	struct err why = {0};

	if (found->struct_size < OPTION_SIZE_1_0 || found->struct_size > SIZE_MAX_SANE)
		return refuse(check, "option %zu: expected at least %zu bytes, got struct_size %u", at, OPTION_SIZE_1_0,
			      found->struct_size);
	if (!is_key(found->key, KEY_LEN_MAX))
		return refuse(check, "option %zu: expected a key of [a-z0-9_], got %s", at,
			      found->key ? "another text" : "NULL");
	if (found->type < BERTH_OPTION_STRING || found->type > BERTH_OPTION_FLOAT)
		return refuse(check, "option %s: expected a type of 1 to 6, got %u", found->key, found->type);
	if (!is_text(found->doc, DOC_LEN_MAX))
		return refuse(check, "option %s: expected a sentence in doc, got none", found->key);
	if (found->required > 1 || found->secret > 1)
		return refuse(check, "option %s: expected required and secret 0 or 1", found->key);
	if (found->secret && found->type != BERTH_OPTION_STRING)
		return refuse(check, "option %s: expected a secret of type STRING, got type %u", found->key,
			      found->type);
	if (found->secret && found->default_text)
		return refuse(check, "option %s: expected a secret without default", found->key);
	if (found->default_text && strnlen(found->default_text, DOC_LEN_MAX + 1) > DOC_LEN_MAX)
		return refuse(check, "option %s: expected a default of at most %d bytes", found->key, DOC_LEN_MAX);
	*ret = (struct option_row){
	    .key = found->key,
	    .type = option_types[found->type],
	    .off = SIZE_MAX,
	    .default_text = found->default_text,
	    .flags = (found->required ? OPTION_REQUIRED : 0) | (found->secret ? OPTION_SECRET : 0),
	    .doc = found->doc,
	};
	if (!found->default_text)
		return 0;
	if (option_parse(ret, found->default_text, "default", &value, &why))
		return refuse(check, "option %s: has a default that does not fit: %s", found->key, why.msg);
	free(value.string);
	return 0;
}

static int check_options(const struct check *check, const struct berth_option *const *found, struct option_row **ret)
{
	struct option_row *rows;
	size_t count = 0;
	int rc = 0;

	while (found && count <= OPTIONS_MAX && found[count])
		count++;
	if (count > OPTIONS_MAX)
		return refuse(check, "expected at most %d options, got more", OPTIONS_MAX);
	rows = calloc(count + 1, sizeof(*rows));
	if (!rows)
		return err_set(check->err, ERR_NOMEM, "memory is out");
	for (size_t i = 0; !rc && i < count; i++) {
		rc = check_option(check, found[i], i, &rows[i]);
		for (size_t j = 0; !rc && j < i; j++)
			if (!strcmp(rows[i].key, rows[j].key))
				rc = refuse(check, "option %s: is declared twice", rows[i].key);
	}
	if (rc)
		free(rows);
	else
		*ret = rows;
	return rc;
}

static int check_metrics(const struct check *check, const struct berth_metric *const *found, size_t *ret_count)
{
	size_t count = 0;

	for (; found && found[count]; count++) {
		const struct berth_metric *metric = found[count];

		if (count == METRICS_MAX)
			return refuse(check, "expected at most %d metrics, got more", METRICS_MAX);
		if (metric->struct_size < METRIC_SIZE_1_0 || metric->struct_size > SIZE_MAX_SANE)
			return refuse(check, "metric %zu: expected at least %zu bytes, got struct_size %u", count,
				      METRIC_SIZE_1_0, metric->struct_size);
		if (!is_key(metric->name, KEY_LEN_MAX))
			return refuse(check, "metric %zu: expected a name of [a-z0-9_]", count);
		if (metric->type != BERTH_METRIC_COUNTER && metric->type != BERTH_METRIC_HISTOGRAM)
			return refuse(check, "metric %s: expected a type of 1 to 2, got %u", metric->name,
				      metric->type);
		if (!is_text(metric->doc, DOC_LEN_MAX))
			return refuse(check, "metric %s: expected a sentence in doc, got none", metric->name);
		for (size_t i = 0; i < count; i++)
			if (!strcmp(found[i]->name, metric->name))
				return refuse(check, "metric %s: is declared twice", metric->name);
	}
	*ret_count = count;
	return 0;
}

int loader_validate(const struct berth_provider *found, const char *path, const char *name, struct plugin *ret,
		    struct err *err)
{
	const struct check check = {.path = path, .name = name, .err = err};
	struct berth_provider desc = {0};
	struct option_row *options = NULL;
	struct berth_ops ops;
	size_t metrics = 0;
	int rc;

	if (!found)
		return refuse(&check, "expected a descriptor from %s, got NULL", BERTH_PROVIDER_ENTRY);
	rc = check_numbers(&check, found);
	if (rc)
		return rc;
	memcpy(&desc, found, found->struct_size < sizeof(desc) ? found->struct_size : sizeof(desc));
	desc.capabilities &= BERTH_CAP_ALL; /* what a later minor names is not used here */
	if ((rc = check_names(&check, &desc)) || (rc = check_ops(&check, desc.ops, desc.capabilities, &ops)) ||
	    (rc = check_metrics(&check, desc.metrics, &metrics)) ||
	    (rc = check_options(&check, desc.options, &options)))
		return rc;
	snprintf(ret->name, sizeof(ret->name), "%s", desc.name);
	ret->magic = PLUGIN_MAGIC;
	ret->desc = desc;
	ret->ops = ops;
	ret->options = options;
	ret->metric_count = metrics;
	return 0;
}
