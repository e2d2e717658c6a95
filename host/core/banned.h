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
#ifdef __clang__ /* takes no "error" after the first declaration; only the static checks and the fuzzers use it */
#define BANNED(why) __attribute__((unavailable(why)))
#else
#define BANNED(why) __attribute__((error(why)))
#endif
extern int rand(void) BANNED("use secret_random");
extern void srand(unsigned) BANNED("use secret_random");

#endif
