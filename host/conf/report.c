/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a configuration is refused for, all of it in one reading: each refusal is told as it is met, and reading goes
 * on. What only follows from another one (a default that took the place of a refused value, and does not go with the
 * rest) is passed over. Main thread at start.
 */
#include "conf/internal.h"

#define REFUSED_MAX 256 /* of those that others may follow from: more of them are told, and so is what follows */

struct conf_report {
	conf_refusal_fn *fn;
	void *arg;
	struct err first;
	size_t key_count;
	struct refused {
		char *file, *key;
	} keys[REFUSED_MAX];
};

struct conf_report *conf_report_new(conf_refusal_fn *fn, void *arg)
{
	struct conf_report *report = calloc(1, sizeof(*report));

	if (report)
		*report = (struct conf_report){.fn = fn, .arg = arg};
	return report;
}

void conf_report_free(struct conf_report *report)
{
	for (size_t i = 0; report && i < report->key_count; i++) {
		free(report->keys[i].file);
		free(report->keys[i].key);
	}
	free(report);
}

int conf_reported(struct conf_report *report, int rc, struct err *err)
{
	if (!rc || rc == ERR_NOMEM || !report)
		return rc;
	if (report->fn)
		report->fn(err->msg, report->arg);
	if (!report->first.code)
		report->first = *err;
	err_clear(err);
	return 0;
}

int conf_reported_key(struct conf_report *report, int rc, const char *file, const char *key, struct err *err)
{
	struct refused refused;

	if (rc && report && report->key_count < REFUSED_MAX) {
		refused = (struct refused){.file = strdup(file), .key = strdup(key)};
		if (!refused.file || !refused.key) {
			free(refused.file);
			free(refused.key);
			return err_set(err, ERR_NOMEM, "memory is out");
		}
		report->keys[report->key_count++] = refused;
	}
	return conf_reported(report, rc, err);
}

/* Says the sentence something of that key? "FILE:LINE: key: …", or anywhere, of a key that no word is mistaken for. */
static bool is_about(const struct refused *refused, const char *sentence)
{
	size_t len = strlen(refused->key);

	if (strchr(refused->key, '.'))
		return strstr(sentence, refused->key);
	if (!strstr(sentence, refused->file))
		return false;
	for (const char *at = strstr(sentence, refused->key); at; at = strstr(at + 1, refused->key))
		if (at - sentence > 2 && !strncmp(at - 2, ": ", 2) && at[len] == ':')
			return true;
	return false;
}

int conf_reported_check(struct conf_report *report, int rc, struct err *err)
{
	for (size_t i = 0; rc && report && i < report->key_count; i++) {
		if (!is_about(&report->keys[i], err->msg))
			continue;
		err_clear(err);
		return 0;
	}
	return conf_reported(report, rc, err);
}

int conf_report_end(const struct conf_report *report, struct err *err)
{
	if (report->first.code)
		*err = report->first;
	return report->first.code;
}
