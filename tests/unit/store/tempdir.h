/* SPDX-License-Identifier: Apache-2.0 */
/* A folder for one test, removed with all it holds. Failures fail the running test. */
#ifndef TESTS_STORE_TEMPDIR_H
#define TESTS_STORE_TEMPDIR_H

#define TEMPDIR_PATH 512

struct tempdir {
	char root[256];
};

void tempdir_make(struct tempdir *dir);
void tempdir_remove(struct tempdir *dir);
void tempdir_path(const struct tempdir *dir, const char *name, char ret_path[TEMPDIR_PATH]);

#endif
