/* SPDX-License-Identifier: Apache-2.0 */
/* The routes and their operations. */
#ifndef EXECUTOR_OPS_H
#define EXECUTOR_OPS_H

#include "call.h"

struct ops_route {
	const char *path;
	/* Returns a code, explained with call_fail when it is not OK. */
	int32_t (*run)(struct berth_call *call);
	const struct args_key *keys;
	const char *blobs; /* frames it takes, of "CVP" */
	bool data;	   /* takes D when the arguments say so */
	bool anonymous;	   /* takes a token without identity */
	bool execution;	   /* execution_id and attempt are in the token, too */
	bool ends;	   /* what it is for must not be lost for a damaged mark */
	bool stream;	   /* counts as one that may take as long as a command */
};

/* NULL when there is none. */
const struct ops_route *ops_find(const char *path);

#endif
