/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration: etc/berth.conf, its providers.d folder, environment names of the reference, defaults. Read once at
 * start on the main thread; constant afterwards. Every error names file, line and key. Targets may also stand in a list
 * `targets` of the main file, before those of providers.d; the dump writes them so.
 */
#ifndef CONF_CONF_H
#define CONF_CONF_H

#include "conf/option.h"
#include "core/secret.h"

/* Scopes of tokens; one bit each. X(NAME, word) */
#define SCOPE_TABLE(X)                          \
	X(EXECUTION_CREATE, "execution.create") \
	X(EXECUTION_READ, "execution.read")     \
	X(EXECUTION_CANCEL, "execution.cancel") \
	X(FILE_READ, "file.read")               \
	X(FILE_WRITE, "file.write")             \
	X(ARTIFACT_READ, "artifact.read")       \
	X(ARTIFACT_WRITE, "artifact.write")     \
	X(SESSION_READ, "session.read")         \
	X(SESSION_DELETE, "session.delete")     \
	X(METRICS, "metrics")                   \
	X(ADMIN, "admin")
enum scope_ordinal {
#define X(name, word) SCOPE_ORDINAL_##name,
	SCOPE_TABLE(X)
#undef X
		SCOPE_COUNT
};
enum {
#define X(name, word) SCOPE_##name = 1 << SCOPE_ORDINAL_##name,
	SCOPE_TABLE(X)
#undef X
		SCOPE_OPEN = 0,
};
const char *conf_scope_word(unsigned ordinal);

/* What a process does; one bit each. X(NAME, word) */
#define ROLE_TABLE(X)       \
	X(API, "api")       \
	X(RUNNER, "runner") \
	X(GC, "gc")
enum role_ordinal {
#define X(name, word) ROLE_ORDINAL_##name,
	ROLE_TABLE(X)
#undef X
		ROLE_COUNT
};
enum {
#define X(name, word) ROLE_##name = 1 << ROLE_ORDINAL_##name,
	ROLE_TABLE(X)
#undef X
		ROLE_ALL = (1 << ROLE_COUNT) - 1,
};

struct conf_token {
	char *name;
	struct secret *secret;
	unsigned scopes;
	char **workspaces; /* NULL: all ("*") */
	size_t workspace_count;
	int64_t not_after_ms; /* 0 = never ends */
};

struct conf_target {
	char **origins; /* first: where each value is from, one per row; NULL: its default */
	char *file; /* where it stands, for messages */
	char *provider;
	char *name;
	char *region; /* "" = none */
	bool required;
	bool drained;
	int64_t max_sessions;   /* 0 = no limit */
	int64_t max_operations; /* bulkhead; default 256 */
	int64_t warm;
	char *isolation; /* "" or a word of berth/types.h: none container gvisor microvm */
	char *image;
	bool allow_internet;
	int64_t cpu_millis, memory, disk;
	struct conf_pair {
		char *key;
		char *value; /* as written, scalars turned into text */
		char *where; /* file:line */
		enum option_type kind; /* as written: a text, an integer, a float, true or false */
	} *settings; /* its `config` group, checked later against the plugin's table */
	size_t setting_count;
};

struct conf {
	char **origins; /* as in struct conf_target */
	char *file;
	char *deployment;
	char *state_dir;
	char *plugin_dir;
	char *helper_dir;
	char *roles; /* words of ROLE_TABLE; see conf_roles */
	char *listen;  /* address */
	int64_t port;
	bool behind_proxy;
	char *proxies; /* whose X-Forwarded-For counts: addresses and networks, separated by spaces */
	char *tls_cert, *tls_key; /* "" = plain HTTP */
	char *log_level;
	char *log_format;

	char *store_type; /* sqlite, redis */
	char *store_path; /* "" = <state_dir>/berth.db */
	bool store_volatile;
	char *redis_url;	    /* without a login; see redis_secret */
	char *redis_user, *redis_password;
	struct secret *redis_secret; /* the password; NULL: none, or in redis_login_url */
	struct secret *redis_login_url; /* REDIS_URL with its login; NULL: redis_url is all */
	char *redis_prefix, *redis_request_stream, *redis_event_stream, *redis_dead_stream, *redis_group;
	int64_t redis_connections, redis_min_acks, redis_ack_wait_ms;
	char *blob_type;  /* dir */
	char *blob_path;  /* "" = <state_dir>/objects */
	char *state_key;  /* "" = <state_dir>/state.key, made at first start */
	char *state_key_old;

	char *manifest;	     /* file of /runtime/manifest; "" = none */
	char *manifest_json; /* or its text */

	int64_t lease_active_ms; /* SANDBOX_TASK_LEASE_TTL */
	int64_t lease_idle_ms;   /* SANDBOX_TASK_IDLE_TTL */
	int64_t gc_interval_ms;  /* SANDBOX_TASK_GC_INTERVAL */
	int64_t operation_ttl_ms;
	int64_t claim_ttl_ms;
	int64_t owner_ttl_ms;
	int64_t session_max_age_ms;
	int64_t scheduling_ms;
	int64_t starting_ms;
	int64_t begin_wait_ms;
	int64_t teardown_wait_ms;
	int64_t task_concurrency;
	int64_t task_retention_ms;
	bool placement_pin;

	int64_t exec_timeout_ms;     /* default of a command */
	int64_t exec_timeout_max_ms;
	int64_t exec_queue_ms;       /* SANDBOX_EXECUTION_QUEUE_TIMEOUT */
	int64_t exec_retention_ms;   /* SANDBOX_EXECUTION_RECORD_TTL */
	int64_t completion_grace_ms;
	int64_t output_max_bytes;
	int64_t spool_max_bytes;
	int64_t file_max_bytes;
	int64_t file_stall_ms, file_transfer_ms; /* a provider that moves nothing; one whole transfer */
	int64_t max_deliveries;
	int64_t runner_concurrency; /* commands at once */
	int64_t queue_max;          /* queued executions kept; beyond: queue_full */
	int64_t workspace_concurrency, workspace_queue_max; /* of them, those of one workspace; 0: no limit */
	int64_t http_connections;
	int64_t http_workers;
	int64_t http_head_ms, http_idle_ms; /* a whole head; between two requests */
	int64_t http_rate_min;              /* bytes a second; 0 = only a standstill is cut */
	int64_t http_rate_window_ms;
	int64_t stop_grace_ms;

	struct conf_token *tokens;
	size_t token_count;
	struct secret *control; /* verifies signed execution tokens; NULL: none is taken */
	struct conf_target *targets; /* in the order of their file names */
	size_t target_count;
	struct conf_report *report; /* only while it is read */
};

extern const struct option_row conf_options[];        /* of struct conf */
extern const struct option_row conf_target_options[]; /* of struct conf_target */

/* Reads everything; `dev` also makes a token named "dev" with all scopes (loopback listeners only), its secret printed by
 * the caller. */
int conf_load(const char *path, bool dev, struct conf **ret, struct err *err);
/* The same; fn is told everything that it is refused for, each with file, line and key, and err holds the first. A file that
 * cannot be parsed is one refusal; what only follows from another one is none. */
typedef void conf_refusal_fn(const char *sentence, void *arg);
int conf_load_telling(const char *path, bool dev, conf_refusal_fn *fn, void *arg, struct conf **ret, struct err *err);
/* Calls fn for every option that is another one in `now`, targets as one ("targets"); `live`: it takes effect without a
 * restart. Tokens, which always do, are not compared. */
void conf_diff(const struct conf *before, const struct conf *now, void (*fn)(const char *key, bool live, void *arg),
	       void *arg);
/* One target's file alone, everything else at its default: for the conformance kit, which sets deployment and folders itself. */
int conf_load_target(const char *path, struct conf **ret, struct err *err);
void conf_free(struct conf *conf);
/* The bits of `roles`; all where there is no text. */
unsigned conf_roles(const struct conf *conf);
unsigned conf_roles_of(const char *text); /* words that are none are passed over */
/* "api gc" of ROLE_API | ROLE_GC, in the order of the table. */
#define CONF_ROLES_MAX 32
const char *conf_roles_text(unsigned roles, char ret[CONF_ROLES_MAX]);
/* The effective configuration in the file's own syntax, secrets masked; with `origins` a comment behind each value says
 * where it is from. */
void conf_dump(const struct conf *conf, bool origins, struct buf *buf);

#endif
