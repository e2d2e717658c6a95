/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One option-table type for the host and for plugins. Adding an option is adding a row: parsing, checking, the dump of
 * `berthd -t` and the man page all read the table.
 */
#ifndef CONF_OPTION_H
#define CONF_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/buf.h"
#include "core/err.h"

enum option_type {
	OPTION_STRING,
	OPTION_INTEGER,
	OPTION_BOOLEAN,
	OPTION_DURATION, /* text with a unit -> ms */
	OPTION_SIZE,     /* text with a unit -> bytes */
	OPTION_FLOAT,
	OPTION_WORD,     /* a string out of `words` */
};

/* Host rows point into struct conf; plugin rows are built from struct berth_option and have off = SIZE_MAX. */
struct option_row {
	const char *key; /* "lease.active": the dots are groups in the file; NULL ends the table */
	enum option_type type;
	size_t off;               /* of the value in struct conf: char *, int64_t, bool (as bool), double */
	const char *default_text; /* as an operator would write it; NULL = none */
	const char *env;          /* environment name(s) of the reference that override, separated by '|'; or NULL */
	int64_t min, max;         /* of integers, ms, bytes; not checked when max <= min */
	const char *words;        /* OPTION_WORD: "a|b|c" */
	unsigned flags;
	const char *doc; /* one sentence */
};
#define OPTION_REQUIRED 1u
#define OPTION_SECRET 2u  /* masked in the dump; a source ("file:…", "env:…"), never the secret itself */
#define OPTION_LIVE 8u    /* a reload applies it; every other one needs a restart */
#define OPTION_SECONDS 4u /* its environment name holds whole seconds, as the reference has it */

/* One checked value. */
struct option_value {
	bool set;
	int64_t integer;
	double number;
	char *string; /* malloc'ed */
};

/* Checks text (as written in a file or the environment) against the row. ERR_CONFIG: "<where>: <key>: <why>". */
int option_parse(const struct option_row *row, const char *text, const char *where, struct option_value *ret,
		 struct err *err);
/* "15m", "1GiB", "true", quoted strings; secrets as "(secret)". */
void option_format(const struct option_row *row, const struct option_value *value, struct buf *buf);
/* "an integer", "a text in quotes": how a value of the type is written. */
const char *option_expected(enum option_type type);
/* Of a plugin's option: whether what the file has without quotes may stand for it. A number in quotes may, as former
 * versions printed it so. */
int option_check_kind(const struct option_row *row, enum option_type kind, const char *where, struct err *err);
/* The key of the table that `key` is a slip of, or whose last part it is ("idle" for "lease.idle"); NULL: none. */
const char *option_near(const struct option_row *rows, const char *key);
int option_parse_size(const char *text, int64_t *ret_bytes); /* "64KiB", "1GiB", "10MB", "512B" */

#endif
