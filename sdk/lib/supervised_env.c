/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the environment file: the base pairs with the command's on top, NUL-terminated NAME=VALUE, byte exact. Any
 * thread. Must never let a name through that a shell would evaluate or drop, nor a pair that execve would refuse.
 */
#include "supervised_internal.h"

#include <stdlib.h>
#include <string.h>

/* MAX_ARG_STRLEN of Linux, which no page size makes smaller: one NAME=VALUE with its NUL. */
#define PAIR_MAX (128u * 1024u)
#define PAIRS_MAX 4096u

struct env {
	const struct berth_pair *pair[2]; /* base, command */
	size_t count[2];
};

static int32_t refuse(struct sup_op *op, const char *text)
{
	return localfs_fail(op->host, op->call, BERTH_INVALID, "env", text);
}

static int name_ok(const struct berth_str *name)
{
	for (size_t i = 0; i < name->len; i++) {
		char c = name->ptr[i];
		int letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';

		if (!letter && (i == 0 || c < '0' || c > '9'))
			return 0;
	}
	return name->len > 0;
}

static const struct berth_pair *pair_at(const struct env *env, size_t i)
{
	return i < env->count[0] ? &env->pair[0][i] : &env->pair[1][i - env->count[0]];
}

static int same_name(const struct berth_pair *a, const struct berth_pair *b)
{
	return a->name.len == b->name.len && memcmp(a->name.ptr, b->name.ptr, a->name.len) == 0;
}

/* The later pair of a name wins. */
static int overridden(const struct env *env, size_t i)
{
	for (size_t later = i + 1; later < env->count[0] + env->count[1]; later++)
		if (same_name(pair_at(env, i), pair_at(env, later)))
			return 1;
	return 0;
}

static int32_t check(struct sup_op *op, const struct env *env, size_t *ret_size)
{
	size_t size = 0;

	if (env->count[0] > PAIRS_MAX || env->count[1] > PAIRS_MAX)
		return refuse(op, "more than 4096 environment variables");
	for (size_t i = 0; i < env->count[0] + env->count[1]; i++) {
		const struct berth_pair *pair = pair_at(env, i);

		if (!name_ok(&pair->name))
			return refuse(op, "an environment variable's name must match [A-Za-z_][A-Za-z0-9_]*");
		if (pair->value.len && memchr(pair->value.ptr, '\0', pair->value.len))
			return refuse(op, "an environment variable's value holds a NUL byte");
		if (pair->value.len > PAIR_MAX || pair->name.len + pair->value.len + 2 > PAIR_MAX)
			return refuse(op, "an environment variable is longer than 128 KiB with its name");
		size += pair->name.len + pair->value.len + 2;
	}
	*ret_size = size;
	return BERTH_OK;
}

static char *append(char *at, const struct berth_pair *pair)
{
	memcpy(at, pair->name.ptr, pair->name.len);
	at += pair->name.len;
	*at++ = '=';
	if (pair->value.len)
		memcpy(at, pair->value.ptr, pair->value.len);
	at += pair->value.len;
	*at++ = '\0';
	return at;
}

int32_t sup_env_build(struct sup_op *op, const struct berth_command *command, char **ret_bytes, size_t *ret_len)
{
	struct env env = {{op->sup->env, command->env}, {op->sup->env_count, command->env_count}};
	char *bytes, *at;
	size_t size = 0;
	int32_t rc = check(op, &env, &size);

	if (rc)
		return rc;
	bytes = at = malloc(size + 1);
	if (!bytes)
		return localfs_fail(op->host, op->call, BERTH_UNAVAILABLE, "memory", "no memory for the environment");
	for (size_t i = 0; i < env.count[0] + env.count[1]; i++)
		if (!overridden(&env, i))
			at = append(at, pair_at(&env, i));
	*ret_bytes = bytes;
	*ret_len = (size_t)(at - bytes);
	return BERTH_OK;
}
