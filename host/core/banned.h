/* SPDX-License-Identifier: Apache-2.0 */
/* Force-included into every host file: functions that are never right here. */
#ifndef CORE_BANNED_H
#define CORE_BANNED_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#undef alloca /* a macro in the C library's headers; poisoning one warns */
#pragma GCC poison strcpy strcat sprintf vsprintf strtok gmtime localtime system popen atoi atol alloca gets

/* Not poisoned: libcrypto's headers use these words as names of parameters. Calling them does not compile. */
extern int rand(void) __attribute__((error("use secret_random")));
extern void srand(unsigned) __attribute__((error("use secret_random")));

#endif
