/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the check of an upload's size and digest. Entered from the worker that writes the file. The last byte is held
 * back until the client's body has ended and size and digest are right: whatever a provider does, it cannot complete a
 * wrong file.
 */
#include "api/upload.h"

#include <openssl/evp.h>
#include <string.h>

int upload_init(struct upload *upload, struct err *err)
{
	EVP_MD_CTX *digest = EVP_MD_CTX_new();

	if (!digest || EVP_DigestInit_ex(digest, EVP_sha256(), NULL) != 1) {
		EVP_MD_CTX_free(digest);
		return err_set(err, ERR_NOMEM, "out of memory");
	}
	upload->digest = digest;
	return 0;
}

void upload_fini(struct upload *upload)
{
	EVP_MD_CTX_free(upload->digest);
	upload->digest = NULL;
}

static int check_end(struct upload *upload)
{
	unsigned char raw[EVP_MAX_MD_SIZE];
	unsigned len = 0;
	char hex[2 * EVP_MAX_MD_SIZE + 1] = "";

	if (upload->size != UPLOAD_SIZE_UNKNOWN && upload->total != upload->size)
		return err_set(&upload->error, ERR_INVALID_REQUEST, "the body has %llu bytes, size says %llu",
			       (unsigned long long)upload->total, (unsigned long long)upload->size);
	if (EVP_DigestFinal_ex(upload->digest, raw, &len) != 1)
		return err_set(&upload->error, ERR_INTERNAL, "the digest cannot be made");
	for (unsigned i = 0; i < len; i++)
		snprintf(hex + 2 * i, 3, "%02x", raw[i]);
	if (upload->sha256 && strcmp(hex, upload->sha256) != 0)
		return err_set(&upload->error, ERR_INVALID_REQUEST,
			       "the body's digest is not the one that sha256 says");
	upload->checked = true;
	return 0;
}

static int take(struct upload *upload, const void *ptr, size_t len)
{
	upload->total += len;
	if (upload->total > upload->max)
		return err_set(&upload->error, ERR_PAYLOAD_TOO_LARGE, "the file is larger than %llu bytes",
			       (unsigned long long)upload->max);
	if (upload->size != UPLOAD_SIZE_UNKNOWN && upload->total > upload->size)
		return err_set(&upload->error, ERR_INVALID_REQUEST, "the body is longer than size says");
	if (EVP_DigestUpdate(upload->digest, ptr, len) != 1)
		return err_set(&upload->error, ERR_INTERNAL, "the digest cannot be made");
	return 0;
}

/* The next piece of the body; at its end everything is checked. */
static int pull(struct upload *upload, char *buf, size_t cap, size_t *ret_len)
{
	int r = upload->source(upload->arg, buf, cap, ret_len);

	if (r != 0)
		return err_set(&upload->error, r, "%s",
			       r == ERR_CANCELLED ? "the client went away" : "the body came too slowly");
	return *ret_len ? take(upload, buf, *ret_len) : check_end(upload);
}

int upload_read(void *arg, void *buf, size_t cap, size_t *ret_len)
{
	struct upload *upload = arg;
	char *out = buf;
	size_t len = 0;
	char one;

	*ret_len = 0;
	while (!upload->checked) {
		bool tight = cap == 1 && upload->holds; /* no room beside the held byte */
		char *to = tight ? &one : out + upload->holds;
		int r = pull(upload, to, tight ? 1 : cap - upload->holds, &len);

		if (r != 0)
			return r;
		if (len == 0)
			break;

		char last = to[len - 1];

		if (upload->holds)
			out[0] = upload->held;
		*ret_len = len - 1 + upload->holds;
		upload->held = last;
		upload->holds = true;
		if (*ret_len)
			return 0;
	}
	if (upload->holds) {
		out[0] = upload->held;
		upload->holds = false;
		*ret_len = 1;
	}
	return 0;
}
