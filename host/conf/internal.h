/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of conf/ share; nothing outside includes it. */
#ifndef CONF_INTERNAL_H
#define CONF_INTERNAL_H

#include <libconfig.h>

#include "conf/conf.h"

#define CONF_TARGETS_MAX 256
#define CONF_TOKENS_MAX 1024
#define CONF_SETTINGS_MAX 256
#define CONF_WHERE_MAX 512

/* What was refused so far (report.c). NULL: whoever reads stops at the first refusal. */
struct conf_report;
struct conf_report *conf_report_new(conf_refusal_fn *fn, void *arg); /* fn NULL: nobody is told */
void conf_report_free(struct conf_report *report);
/* A refusal that is told, so that reading goes on: 0. Anything else, and everything without a report: rc. */
int conf_reported(struct conf_report *report, int rc, struct err *err);
/* As before, of a value of that key: what a check says of it or by it later follows from this. */
int conf_reported_key(struct conf_report *report, int rc, const char *file, const char *key, struct err *err);
/* The checks: one that only follows is passed over. */
int conf_reported_check(struct conf_report *report, int rc, struct err *err);
/* The first refusal into err; 0 when there was none. */
int conf_report_end(const struct conf_report *report, struct err *err);

/* One file being read. */
struct conf_source {
	config_t config;
	char *path;
	char *dir; /* of path; includes are beneath it */
	struct conf_report *report;
};

/* Reads and parses; what libconfig would let through (integers cut to 32 bits, absolute includes, NUL) is refused
 * first. */
int conf_source_open(struct conf_source *source, const char *path, struct err *err);
void conf_source_close(struct conf_source *source);
void conf_where(const struct conf_source *source, const config_setting_t *setting, char ret[CONF_WHERE_MAX]);

/* Lexical checks of one file and of what it includes. */
int conf_scan(const char *path, const char *dir, struct err *err);

/* A setting that is no row: true when fn took it; *ret_rc is then its result. */
typedef bool conf_other_fn(const char *path, config_setting_t *setting, void *arg, int *ret_rc, struct err *err);
int conf_apply_defaults(const struct option_row *rows, void *base, struct err *err);
int conf_apply_group(const struct conf_source *source, const struct option_row *rows, config_setting_t *group,
		     void *base, conf_other_fn *other, void *arg, struct err *err);
/* Checks and stores one value, and notes where it is from; rows NULL: notes nothing, it is a default. */
int conf_store(const struct option_row *rows, const struct option_row *row, const char *text, const char *where,
	       void *base, struct err *err);
/* For what is stored by hand. */
int conf_note(const struct option_row *rows, const char *key, const char *where, void *base, struct err *err);
void conf_free_origins(const struct option_row *rows, void *base);
/* "FILE:LINE" or "environment NAME"; NULL for a default. */
const char *conf_origin(const struct option_row *rows, const char *key, const void *base);
/* The same for a sentence: the file where there is no more. */
const char *conf_at(const struct conf *conf, const char *key);
const char *conf_target_at(const struct conf_target *target, const char *key);
void conf_value(const struct option_row *row, const void *base, struct option_value *ret); /* the string is borrowed */
int conf_check_required(struct conf_report *report, const struct option_row *rows, const void *base, const char *where,
			struct err *err);
/* The scalar as text ("true", "15", "15m"); malloc'ed; NULL for groups, lists and arrays. */
char *conf_scalar_text(const config_setting_t *setting);

int conf_read_tokens(const struct conf_source *source, config_setting_t *list, struct conf *conf, struct err *err);
/* Takes the secret. */
int conf_add_token(struct conf *conf, const char *name, const char *where, struct secret *secret, unsigned scopes,
		   struct err *err);
int conf_read_target(const struct conf_source *source, config_setting_t *group, struct conf *conf, struct err *err);
struct conf_target *conf_add_target(struct conf *conf, const char *file, struct err *err);

int conf_apply_environment(struct conf *conf, struct err *err);
/* redis.c: what REDIS_URL (or NULL) means, and the password. */
int conf_apply_redis(struct conf *conf, const char *env_url, struct err *err);
int conf_check_redis(const struct conf *conf, struct err *err);
int conf_check_roles(const struct conf *conf, struct err *err); /* roles.c */
int conf_check(const struct conf *conf, bool dev, struct err *err);
int conf_check_target(const struct conf_target *target, struct err *err);

#endif
