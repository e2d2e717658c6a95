/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the reading of certificate and key and their life. Entered from main (load) and from the loop threads, for the
 * handshakes and for answers past libmicrohttpd. Must never let a key be read by others, nor serve a pair that does not
 * belong together.
 */
#include "api/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/x509.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/conn.h"
#include "core/buf.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/secret.h"
#include "core/secret_file.h"

#define CHAIN_MAX 16
#define KEY_MAX (64 * LIMIT_KIB)
#define CERT_MAX (256 * LIMIT_KIB)

struct tls {
	atomic_uint refs;
	gnutls_pcert_st chain[CHAIN_MAX];
	unsigned len;
	gnutls_privkey_t key;
};

struct tls *tls_ref(struct tls *tls)
{
	if (tls)
		atomic_fetch_add(&tls->refs, 1);
	return tls;
}

void tls_unref(struct tls *tls)
{
	if (!tls || atomic_fetch_sub(&tls->refs, 1) != 1)
		return;
	for (unsigned i = 0; i < tls->len; i++)
		gnutls_pcert_deinit(&tls->chain[i]);
	gnutls_privkey_deinit(tls->key);
	free(tls);
}

static int refuse(struct err *err, const char *path, const char *why)
{
	return err_set(err, ERR_CONFIG, "%.150s: %s", path, why);
}

/* ---- certificate ---- */

static int read_file(const char *path, struct buf *out, struct err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	char piece[8192];
	ssize_t n = -1;

	if (fd < 0)
		return refuse(err, path, strerror(errno));
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		while ((n = read(fd, piece, sizeof(piece))) > 0 && !out->error)
			buf_append(out, piece, (size_t)n);
	}
	close(fd);
	return n == 0 && !out->error ? 0 : refuse(err, path, "is no regular file of a sensible size");
}

/* Clients will refuse it, by their clocks; ours may be the wrong one, and there may be no other certificate. */
static void check_times(gnutls_x509_crt_t own, const char *path)
{
	int64_t begins_ms = (int64_t)gnutls_x509_crt_get_activation_time(own) * 1000;
	int64_t ends_ms = (int64_t)gnutls_x509_crt_get_expiration_time(own) * 1000;
	int64_t now_ms = clock_wall_ms();
	char text[32];

	clock_format(ends_ms, text);
	if (begins_ms > now_ms || ends_ms <= now_ms)
		log_error("the certificate is not valid now", KS("path", path), KS("ends", text));
	else
		log_info("certificate loaded", KS("path", path), KS("ends", text));
}

static int import_chain(struct tls *tls, gnutls_x509_crt_t *list, unsigned count, const char *path, struct err *err)
{
	for (unsigned i = 0; i < count; i++) {
		int code = gnutls_pcert_import_x509(&tls->chain[i], list[i], 0);

		if (code != 0)
			return refuse(err, path, gnutls_strerror(code));
		tls->len++;
	}
	check_times(list[0], path);
	return 0;
}

static int load_chain(struct tls *tls, const char *path, struct err *err)
{
	gnutls_x509_crt_t list[CHAIN_MAX];
	unsigned count = CHAIN_MAX;
	struct buf text;
	int r;

	buf_init(&text, CERT_MAX);
	r = read_file(path, &text, err);
	if (r == 0) {
		gnutls_datum_t pem = {.data = (unsigned char *)text.ptr, .size = (unsigned)text.len};
		int code = text.len == 0 ? GNUTLS_E_NO_CERTIFICATE_FOUND
					 : gnutls_x509_crt_list_import(list, &count, &pem, GNUTLS_X509_FMT_PEM,
								       GNUTLS_X509_CRT_LIST_IMPORT_FAIL_IF_EXCEED |
									       GNUTLS_X509_CRT_LIST_FAIL_IF_UNSORTED);

		if (code <= 0)
			r = refuse(err, path, gnutls_strerror(code));
	}
	buf_fini(&text);
	if (r != 0)
		return r;
	r = import_chain(tls, list, count, path, err);
	for (unsigned i = 0; i < count; i++)
		gnutls_x509_crt_deinit(list[i]);
	return r;
}

/* ---- key ---- */

static int load_key(struct tls *tls, const char *path, struct err *err)
{
	char *text = malloc(KEY_MAX);
	gnutls_datum_t pem = {.data = (unsigned char *)text};
	size_t len = 0;
	int code, r;

	if (!text)
		return err_set(err, ERR_NOMEM, "out of memory");
	r = secret_file_read(path, text, KEY_MAX, &len, err);
	pem.size = (unsigned)len;
	code = r == 0 ? gnutls_privkey_import_x509_raw(tls->key, &pem, GNUTLS_X509_FMT_PEM, NULL, 0) : 0;
	if (code != 0)
		r = refuse(err, path, gnutls_strerror(code));
	secret_wipe(text, KEY_MAX);
	free(text);
	return r;
}

static bool fits(const struct tls *tls)
{
	unsigned char of_key[64], of_cert[64];
	size_t key_len = sizeof(of_key), cert_len = sizeof(of_cert);
	gnutls_pubkey_t pub;
	bool equal = false;

	if (gnutls_pubkey_init(&pub) != 0)
		return false;
	if (gnutls_pubkey_import_privkey(pub, tls->key, 0, 0) == 0 &&
	    gnutls_pubkey_get_key_id(pub, GNUTLS_KEYID_USE_SHA256, of_key, &key_len) == 0 &&
	    gnutls_pubkey_get_key_id(tls->chain[0].pubkey, GNUTLS_KEYID_USE_SHA256, of_cert, &cert_len) == 0)
		equal = key_len == cert_len && memcmp(of_key, of_cert, key_len) == 0;
	gnutls_pubkey_deinit(pub);
	return equal;
}

int tls_load(const char *cert_path, const char *key_path, struct tls **ret, struct err *err)
{
	struct tls *tls = calloc(1, sizeof(*tls));
	int r;

	if (!tls || gnutls_privkey_init(&tls->key) != 0) {
		free(tls);
		return err_set(err, ERR_NOMEM, "out of memory");
	}
	atomic_init(&tls->refs, 1);
	r = load_chain(tls, cert_path, err);
	if (r == 0)
		r = load_key(tls, key_path, err);
	if (r == 0 && !fits(tls))
		r = refuse(err, key_path, "the key is not that of http.tls_cert");
	if (r != 0) {
		tls_unref(tls);
		return r;
	}
	*ret = tls;
	return 0;
}

/* ---- loop threads ---- */

int tls_retrieve(gnutls_session_t session, const gnutls_datum_t *authorities, int count,
		 const gnutls_pk_algorithm_t *algorithms, int algorithm_count, gnutls_pcert_st **ret_chain,
		 unsigned *ret_len, gnutls_privkey_t *ret_key)
{
	struct conn *conn = conn_of(gnutls_session_get_ptr(session));

	(void)authorities;
	(void)count;
	(void)algorithms;
	(void)algorithm_count;
	if (!conn || !conn->tls)
		return -1;
	*ret_chain = conn->tls->chain;
	*ret_len = conn->tls->len;
	*ret_key = conn->tls->key;
	return 0;
}

ptrdiff_t tls_send(void *session, const void *ptr, size_t len)
{
	size_t sent = 0;

	while (sent < len) {
		ssize_t n = gnutls_record_send(session, (const char *)ptr + sent, len - sent);

		if (n == GNUTLS_E_INTERRUPTED)
			continue;
		if (n <= 0)
			return sent ? (ptrdiff_t)sent : -1;
		sent += (size_t)n;
	}
	return (ptrdiff_t)sent;
}

void tls_end(void *session)
{
	gnutls_bye(session, GNUTLS_SHUT_WR); /* what does not fit now is not missed: the answer has a length */
}
