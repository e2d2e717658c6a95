/* SPDX-License-Identifier: Apache-2.0 */
/* Force-included into every host file: functions that are never right here. */
#ifndef CORE_BANNED_H
#define CORE_BANNED_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC poison strcpy strcat sprintf vsprintf strtok gmtime localtime rand srand system popen atoi atol alloca gets
#endif
