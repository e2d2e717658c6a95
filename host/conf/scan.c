/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The look at a configuration file's bytes before libconfig gets it. libconfig 1.5 cuts integers to 32 bits without a
 * word, saturates long ones, reads absolute includes from the wrong place and ends a string at \x00; after parsing none
 * of this can be seen any more. Knows the tokens, not the grammar. Main thread at start; never changes anything.
 */
#include "conf/internal.h"

#include <ctype.h>
#include <errno.h>
#include <strings.h>
#include <sys/stat.h>

#include "core/map.h"

#define SCAN_FILE_MAX (1024 * 1024)
#define SCAN_INCLUDE_DEPTH 8
#define SCAN_PATH_MAX 256
#define SCAN_NEST_MAX 16

struct scan {
	const char *path;
	const char *dir;
	const char *at;
	const char *end;
	unsigned line;
	unsigned depth; /* of includes */
	/* The key being read, "execution.spool_max"; what stands in a list gets its number, "tokens[2].name". */
	char key[SCAN_PATH_MAX];
	struct frame {
		size_t base; /* length of the part of `key` that the open group or list gives */
		bool is_list;
		unsigned elements;
	} frames[SCAN_NEST_MAX]; /* frames[0] is the file itself */
	unsigned nest;
	struct map *seen;
	struct err *err;
};

static int scan_file(const char *path, const char *dir, unsigned depth, struct err *err);

static int refuse(struct scan *scan, const char *what)
{
	return err_set(scan->err, ERR_CONFIG, "%s:%u: %s%s%s", scan->path, scan->line, scan->key,
		       *scan->key ? ": " : "", what);
}

static bool starts(const struct scan *scan, const char *word)
{
	size_t len = strlen(word);

	return (size_t)(scan->end - scan->at) >= len && !memcmp(scan->at, word, len);
}

static void skip_line(struct scan *scan)
{
	while (scan->at < scan->end && *scan->at != '\n')
		scan->at++;
}

static void skip_block_comment(struct scan *scan)
{
	for (scan->at += 2; scan->at < scan->end; scan->at++) {
		if (starts(scan, "*/")) {
			scan->at += 2;
			return;
		}
		scan->line += *scan->at == '\n';
	}
}

static int skip_string(struct scan *scan)
{
	for (scan->at++; scan->at < scan->end; scan->at++) {
		if (*scan->at == '"') {
			scan->at++;
			return 0;
		}
		if (starts(scan, "\\x00"))
			return refuse(scan, "a text must not hold a NUL");
		if (*scan->at == '\\' && scan->at + 1 < scan->end)
			scan->at++;
		scan->line += *scan->at == '\n';
	}
	return refuse(scan, "a text is not closed");
}

static int check_decimal(struct scan *scan, const char *from, bool wide)
{
	char text[32];
	size_t len = (size_t)(scan->at - from);

	if (!wide)
		return len > 9 ? refuse(scan, "an integer over nine digits needs the suffix L") : 0;
	if (len >= sizeof(text))
		return refuse(scan, "an integer is outside 64 bits");
	memcpy(text, from, len);
	text[len] = '\0';
	errno = 0;
	(void)strtoll(text, NULL, 10);
	return errno ? refuse(scan, "an integer is outside 64 bits") : 0;
}

static int check_hex(struct scan *scan)
{
	const char *from;

	scan->at += 2;
	for (from = scan->at; scan->at < scan->end && isxdigit((unsigned char)*scan->at); scan->at++)
		;
	if (scan->at - from > 7 && !(scan->at < scan->end && *scan->at == 'L'))
		return refuse(scan, "an integer over seven hexadecimal digits needs the suffix L");
	if (scan->at - from > 15)
		return refuse(scan, "an integer is outside 64 bits");
	while (scan->at < scan->end && *scan->at == 'L')
		scan->at++;
	return 0;
}

static int check_number(struct scan *scan)
{
	const char *from = scan->at;
	int rc;

	if (starts(scan, "0x") || starts(scan, "0X"))
		return check_hex(scan);
	while (scan->at < scan->end && isdigit((unsigned char)*scan->at))
		scan->at++;
	if (scan->at < scan->end && (*scan->at == '.' || *scan->at == 'e' || *scan->at == 'E')) {
		do
			scan->at++;
		while (scan->at < scan->end &&
		       (isalnum((unsigned char)*scan->at) || *scan->at == '+' || *scan->at == '-'));
		return 0;
	}
	rc = check_decimal(scan, from, scan->at < scan->end && *scan->at == 'L');
	while (scan->at < scan->end && *scan->at == 'L')
		scan->at++;
	return rc;
}

static int read_name(struct scan *scan)
{
	const char *from = scan->at;
	size_t len, base = scan->frames[scan->nest].base;

	while (scan->at < scan->end &&
	       (isalnum((unsigned char)*scan->at) || *scan->at == '-' || *scan->at == '_' || *scan->at == '*'))
		scan->at++;
	len = (size_t)(scan->at - from);
	if ((len == 4 && !strncasecmp(from, "true", 4)) || (len == 5 && !strncasecmp(from, "false", 5)))
		return 0;
	scan->key[base] = '\0';
	if (base + len + 2 > sizeof(scan->key))
		return refuse(scan, "a key is too long");
	snprintf(scan->key + base, sizeof(scan->key) - base, "%s%.*s", base ? "." : "", (int)len, from);
	if (map_get(scan->seen, scan->key))
		return refuse(scan, "is set twice");
	return map_put(scan->seen, scan->key, scan) ? err_set(scan->err, ERR_NOMEM, "memory is out") : 0;
}

static int open_frame(struct scan *scan, bool is_list)
{
	struct frame *outer = &scan->frames[scan->nest];

	if (scan->nest + 1 == SCAN_NEST_MAX)
		return refuse(scan, "groups are nested too deeply");
	if (outer->is_list && outer->base + 12 < sizeof(scan->key))
		snprintf(scan->key + outer->base, sizeof(scan->key) - outer->base, "[%u]", outer->elements++);
	scan->nest++;
	scan->frames[scan->nest] = (struct frame){.base = strlen(scan->key), .is_list = is_list};
	return 0;
}

static void close_frame(struct scan *scan)
{
	if (!scan->nest)
		return; /* libconfig names the place */
	scan->key[scan->frames[scan->nest].base] = '\0';
	scan->nest--;
}

static int read_include(struct scan *scan)
{
	char path[4096];
	const char *from;
	int len;

	scan->at += strlen("@include");
	while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\t'))
		scan->at++;
	if (scan->at == scan->end || *scan->at != '"')
		return refuse(scan, "@include needs a file name in quotes");
	for (from = ++scan->at; scan->at < scan->end && *scan->at != '"' && *scan->at != '\n';)
		scan->at++;
	if (*from == '/')
		return refuse(scan, "@include takes a path relative to the file's folder, not an absolute one");
	len = snprintf(path, sizeof(path), "%s/%.*s", scan->dir, (int)(scan->at - from), from);
	if (len < 0 || (size_t)len >= sizeof(path))
		return refuse(scan, "@include has a path that is too long");
	if (scan->depth + 1 > SCAN_INCLUDE_DEPTH)
		return refuse(scan, "files include each other too deeply");
	skip_line(scan);
	return scan_file(path, scan->dir, scan->depth + 1, scan->err);
}

static int scan_token(struct scan *scan)
{
	char c = *scan->at;

	if (c == '#' || starts(scan, "//"))
		skip_line(scan);
	else if (starts(scan, "/*"))
		skip_block_comment(scan);
	else if (c == '"')
		return skip_string(scan);
	else if (starts(scan, "@include"))
		return read_include(scan);
	else if (isdigit((unsigned char)c))
		return check_number(scan);
	else if (isalpha((unsigned char)c) || c == '*')
		return read_name(scan);
	else {
		scan->at++;
		if (c == '\n')
			scan->line++;
		else if (c == '{')
			return open_frame(scan, false);
		else if (c == '(' || c == '[')
			return open_frame(scan, true);
		else if (c == '}' || c == ')' || c == ']')
			close_frame(scan);
		else if (c == '\0')
			return refuse(scan, "the file holds a NUL");
	}
	return 0;
}

static int scan_text(const char *path, const char *dir, unsigned depth, const char *text, size_t len, struct err *err)
{
	struct scan scan = {
	    .path = path, .dir = dir, .at = text, .end = text + len, .line = 1, .depth = depth, .err = err};
	int rc = 0;

	scan.seen = map_new();
	if (!scan.seen)
		return err_set(err, ERR_NOMEM, "memory is out");
	while (!rc && scan.at < scan.end)
		rc = scan_token(&scan);
	map_free(scan.seen);
	return rc;
}

static int read_all(FILE *file, struct buf *buf)
{
	char chunk[4096];
	size_t len;

	while ((len = fread(chunk, 1, sizeof(chunk), file)) > 0)
		if (buf_append(buf, chunk, len))
			return buf->error;
	return ferror(file) ? ERR_IO : 0;
}

static int scan_file(const char *path, const char *dir, unsigned depth, struct err *err)
{
	struct buf buf;
	struct stat st;
	FILE *file = fopen(path, "re");
	int rc;

	if (!file)
		return err_set(err, ERR_CONFIG, "%s: cannot be opened: %s", path, strerror(errno));
	buf_init(&buf, SCAN_FILE_MAX);
	if (fstat(fileno(file), &st) || !S_ISREG(st.st_mode)) {
		rc = err_set(err, ERR_CONFIG, "%s: is not a regular file", path);
		goto out;
	}
	rc = read_all(file, &buf);
	if (rc)
		rc = err_set(err, ERR_CONFIG, "%s: %s", path, rc == ERR_IO ? "cannot be read" : "is larger than 1 MiB");
	else
		rc = scan_text(path, dir, depth, buf.ptr ? buf.ptr : "", buf.len, err);
out:
	buf_fini(&buf);
	fclose(file);
	return rc;
}

int conf_scan(const char *path, const char *dir, struct err *err)
{
	return scan_file(path, dir, 0, err);
}
