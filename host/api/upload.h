/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of an upload on their way from the window to a provider, checked so that a wrong one is never completed.
 */
#ifndef API_UPLOAD_H
#define API_UPLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

#define UPLOAD_SIZE_UNKNOWN UINT64_MAX

struct upload {
	/* Where bytes come from: 0 with *ret_len 0 at the end, or an err code. */
	int (*source)(void *arg, void *buf, size_t cap, size_t *ret_len);
	void *arg;
	uint64_t size;	    /* as said by the client, or UPLOAD_SIZE_UNKNOWN */
	uint64_t max;	    /* most bytes accepted */
	const char *sha256; /* as said, 64 lower-case digits, or NULL */
	/* private */
	void *digest;
	uint64_t total;
	bool checked;
	bool holds;
	char held; /* the last byte is given out only after everything was checked */
	struct err error;
};

int upload_init(struct upload *upload, struct err *err); /* fill the public fields first */
void upload_fini(struct upload *upload);
/* A call_sink's read. A failure is kept in upload->error. */
int upload_read(void *upload, void *buf, size_t cap, size_t *ret_len);

#endif
