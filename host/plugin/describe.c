/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plugin's descriptor as JSON. Main thread. The plugin is loaded by the loader like any other; what it declares has been checked
 * there, and nothing of it is opened.
 */
#include "plugin/describe.h"

#include <libgen.h>

#include "core/json.h"
#include "core/log.h"
#include "plugin/private.h"

static const char *const capability_words[] = {"threadsafe", "reattach",    "signal",	   "bulk",	     "changes",
					       "renew",	     "assign_tags", "native_pool", "idempotent_exec"};
static const char *const option_words[] = {
    [OPTION_STRING] = "string",	    [OPTION_INTEGER] = "integer", [OPTION_BOOLEAN] = "boolean",
    [OPTION_DURATION] = "duration", [OPTION_SIZE] = "size",	  [OPTION_FLOAT] = "float",
};
static const char *const metric_words[] = {
    [BERTH_METRIC_COUNTER] = "counter",
    [BERTH_METRIC_HISTOGRAM] = "histogram",
};

/* Of BERTH_CAP_…; NULL past the last. */
static const char *capability_word(unsigned bit)
{
	return bit < sizeof(capability_words) / sizeof(*capability_words) ? capability_words[bit] : NULL;
}

static void put_text(struct buf *out, const char *name, const char *text)
{
	buf_printf(out, "\"%s\":", name);
	if (text)
		json_put_string(out, text, strlen(text));
	else
		buf_puts(out, "null");
}

void plugin_put_capabilities(struct buf *out, uint64_t capabilities)
{
	const char *comma = "";

	buf_puts(out, ",\"capabilities\":[");
	for (unsigned i = 0; capability_word(i); i++) {
		if (!(capabilities & (UINT64_C(1) << i)))
			continue;
		buf_printf(out, "%s\"%s\"", comma, capability_word(i));
		comma = ",";
	}
	buf_puts(out, "]");
}

static void put_operations(struct buf *out, const struct plugin *plugin)
{
	const char *comma = "";

	buf_puts(out, ",\"operations\":[");
	for (unsigned kind = OP_OPEN; kind <= OP_RELEASE; kind++) {
		void (*slot)(void);

		memcpy(&slot, (const char *)&plugin->ops + op_table[kind].off, sizeof(slot));
		if (!slot)
			continue;
		buf_printf(out, "%s\"%s\"", comma, op_table[kind].name);
		comma = ",";
	}
	buf_puts(out, "]");
}

static void put_options(struct buf *out, const struct plugin *plugin)
{
	buf_puts(out, ",\"options\":[");
	for (const struct option_row *row = plugin->options; row->key; row++) {
		buf_puts(out, row == plugin->options ? "{" : ",{");
		put_text(out, "key", row->key);
		buf_printf(out, ",\"type\":\"%s\",\"required\":%s,\"secret\":%s,", option_words[row->type],
			   row->flags & OPTION_REQUIRED ? "true" : "false",
			   row->flags & OPTION_SECRET ? "true" : "false");
		put_text(out, "default", row->default_text);
		buf_puts(out, ",");
		put_text(out, "doc", row->doc);
		buf_puts(out, "}");
	}
	buf_puts(out, "]");
}

static void put_metrics(struct buf *out, const struct plugin *plugin)
{
	const struct berth_metric *const *rows = plugin->desc.metrics;

	buf_puts(out, ",\"metrics\":[");
	for (size_t i = 0; i < plugin->metric_count; i++) {
		buf_printf(out, "%s{\"type\":\"%s\",", i ? "," : "", metric_words[rows[i]->type]);
		put_text(out, "name", rows[i]->name);
		buf_puts(out, ",");
		put_text(out, "unit", rows[i]->unit);
		buf_puts(out, ",");
		put_text(out, "doc", rows[i]->doc);
		buf_puts(out, "}");
	}
	buf_puts(out, "]");
}

static void put_plugin(struct buf *out, const struct plugin *plugin)
{
	buf_puts(out, "{");
	put_text(out, "name", plugin->name);
	buf_puts(out, ",");
	put_text(out, "version", plugin->desc.version);
	buf_puts(out, ",");
	put_text(out, "build_id", plugin->desc.build_id);
	buf_printf(out, ",\"abi\":\"%u.%u\",", plugin->desc.abi_major, plugin->desc.abi_minor);
	put_text(out, "path", plugin->path);
	plugin_put_capabilities(out, plugin->desc.capabilities);
	put_operations(out, plugin);
	put_options(out, plugin);
	put_metrics(out, plugin);
	buf_puts(out, "}\n");
}

/* "dir/name.so" as the loader wants it. */
static int split(const char *file, char *dir, char *name, size_t size, struct err *err)
{
	char copy[4096];
	size_t len;

	if (snprintf(copy, sizeof(copy), "%s", file) >= (int)sizeof(copy))
		return err_set(err, ERR_CONFIG, "plugin %.60s…: the path is too long", file);
	snprintf(name, size, "%s", basename(copy));
	snprintf(copy, sizeof(copy), "%s", file);
	snprintf(dir, size, "%s", dirname(copy));
	len = strlen(name);
	if (len < 4 || strcmp(name + len - 3, ".so") != 0)
		return err_set(err, ERR_CONFIG, "plugin %s: expected a file NAME.so", file);
	name[len - 3] = '\0';
	return 0;
}

int plugin_describe(const char *file, const char *probe, struct buf *out, struct err *err)
{
	char dir[4096], name[4096];
	struct plugin *plugin = NULL;
	int rc = split(file, dir, name, sizeof(dir), err);

	log_init(LOG_ERROR, LOG_LOGFMT);
	if (rc == 0)
		rc = loader_load(dir, name, probe, &hostapi_table, &plugin, err);
	if (rc)
		return rc;
	put_plugin(out, plugin);
	loader_fini(plugin);
	loader_free(plugin);
	return out->error ? err_set(err, out->error, "plugin %s: its description is too long", file) : 0;
}
