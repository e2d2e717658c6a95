/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that fails when told to, between SQLite and the real one. Any thread. */
#ifndef TESTS_STORE_FAULTFS_H
#define TESTS_STORE_FAULTFS_H

/* SQLite result codes that the next calls answer with; 0 = works. */
enum faultfs_call { FAULTFS_WRITE, FAULTFS_SYNC, FAULTFS_READ, FAULTFS_CALLS };

void faultfs_install(void); /* once, before the first database is opened */
void faultfs_set(enum faultfs_call call, int code);
/* The same, after so many calls that work. */
void faultfs_set_after(enum faultfs_call call, int works, int code);
/* Only the call after so many that work. */
void faultfs_set_once(enum faultfs_call call, int works, int code);

#endif
