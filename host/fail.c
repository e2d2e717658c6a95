/* SPDX-License-Identifier: Apache-2.0 */
/* How an error ends the program: its sentence and its exit code. The main thread only. */
#include <stdio.h>

#include "daemon.h"

int fail_code(const struct err *err)
{
	if (err->code == ERR_CONFIG)
		return EXIT_CONFIG;
	return err->code == ERR_IN_USE ? EXIT_IN_USE : 1;
}

int fail(const char *place, const struct err *err)
{
	/* A configuration error names its file and line itself. */
	fprintf(stderr, "berthd: %s: %s\n", place, err->msg);
	return fail_code(err);
}
