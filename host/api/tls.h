/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's certificate and key, as libmicrohttpd's GnuTLS asks for them; several connections share one pair, and a
 * newer pair is for connections that begin later.
 */
#ifndef API_TLS_H
#define API_TLS_H

#include <gnutls/abstract.h>
#include <stddef.h>

#include "core/err.h"

struct MHD_Connection;
struct tls;

/* TLS 1.2 and 1.3 only, the server's order of ciphers. */
#define TLS_PRIORITIES "SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:%SERVER_PRECEDENCE"

/* PEM files: the chain, the server's own certificate first, and its key, which others must not be able to read.
 * ERR_CONFIG names the file; so does a key of another certificate. */
int tls_load(const char *cert_path, const char *key_path, struct tls **ret, struct err *err);
struct tls *tls_ref(struct tls *tls);
void tls_unref(struct tls *tls); /* NULL is fine */

/* A gnutls_certificate_retrieve_function2 for sessions of libmicrohttpd: the pair of the session's connection. */
int tls_retrieve(gnutls_session_t session, const gnutls_datum_t *authorities, int count,
		 const gnutls_pk_algorithm_t *algorithms, int algorithm_count, gnutls_pcert_st **ret_chain,
		 unsigned *ret_len, gnutls_privkey_t *ret_key);
/* Sends past libmicrohttpd, on the connection's loop thread, without waiting; bytes sent or -1. */
ptrdiff_t tls_send(void *session, const void *ptr, size_t len);
void tls_end(void *session); /* nothing follows */

#endif
