/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Environment names: those of the reference manager and our own override the files. Read once, on the main thread,
 * before any other thread exists. A name that this version cannot honour refuses the start; one that has no meaning
 * here is named in the log.
 */
#include "conf/internal.h"

#include <ctype.h>

#include "core/log.h"

/* Set and not empty: an empty variable counts as unset, as in the reference. */
static const char *env_get(const char *name)
{
	const char *text = getenv(name);

	return text && *text ? text : NULL;
}

static int apply_one(const struct option_row *rows, const struct option_row *row, const char *name, const char *text,
		     void *base, struct err *err)
{
	char where[128], seconds[32];

	snprintf(where, sizeof(where), "environment %s", name);
	if (!(row->flags & OPTION_SECONDS))
		return conf_store(rows, row, text, where, base, err);
	if (strlen(text) > 12 || text[strspn(text, "0123456789")])
		return err_set(err, ERR_CONFIG, "%s: %s: expected whole seconds, got \"%.60s\"", where, row->key, text);
	snprintf(seconds, sizeof(seconds), "%ss", text);
	return conf_store(rows, row, seconds, where, base, err);
}

static int apply_rows(struct conf_report *report, const struct option_row *rows, void *base, struct err *err)
{
	int rc = 0;

	for (const struct option_row *row = rows; !rc && row->key; row++) {
		const char *text = row->env ? env_get(row->env) : NULL;

		if (text)
			rc = conf_reported_key(report, apply_one(rows, row, row->env, text, base, err), "environment", row->key,
					       err);
	}
	return rc;
}

/* The reference has one budget where we have two: starting keeps its own, at most half, scheduling gets the rest. */
static int apply_provisioning(struct conf *conf, struct err *err)
{
	static const char name[] = "SANDBOX_PROVIDER_PROVISIONING_TIMEOUT";
	static const char where[] = "environment SANDBOX_PROVIDER_PROVISIONING_TIMEOUT";
	static const struct option_row row = {
	    .key = "session.scheduling + session.starting",
	    .type = OPTION_DURATION,
	    .min = 2,
	    .max = INT64_C(31622400000),
	};
	const char *text = env_get(name);
	struct option_value value;
	int rc;

	if (!text)
		return 0;
	rc = option_parse(&row, text, where, &value, err);
	if (rc)
		return rc;
	if (conf->starting_ms > value.integer / 2) {
		conf->starting_ms = value.integer / 2;
		rc = conf_note(conf_options, "session.starting", where, conf, err);
	}
	conf->scheduling_ms = value.integer - conf->starting_ms;
	return rc ? rc : conf_note(conf_options, "session.scheduling", where, conf, err);
}

/* Kubernetes quantities, as the reference writes them: "500m" and "2" processors, "512Mi" of memory. */
static int apply_quantities(struct conf_target *target, struct err *err)
{
	const char *cpu = env_get("SANDBOX_PROVIDER_CPU"), *memory = env_get("SANDBOX_PROVIDER_MEMORY");
	char *end, text[40];
	int64_t bytes;
	int rc = 0;

	if (cpu) {
		long long count = isdigit((unsigned char)*cpu) ? strtoll(cpu, &end, 10) : 0;

		if (count < 1 || count > 1024000 || (*end && strcmp(end, "m")) || (!*end && count > 1024))
			return err_set(err, ERR_CONFIG,
				       "environment SANDBOX_PROVIDER_CPU: expected \"500m\" or \"2\", got \"%.60s\"",
				       cpu);
		target->cpu_millis = *end ? count : count * 1000;
		rc = conf_note(conf_target_options, "cpu_millis", "environment SANDBOX_PROVIDER_CPU", target, err);
	}
	if (!rc && memory) {
		snprintf(text, sizeof(text), "%.36sB", memory);
		if (option_parse_size(text, &bytes) || bytes < 1)
			return err_set(err, ERR_CONFIG,
				       "environment SANDBOX_PROVIDER_MEMORY: expected \"512Mi\", got \"%.60s\"",
				       memory);
		target->memory = bytes;
		rc = conf_note(conf_target_options, "memory", "environment SANDBOX_PROVIDER_MEMORY", target, err);
	}
	return rc;
}

static const char *const target_names[] = {
    "SANDBOX_PROVIDER", "SANDBOX_REGION", "SANDBOX_ALLOW_INTERNET", "SANDBOX_PROVIDER_CPU", "SANDBOX_PROVIDER_MEMORY",
};

/* With a provider named and no target in the files, one target of that name is made. */
static int make_target(struct conf *conf, const char *provider, struct err *err)
{
	const struct option_row *row;
	struct conf_target *target = conf_add_target(conf, "environment SANDBOX_PROVIDER", err);

	if (!target)
		return err ? err->code : ERR_CONFIG;
	for (row = conf_target_options; strcmp(row->key, "name"); row++)
		;
	return conf_store(conf_target_options, row, provider, "environment SANDBOX_PROVIDER", target, err);
}

static int apply_target(struct conf *conf, struct err *err)
{
	const char *provider = env_get("SANDBOX_PROVIDER"), *used = NULL;
	int rc = 0;

	for (size_t i = 0; !used && i < sizeof(target_names) / sizeof(*target_names); i++)
		used = env_get(target_names[i]) ? target_names[i] : NULL;
	if (!used)
		return 0;
	if (conf->target_count > 1)
		return err_set(err, ERR_CONFIG, "environment %s: sets one target, but the files name %zu: %s, %s%s",
			       used, conf->target_count, conf->targets[0].file, conf->targets[1].file,
			       conf->target_count > 2 ? ", …" : "");
	if (!conf->target_count && provider)
		rc = make_target(conf, provider, err);
	if (rc || !conf->target_count)
		return rc; /* no target at all: conf_check says so */
	rc = apply_rows(conf->report, conf_target_options, &conf->targets[0], err);
	return rc ? rc : apply_quantities(&conf->targets[0], err);
}

static const struct env_token {
	const char *env;
	const char *token;
	unsigned scopes;
} env_tokens[] = {
    {"SANDBOX_CLEANUP_AUTH_SECRET", "reference-cleanup", SCOPE_SESSION_DELETE},
    {"SANDBOX_FILE_AUTH_SECRET", "reference-file",
     SCOPE_FILE_READ | SCOPE_FILE_WRITE | SCOPE_ARTIFACT_READ | SCOPE_ARTIFACT_WRITE},
    {"SANDBOX_INSPECTION_AUTH_SECRET", "reference-inspection", SCOPE_SESSION_READ},
};

static int apply_tokens(struct conf *conf, struct err *err)
{
	char source[64], where[64];
	int rc = 0;

	for (size_t i = 0; !rc && i < sizeof(env_tokens) / sizeof(*env_tokens); i++) {
		struct secret *secret = NULL;

		snprintf(source, sizeof(source), "env:%s", env_tokens[i].env);
		snprintf(where, sizeof(where), "environment %s", env_tokens[i].env);
		rc = secret_load(source, &secret, err);
		if (rc)
			rc = err_prefix(err, "%s", where);
		else if (secret)
			rc = conf_add_token(conf, env_tokens[i].token, where, secret, env_tokens[i].scopes, err);
		rc = conf_reported(conf->report, rc, err);
	}
	return rc;
}

/* The key of signed execution tokens is no token itself. */
static int apply_control(struct conf *conf, struct err *err)
{
	static const char name[] = "SANDBOX_CONTROL_AUTH_SECRET";
	size_t len;
	const void *ptr;
	int rc = secret_load("env:SANDBOX_CONTROL_AUTH_SECRET", &conf->control, err);

	if (rc || !conf->control)
		return rc ? err_prefix(err, "environment %s", name) : 0;
	rc = secret_check(conf->control, name, err);
	if (rc)
		return err_prefix(err, "environment");
	ptr = secret_ptr(conf->control, &len);
	for (size_t i = 0; i < conf->token_count; i++)
		if (secret_equal(conf->tokens[i].secret, ptr, len))
			return err_set(err, ERR_CONFIG, "environment %s: is also the secret of the token \"%s\"", name,
				       conf->tokens[i].name);
	return 0;
}

/* Honoured never, or not yet: going on without would be weaker than what was asked for. */
static const struct env_word {
	const char *name;
	const char *why;
} env_refused[] = {
    {"SANDBOX_WORKSPACE_PROVIDER", "durable workspaces are not supported yet"},
};

/* They tune what this version does not have. */
static const char *const env_unused[] = {
    "SANDBOX_PROVIDER_SESSION_TTL", "SANDBOX_RUNNER_CONSUMER_NAME",    "SANDBOX_RUNNER_BATCH_SIZE",
    "SANDBOX_RUNNER_BLOCK_TIMEOUT", "SANDBOX_RUNNER_PENDING_IDLE",     "SANDBOX_RUNNER_RECLAIM_INTERVAL",
    "SANDBOX_RUNNER_PENDING_HEARTBEAT",
};

static int check_refused(struct conf *conf, struct err *err)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < sizeof(env_refused) / sizeof(*env_refused); i++)
		if (env_get(env_refused[i].name))
			rc = conf_reported(conf->report,
					   err_set(err, ERR_CONFIG, "environment %s: %s", env_refused[i].name, env_refused[i].why),
					   err);
	for (size_t i = 0; i < sizeof(env_unused) / sizeof(*env_unused); i++)
		if (env_get(env_unused[i]))
			log_warn("an environment variable has no effect in this version", KS("name", env_unused[i]));
	return rc;
}

static int apply_options(struct conf *conf, struct err *err)
{
	return apply_rows(conf->report, conf_options, conf, err);
}

static int apply_redis(struct conf *conf, struct err *err)
{
	return conf_apply_redis(conf, env_get("REDIS_URL"), err);
}

int conf_apply_environment(struct conf *conf, struct err *err)
{
	static int (*const steps[])(struct conf *conf, struct err *err) = {
		check_refused, apply_options, apply_provisioning, apply_target, apply_tokens, apply_redis, apply_control,
	};
	int rc = 0;

	for (size_t i = 0; !rc && i < sizeof(steps) / sizeof(*steps); i++)
		rc = conf_reported(conf->report, steps[i](conf, err), err);
	return rc;
}
