/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fuzz targets share. tests/fuzz/<name>.c is one target: it feeds bytes from outside to one of the product's
 * parsers and checks what must hold of the answer. libFuzzer drives it in the preset "fuzz"; replay.c drives it with
 * the corpus everywhere else.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts with the sentence; stays on in every build. */
#define FUZZ_CHECK(condition)                                                                                          \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			fuzz_fail(__FILE__, __LINE__, #condition);                                                     \
	} while (0)
_Noreturn void fuzz_fail(const char *file, int line, const char *what);

/* The bytes not used yet. */
struct fuzz_input {
	const uint8_t *ptr;
	size_t len;
};
uint8_t fuzz_byte(struct fuzz_input *in); /* 0 at the end */
uint64_t fuzz_number(struct fuzz_input *in, size_t bytes);
/* Bytes up to `end` (not kept) or the end of input. NUL-terminated in a block of exactly that size, so that a sanitizer
 * sees every byte read too far; free it. */
char *fuzz_text(struct fuzz_input *in, const char *end, size_t *ret_len);
char *fuzz_copy(const void *ptr, size_t len);

/* A private folder that goes away with the process. */
const char *fuzz_folder(void);
int fuzz_folder_fd(void);
void fuzz_write_file(int dir, const char *name, const void *ptr, size_t len);
/* Removes everything in a folder. */
void fuzz_empty(int dir);
/* Keeps the product's log lines out of the way. */
void fuzz_quiet(void);

/* The defect that `run.sh --planted` must find: a text that a parser let through is copied by someone who rounds sizes
 * up and forgets the byte at the end. It is planted here, never in the product, but can be reached only through the
 * product's parser. */
#ifdef FUZZ_PLANT
void fuzz_planted_copy(const char *ptr, size_t len);
#define FUZZ_PLANTED(ptr, len) fuzz_planted_copy((ptr), (len))
#else
#define FUZZ_PLANTED(ptr, len) ((void)0)
#endif

#endif
