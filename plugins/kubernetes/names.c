/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How tasks are written into Kubernetes. Label values hold at most 63 bytes of a small alphabet and names are lower
 * case only, so that what does not fit is replaced by a digest; the identifier itself is always kept as an annotation,
 * and nothing is believed by its label alone. Pure; any thread.
 */
#include "names.h"

#include <stdio.h>
#include <string.h>

#define MARKER "h-"   /* before a digest; an identifier that starts with it is hashed too */
#define NAME_BYTES 25 /* of the digest in a name: 200 bits, 40 characters */

static bool is_alnum(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_label_value(const char *id)
{
	size_t len = strlen(id);

	if (!len || len > LABEL_VALUE_MAX || !is_alnum(id[0]) || !is_alnum(id[len - 1]))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!is_alnum(id[i]) && !strchr("-_.", id[i]))
			return false;
	return strncmp(id, MARKER, strlen(MARKER)) != 0;
}

bool names_label(const char *id, char ret[LABEL_VALUE_MAX + 1])
{
	unsigned char digest[32];
	char text[53];

	if (is_label_value(id)) {
		snprintf(ret, LABEL_VALUE_MAX + 1, "%s", id);
		return true;
	}
	if (!text_sha256(&id, 1, digest))
		return false;
	text_base32(digest, sizeof(digest), text, sizeof(text));
	snprintf(ret, LABEL_VALUE_MAX + 1, MARKER "%s", text);
	return true;
}

static bool digest_name(const char *prefix, const char *word, const char *const *parts, size_t count,
			char ret[NAME_MAX_LEN + 1])
{
	unsigned char digest[32];
	char text[48];

	if (!text_sha256(parts, count, digest))
		return false;
	text_base32(digest, NAME_BYTES, text, sizeof(text));
	snprintf(ret, NAME_MAX_LEN + 1, "%s-%s%s", prefix, word, text);
	return true;
}

bool names_task(const char *prefix, const char *deployment, const char *workspace, const char *task,
		char ret[NAME_MAX_LEN + 1])
{
	const char *const parts[] = {"task", deployment, workspace, task};

	return digest_name(prefix, "t", parts, 4, ret);
}

bool names_intent(const char *prefix, const char *deployment, const char *intent, char ret[NAME_MAX_LEN + 1])
{
	const char *const parts[] = {"intent", deployment, intent};

	return digest_name(prefix, "i", parts, 3, ret);
}

bool names_dns(const char *text, size_t max)
{
	size_t len = strlen(text);

	if (!len || len > max || text[0] == '-' || text[len - 1] == '-')
		return false;
	for (size_t i = 0; i < len; i++)
		if (!(text[i] >= 'a' && text[i] <= 'z') && !(text[i] >= '0' && text[i] <= '9') && text[i] != '-')
			return false;
	return true;
}

/* ---- refs ---- */

static bool take_part(struct berth_str *text, char ret[64], bool last)
{
	const char *end = last ? NULL : memchr(text->ptr, '/', text->len);
	size_t len = end ? (size_t)(end - text->ptr) : text->len;

	if ((!last && !end) || !len || len > 63 || memchr(text->ptr, '\0', len) ||
	    (last && memchr(text->ptr, '/', len)))
		return false;
	memcpy(ret, text->ptr, len);
	ret[len] = '\0';
	len += last ? 0 : 1;
	text->ptr += len;
	text->len -= len;
	return true;
}

bool names_ref(struct berth_str text, struct ref *ret)
{
	return text.len <= BERTH_REF_MAX && take_part(&text, ret->ns, false) && take_part(&text, ret->name, false) &&
	       take_part(&text, ret->uid, true) && names_dns(ret->ns, 63) && names_dns(ret->name, 63);
}

bool names_ref_text(const char *ns, const char *name, const char *uid, char ret[BERTH_REF_MAX + 1])
{
	struct ref parts;

	snprintf(ret, BERTH_REF_MAX + 1, "%s/%s/%s", ns, name, uid);
	return names_ref(str_of(ret), &parts) && !strcmp(parts.uid, uid);
}
