/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a new configuration changes, by the same tables that read it. Pure; the main thread on a reload. Never tells
 * values: some are secrets' places.
 */
#include "conf/internal.h"

static bool same_text(const char *a, const char *b)
{
	return strcmp(a ? a : "", b ? b : "") == 0;
}

static bool same_value(const struct option_row *row, const void *a, const void *b)
{
	struct option_value before, now;

	conf_value(row, a, &before);
	conf_value(row, b, &now);
	if (row->type == OPTION_STRING || row->type == OPTION_WORD)
		return same_text(before.string, now.string);
	if (row->type == OPTION_FLOAT)
		return !(before.number < now.number) && !(before.number > now.number);
	return before.integer == now.integer;
}

static bool same_target(const struct conf_target *a, const struct conf_target *b)
{
	for (const struct option_row *row = conf_target_options; row->key; row++)
		if (!same_value(row, a, b))
			return false;
	if (a->setting_count != b->setting_count)
		return false;
	for (size_t i = 0; i < a->setting_count; i++)
		if (!same_text(a->settings[i].key, b->settings[i].key) ||
		    !same_text(a->settings[i].value, b->settings[i].value))
			return false;
	return true;
}

static bool same_targets(const struct conf *a, const struct conf *b)
{
	if (a->target_count != b->target_count)
		return false;
	for (size_t i = 0; i < a->target_count; i++)
		if (!same_target(&a->targets[i], &b->targets[i]))
			return false;
	return true;
}

void conf_diff(const struct conf *before, const struct conf *now, void (*fn)(const char *key, bool live, void *arg),
	       void *arg)
{
	for (const struct option_row *row = conf_options; row->key; row++)
		if (!same_value(row, before, now))
			fn(row->key, row->flags & OPTION_LIVE, arg);
	if (!same_targets(before, now))
		fn("targets", false, arg);
}
