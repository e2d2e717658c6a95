/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the reading of arguments. Any thread; no state. Must never take a key that its table does not have, nor a value
 * that its field cannot hold.
 */
#include "args.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 4

static struct json_object *parse(const char *text, size_t len, char *ret_text, size_t cap)
{
	struct json_tokener *tokener = json_tokener_new_ex(DEPTH_MAX);
	struct json_object *json;
	enum json_tokener_error error;

	if (!tokener) {
		snprintf(ret_text, cap, "no memory for the arguments");
		return NULL;
	}
	/* Strict: nothing but white space behind the object. */
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
	json = json_tokener_parse_ex(tokener, text, (int)len);
	error = json_tokener_get_error(tokener);
	if (error != json_tokener_success || !json_object_is_type(json, json_type_object)) {
		snprintf(ret_text, cap, "the arguments are not one JSON object: %s",
			 error == json_tokener_success ? "another type" : json_tokener_error_desc(error));
		json_object_put(json);
		json = NULL;
	}
	json_tokener_free(tokener);
	return json;
}

static int set_string(const struct args_key *key, struct json_object *value, struct berth_str *field)
{
	size_t len = (size_t)json_object_get_string_len(value);
	const char *text = json_object_get_string(value);

	if (!json_object_is_type(value, json_type_string) || memchr(text, '\0', len))
		return -1;
	(void)key;
	*field = (struct berth_str){text, len};
	return 0;
}

static int set_integer(const struct args_key *key, struct json_object *value, int64_t *field)
{
	int64_t number = json_object_get_int64(value);

	if (!json_object_is_type(value, json_type_int) || number < key->min || number > key->max)
		return -1;
	*field = number;
	return 0;
}

static int set_list(const struct args_key *key, struct json_object *value, struct json_object **field)
{
	if (!json_object_is_type(value, json_type_array) || json_object_array_length(value) > (size_t)key->max)
		return -1;
	*field = value;
	return 0;
}

static int set_value(const struct args_key *key, struct json_object *value, void *field)
{
	if (key->type == ARGS_LIST)
		return set_list(key, value, field);
	if (key->type == ARGS_STRING)
		return set_string(key, value, field);
	if (key->type == ARGS_INTEGER)
		return set_integer(key, value, field);
	if (!json_object_is_type(value, json_type_boolean))
		return -1;
	*(bool *)field = json_object_get_boolean(value);
	return 0;
}

static int set_absent(const struct args_key *key, void *field)
{
	if (key->required)
		return -1;
	if (key->type == ARGS_INTEGER)
		*(int64_t *)field = key->absent;
	return 0;
}

static bool known(const struct args_key *keys, const char *name)
{
	for (; keys->name; keys++)
		if (strcmp(keys->name, name) == 0)
			return true;
	return false;
}

static int take(const struct args_key *keys, struct args *args, char *ret_text, size_t cap)
{
	json_object_object_foreach(args->json, name, unused)
	{
		(void)unused;
		if (!known(keys, name)) {
			snprintf(ret_text, cap, "the argument %.64s is not known here", name);
			return -1;
		}
	}
	for (; keys->name; keys++) {
		void *field = (char *)args + keys->offset;
		struct json_object *value = NULL;
		bool there = json_object_object_get_ex(args->json, keys->name, &value);

		if ((there ? set_value(keys, value, field) : set_absent(keys, field)) < 0) {
			snprintf(ret_text, cap,
				 there ? "the argument %s has a wrong type or value" : "the argument %s is missing",
				 keys->name);
			return -1;
		}
	}
	return 0;
}

int args_parse(const char *text, size_t len, const struct args_key *keys, struct args *ret_args, char *ret_text,
	       size_t cap)
{
	memset(ret_args, 0, sizeof(*ret_args));
	ret_args->json = parse(text, len, ret_text, cap);
	return ret_args->json ? take(keys, ret_args, ret_text, cap) : -1;
}

int args_take(struct json_object *member, const struct args_key *keys, struct args *ret_args, char *ret_text,
	      size_t cap)
{
	memset(ret_args, 0, sizeof(*ret_args));
	if (!json_object_is_type(member, json_type_object)) {
		snprintf(ret_text, cap, "a member of a list is no object");
		return -1;
	}
	ret_args->json = member;
	return take(keys, ret_args, ret_text, cap);
}

void args_fini(struct args *args)
{
	json_object_put(args->json);
	args->json = NULL;
}
