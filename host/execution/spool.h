/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output of open commands: the first 32 KiB of each stream in memory, more in a file. One writer (the thread that runs
 * the command), any number of readers. Writing never blocks: what does not fit a limit is dropped and counted, and the
 * stream says so; what has no room on the disk just now is refused, to be written again.
 */
#ifndef EXECUTION_SPOOL_H
#define EXECUTION_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/watch.h"

struct spool;	     /* the folder and the bytes all commands may use */
struct spool_output; /* both streams of one execution; counted */

/* Files are made in dir (of the object store, so that storing one is a rename). watch gets "out:<id>" when a reader
 * that had read everything has something to read again. */
int spool_new(const char *dir, int64_t max_bytes, struct watch *watch, struct spool **ret, struct err *err);
void spool_free(struct spool *spool);
int64_t spool_used(const struct spool *spool);

struct spool_output *spool_output_new(struct spool *spool, const char *id); /* NULL: no memory */
struct spool_output *spool_output_ref(struct spool_output *out);
void spool_output_unref(struct spool_output *out); /* the last one removes the files */

/* ---- the writer ---- */
void spool_limit(struct spool_output *out, unsigned stream, int64_t max_bytes);
/* 0, or ERR_STORAGE_FULL with errno: nothing of it was taken, as there is no room on the disk, no descriptor or no
 * memory. */
int spool_write(struct spool_output *out, unsigned stream, const void *ptr, size_t len);
void spool_give_up(struct spool_output *out, unsigned stream); /* no more room is waited for: the rest is dropped */
/* Bytes [from, to) of the stream cannot be had: later bytes follow the ones before. */
void spool_gap(struct spool_output *out, unsigned stream, uint64_t from, uint64_t to);
uint64_t spool_seen(const struct spool_output *out, unsigned stream); /* offset in its stream: kept, dropped, lost */
void spool_finish(struct spool_output *out);			      /* no byte will come any more */

struct spool_summary {
	uint64_t bytes, dropped;
	const char *cut_by; /* NULL, "limit", "spool_full", "spool_error" */
	char sha256[65];
	const char *path; /* NULL: the bytes are at ptr */
	const void *ptr;
};
/* After spool_finish, for the writer; pointers live as long as its reference. */
void spool_summary(struct spool_output *out, unsigned stream, struct spool_summary *ret);
/* The file was taken over by the object store: it is not the spool's any more (readers keep reading what they hold). */
void spool_taken(struct spool_output *out, unsigned stream);

/* ---- readers ---- */
/* Up to cap bytes at offset. *ret_end: no byte will ever come at or after offset + the count returned. */
int spool_read(struct spool_output *out, unsigned stream, uint64_t offset, void *buf, size_t cap, size_t *ret_len,
	       bool *ret_end, struct err *err);
/* Bytes there now; *ret_final: that is all. */
uint64_t spool_size(struct spool_output *out, unsigned stream, bool *ret_final);

#endif
