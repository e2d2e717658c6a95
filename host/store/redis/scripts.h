/* SPDX-License-Identifier: Apache-2.0 */
/* The Lua scripts of the Redis store, from lua/; bytes with a NUL after them. X(name, writes) */
#ifndef STORE_REDIS_SCRIPTS_H
#define STORE_REDIS_SCRIPTS_H

#include <stdbool.h>

#define REDIS_SCRIPTS(X)                                                                                               \
	X(get, false)                                                                                                  \
	X(scan, false)                                                                                                 \
	X(due, false)                                                                                                  \
	X(stream, false)                                                                                               \
	X(old, false)                                                                                                  \
	X(size, false)                                                                                                 \
	X(dues, false)                                                                                                 \
	X(state, false)                                                                                                \
	X(next, true)                                                                                                  \
	X(apply, true)                                                                                                 \
	X(absorb, true)                                                                                                \
	X(seen, true)                                                                                                  \
	X(open, true)

enum redis_script {
#define X(name, writes) SCRIPT_##name,
	REDIS_SCRIPTS(X)
#undef X
		SCRIPT_COUNT
};

extern const char redis_lua_common[];
#define X(name, writes) extern const char redis_lua_##name[];
REDIS_SCRIPTS(X)
#undef X

#endif
