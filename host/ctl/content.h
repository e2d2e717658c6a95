/* SPDX-License-Identifier: Apache-2.0 */
/* One file's bytes over the file routes, in either direction; for the commands of files.c and the copies of whole trees. */
#ifndef CTL_CONTENT_H
#define CTL_CONTENT_H

#include "ctl/ctl.h"

struct content {
	struct ctl *ctl;
	const char *task, *name; /* name: its path in the workspace */
	int fd;
	unsigned mode;	     /* put: to give it; get: out of the answer, 0 = not known */
	int64_t size;	     /* put: what fd holds from where it stands, -1 = not known */
	const char *sha256;  /* put: to be checked by the daemon, or NULL */
	char digest[65];     /* get: of what came */
	int64_t moved;	     /* bytes of this exchange */
	bool silent;	     /* says nothing about a connection that failed */
	void (*begun)(void *arg, int64_t size);	 /* get: the answer's size, -1 = not known; or NULL */
	void (*progress)(void *arg, int64_t bytes); /* or NULL */
	void *arg;
};

/* One exchange each. 0 when there was an answer, good or not; else an exit code, with the sentence printed unless silent. */
int content_put(struct content *c, struct ctl_reply *reply);
int content_get(struct content *c, struct ctl_reply *reply);
/* Size and SHA-256 of what fd holds from where it stands, which is where it stands afterwards too. 0 or -1 with errno. */
int content_digest(int fd, int64_t *ret_size, char ret_hex[65]);
/* Makes a name beside `name` (same folder) that nobody else uses. */
void content_temp_name(const char *name, char *ret, size_t size);

#endif
