/* SPDX-License-Identifier: Apache-2.0 */
/* What `berthd --probe` does, for tests that have no berthd. Crashes must stay crashes under sanitizers. */
#include <stdlib.h>
#include <string.h>

#include "plugin/loader.h"

const char *__asan_default_options(void);
const char *__tsan_default_options(void);
const char *__ubsan_default_options(void);

const char *__asan_default_options(void)
{
	return "handle_segv=0:handle_sigill=0:handle_abort=0:detect_leaks=0";
}

const char *__tsan_default_options(void)
{
	return "handle_segv=0:handle_sigill=0:handle_abort=0";
}

const char *__ubsan_default_options(void)
{
	return "handle_segv=0:handle_sigill=0:handle_abort=0";
}

int main(int argc, char **argv)
{
	if (argc != 5 || strcmp(argv[1], "--probe"))
		return 2;
	return loader_probe_main((int)strtol(argv[2], NULL, 10), argv[3], argv[4]);
}
