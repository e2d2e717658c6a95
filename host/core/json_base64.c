/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns base64 over libcrypto. Pure functions, any thread. libcrypto's decoder skips blanks, takes padding anywhere and
 * ignores spare bits, so the text is checked first: one value has exactly one accepted spelling.
 */
#include "core/json.h"

#include <limits.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#define ALPHABET "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
#define STEP ((size_t)3 * 16384) /* bytes encoded at a time; libcrypto counts in int */

static bool is_digit(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/';
}

static unsigned digit_value(char c)
{
	return (unsigned)(strchr(ALPHABET, c) - ALPHABET);
}

static bool is_canonical(const char *ptr, size_t len, size_t *ret_pad)
{
	size_t pad = 0;

	if (len % 4 != 0)
		return false;
	while (pad < 2 && pad < len && ptr[len - 1 - pad] == '=')
		pad++;
	for (size_t i = 0; i < len - pad; i++) {
		if (!is_digit(ptr[i]))
			return false;
	}
	*ret_pad = pad;
	return pad == 0 || (digit_value(ptr[len - 1 - pad]) & (pad == 1 ? 3u : 15u)) == 0;
}

int json_base64_decode(const char *ptr, size_t len, char **ret, size_t *ret_len, struct err *err)
{
	size_t pad = 0;

	if (len > INT_MAX / 2)
		return err_set(err, ERR_PAYLOAD_TOO_LARGE, "base64 text is too long");
	if (!is_canonical(ptr, len, &pad))
		return err_set(err, ERR_INVALID_REQUEST, "not valid base64");

	char *out = malloc(len / 4 * 3 + 1);

	if (!out)
		return err_set(err, ERR_NOMEM, "out of memory");
	if (len && EVP_DecodeBlock((unsigned char *)out, (const unsigned char *)ptr, (int)len) < 0) {
		free(out);
		return err_set(err, ERR_INVALID_REQUEST, "not valid base64");
	}
	*ret_len = len / 4 * 3 - pad;
	out[*ret_len] = '\0';
	*ret = out;
	return 0;
}

int json_base64url_decode(const char *ptr, size_t len, char **ret, size_t *ret_len, struct err *err)
{
	size_t pad = (4 - len % 4) % 4;
	char *plain;
	int rc;

	if (len > INT_MAX / 2)
		return err_set(err, ERR_PAYLOAD_TOO_LARGE, "base64 text is too long");
	/* The other alphabet's digits would pass below. */
	if (memchr(ptr, '+', len) || memchr(ptr, '/', len) || memchr(ptr, '=', len) || pad == 3)
		return err_set(err, ERR_INVALID_REQUEST, "not valid base64url");
	plain = malloc(len + pad + 1);
	if (!plain)
		return err_set(err, ERR_NOMEM, "out of memory");
	for (size_t i = 0; i < len; i++)
		plain[i] = (char)(ptr[i] == '-' ? '+' : ptr[i] == '_' ? '/' : ptr[i]);
	memset(plain + len, '=', pad);
	rc = json_base64_decode(plain, len + pad, ret, ret_len, err);
	free(plain);
	return rc;
}

int json_base64_encode(struct buf *buf, const void *ptr, size_t len)
{
	const unsigned char *at = ptr;

	while (len) {
		size_t n = len < STEP ? len : STEP;

		/* EncodeBlock writes a NUL, for which a reserved buffer has room. */
		if (buf_reserve(buf, (n + 2) / 3 * 4))
			return buf->error;
		buf->len += (size_t)EVP_EncodeBlock((unsigned char *)buf->ptr + buf->len, at, (int)n);
		at += n;
		len -= n;
	}
	return buf_reserve(buf, 0);
}
