/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a response: kept as it came, cut into pairs for the caller, Retry-After understood. Lines arrive on the
 * thread that runs libcurl; once the head is complete it is read on the calling thread. Bounded in lines and bytes.
 */
#include "net/private.h"

#include <strings.h>

/* A new status line: after a 1xx, or the first. */
static void begin_head(struct exchange *ex)
{
	buf_clear(&ex->head);
	ex->head_lines = 0;
}

static bool keep_line(struct exchange *ex, const char *line, size_t len)
{
	if (++ex->head_lines > NET_HEADER_COUNT_MAX || buf_append(&ex->head, line, len)) {
		exchange_cut(ex, ex->head.error == ERR_NOMEM ? CUT_MEMORY : CUT_HEAD_SIZE);
		return false;
	}
	return true;
}

static bool end_head(struct exchange *ex)
{
	long status = 0;

	curl_easy_getinfo(ex->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status < 200)
		return true;
	ex->status = (uint32_t)status;
	ex->head_done = true;
	return ex->way->head(ex);
}

size_t head_take(struct exchange *ex, const char *line, size_t len)
{
	bool fine = true;

	if (ex->head_done)
		return len; /* a trailer */
	if (len >= 5 && !memcmp(line, "HTTP/", 5))
		begin_head(ex);
	else if (len && (line[0] == '\r' || line[0] == '\n'))
		fine = end_head(ex);
	else
		fine = keep_line(ex, line, len);
	return fine ? len : 0;
}

static struct berth_str trimmed(const char *begin, const char *end)
{
	while (begin < end && (*begin == ' ' || *begin == '\t'))
		begin++;
	while (end > begin && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
		end--;
	return (struct berth_str){.ptr = begin, .len = (size_t)(end - begin)};
}

/* The next line that is a header; folded ones and lines without a colon are none. */
static bool next_pair(const char **at, const char *end, struct berth_pair *ret)
{
	while (*at < end) {
		const char *line = *at;
		const char *stop = memchr(line, '\n', (size_t)(end - line));
		const char *colon;

		stop = stop ? stop : end;
		*at = stop < end ? stop + 1 : end;
		colon = memchr(line, ':', (size_t)(stop - line));
		if (!colon || colon == line || *line == ' ' || *line == '\t')
			continue;
		ret->name = trimmed(line, colon);
		ret->value = trimmed(colon + 1, stop);
		if (!memchr(ret->value.ptr, '\0', ret->value.len))
			return true;
	}
	return false;
}

struct berth_pair *head_pairs(struct exchange *ex, size_t *ret_count)
{
	const char *at = ex->head.ptr;
	const char *end = at ? at + ex->head.len : at;
	struct berth_pair *pairs = arena_alloc(ex->arena, (ex->head_lines + 1) * sizeof(*pairs));
	size_t count = 0;

	while (pairs && at && count < ex->head_lines && next_pair(&at, end, &pairs[count]))
		count++;
	*ret_count = count;
	return pairs;
}

/* Copies a header's value; false when there is none, or a long one. */
static bool find_value(const struct exchange *ex, const char *name, char *ret, size_t size)
{
	const char *at = ex->head.ptr;
	const char *end = at ? at + ex->head.len : at;
	struct berth_pair pair;

	while (at && next_pair(&at, end, &pair)) {
		if (pair.name.len != strlen(name) || strncasecmp(pair.name.ptr, name, pair.name.len) != 0)
			continue;
		if (!pair.value.len || pair.value.len >= size)
			return false;
		memcpy(ret, pair.value.ptr, pair.value.len);
		ret[pair.value.len] = '\0';
		return true;
	}
	return false;
}

static int64_t seconds_of(const char *text)
{
	int64_t seconds = 0;

	for (; *text; text++)
		if (seconds <= NET_RETRY_AFTER_MAX_MS / 1000)
			seconds = seconds * 10 + (*text - '0');
	return seconds;
}

int64_t head_retry_after(struct exchange *ex)
{
	char value[64], date[64];
	int64_t ms, now_ms = clock_wall_ms();
	time_t when, theirs;

	if (!find_value(ex, "Retry-After", value, sizeof(value)))
		return 0;
	if (strspn(value, "0123456789") == strlen(value)) {
		ms = seconds_of(value) * 1000;
	} else {
		when = curl_getdate(value, NULL);
		if (when < 0)
			return 0;
		/* By the peer's own clock where it tells it. */
		theirs = find_value(ex, "Date", date, sizeof(date)) ? curl_getdate(date, NULL) : -1;
		if (theirs >= 0)
			now_ms = (int64_t)theirs * 1000;
		ms = (int64_t)when * 1000 - now_ms;
	}
	if (ms < 0)
		return 0;
	return ms < NET_RETRY_AFTER_MAX_MS ? ms : NET_RETRY_AFTER_MAX_MS;
}
