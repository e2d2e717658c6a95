/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of one command at the same time: they share one wake-up, so who gets it tells the others. */
#ifndef EXECUTOR_SIBLINGS_H
#define EXECUTOR_SIBLINGS_H

#include <stdint.h>

struct sibling {
	struct sibling *next;
	const char *execution_id; /* as long as it is listed */
	int wait_fd;		  /* polls readable when the peer did something or a sibling told; -1 = not listed */
	int told;		  /* eventfd inside it, made once there is a sibling; -1 = none */
};

/* Lists a stream whose peer is peer_fd. Without descriptors it stays unlisted: then the SDK asks four times a second.
 */
void siblings_join(struct sibling *self, const char *execution_id, int peer_fd);
void siblings_leave(struct sibling *self);
/* This one has sent new output: the others look, too. */
void siblings_tell(struct sibling *self);
/* Takes in what was told. */
void siblings_heed(struct sibling *self);

#endif
