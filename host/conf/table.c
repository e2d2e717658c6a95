/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option tables of the host and of a target: the one home of keys, defaults, ranges and environment names.
 * Constant.
 */
#include "conf/conf.h"

#define MS INT64_C(1)
#define SEC (1000 * MS)
#define HOUR (3600 * SEC)
#define DAY (24 * HOUR)
#define TTL_MAX (366 * DAY) /* sums of a few never overflow, and nothing real is longer */
#define KIB INT64_C(1024)
#define GIB (KIB * KIB * KIB)
#define COUNT_MAX 1000000

#define AT(field) .off = offsetof(struct conf, field)
#define TEXT(key_, field, default_, ...)                                                                               \
	{                                                                                                              \
		.key = key_, .type = OPTION_STRING, AT(field), .default_text = default_, __VA_ARGS__                   \
	}
#define TTL_FROM(min_, key_, field, default_, ...)                                                                     \
	{                                                                                                              \
		.key = key_, .type = OPTION_DURATION, AT(field), .default_text = default_, .min = min_,                \
		.max = TTL_MAX, __VA_ARGS__                                                                            \
	}
#define TTL(key_, field, default_, ...) TTL_FROM(MS, key_, field, default_, __VA_ARGS__)
#define COUNT(key_, field, default_, min_, max_, ...)                                                                  \
	{                                                                                                              \
		.key = key_, .type = OPTION_INTEGER, AT(field), .default_text = default_, .min = min_, .max = max_,    \
		__VA_ARGS__                                                                                            \
	}
#define BYTES(min_, key_, field, default_, ...)                                                                        \
	{                                                                                                              \
		.key = key_, .type = OPTION_SIZE, AT(field), .default_text = default_, .min = min_, .max = 1024 * GIB, \
		__VA_ARGS__                                                                                            \
	}
#define FLAG(key_, field, ...)                                                                                         \
	{                                                                                                              \
		.key = key_, .type = OPTION_BOOLEAN, AT(field), .default_text = "false", __VA_ARGS__                   \
	}
#define WORD(key_, field, default_, ...)                                                                               \
	{                                                                                                              \
		.key = key_, .type = OPTION_WORD, AT(field), .default_text = default_, __VA_ARGS__                     \
	}

const struct option_row conf_options[] = {
    TEXT("deployment", deployment, NULL, .env = "BERTH_DEPLOYMENT", .flags = OPTION_REQUIRED,
	 .doc = "Name of this installation; marks everything it creates at a provider."),
    TEXT("state_dir", state_dir, "/var/lib/berth", .env = "BERTH_STATE_DIR",
	 .doc = "Folder of the database, objects, keys and the targets' private data."),
    TEXT("plugin_dir", plugin_dir, "/usr/lib/berth/plugins", .env = "BERTH_PLUGIN_DIR",
	 .doc = "Folder of the provider plugins."),
    TEXT("helper_dir", helper_dir, "/usr/lib/berth/helpers", .env = "BERTH_HELPER_DIR",
	 .doc = "Folder of berth-supervise and other programs that run inside sandboxes."),
    TEXT("roles", roles, "api runner gc", .env = "BERTH_ROLES",
	 .doc = "What this process does, separated by spaces: api, runner, gc; all three unless store.type is redis."),
    TTL("stop_grace", stop_grace_ms, "10s", .doc = "How long a stop waits for running calls before it detaches."),

    TEXT("http.listen", listen, "127.0.0.1", .env = "BERTH_LISTEN",
	 .doc = "Address to listen on; other than loopback needs tls_cert or behind_proxy."),
    COUNT("http.port", port, "8000", 0, 65535, .env = "BERTH_PORT", .doc = "Port to listen on; 0 takes a free one."),
    FLAG("http.behind_proxy", behind_proxy,
	 .doc = "A proxy in front ends TLS, so that another address than loopback is safe."),
    TEXT("http.proxies", proxies, "",
	 .doc = "Addresses or networks of proxies, separated by spaces, whose X-Forwarded-For names the client."),
    TEXT("http.tls_cert", tls_cert, "", .flags = OPTION_LIVE,
	 .doc = "PEM file with the server's certificate and its chain; empty serves plain HTTP."),
    TEXT("http.tls_key", tls_key, "", .flags = OPTION_LIVE, .doc = "PEM file with its key, closed to other users."),
    COUNT("http.connections", http_connections, "4096", 1, COUNT_MAX, .doc = "Connections at once."),
    COUNT("http.workers", http_workers, "64", 1, 4096, .doc = "Threads for requests that wait."),
    TTL("http.head_timeout", http_head_ms, "10s", .doc = "Time for a whole request head, a TLS handshake included."),
    TTL("http.idle_timeout", http_idle_ms, "60s", .doc = "How long a connection may be open between two requests."),
    BYTES(0, "http.rate_min", http_rate_min, "256B",
	  .doc = "Least bytes a second of bodies and of answers that wait to be taken; 0 cuts only what stands still."),
    TTL("http.rate_window", http_rate_window_ms, "30s",
	.doc = "How long a body or an answer may fall behind http.rate_min, or stand still."),
    WORD("log.level", log_level, "info", .words = "debug|info|warn|error", .flags = OPTION_LIVE, .doc = "Least level that is logged."),
    WORD("log.format", log_format, "logfmt", .words = "logfmt|json", .doc = "Form of a log line."),

    WORD("store.type", store_type, "sqlite", .words = "sqlite|redis",
	 .doc = "Where the state is kept: a database of this machine, or a Redis that several berthd share."),
    TEXT("store.path", store_path, "", .doc = "Database file; empty means berth.db in state_dir."),
    TEXT("store.state_key", state_key, "",
	 .doc = "File of the key that seals sessions' state; empty means state.key in state_dir."),
    TEXT("store.state_key_old", state_key_old, "", .doc = "File of the key before, while it is being rotated."),
    FLAG("store.volatile", store_volatile,
	 .doc = "Take a Redis that may lose the state: without append-only file, or with a policy that evicts."),
    TEXT("redis.url", redis_url, "",
	 .doc = "redis://host[:port][/db], unix:///path[?db=n] or redis+sentinel://host[:port],.../master[/db]; REDIS_URL "
		"overrides it, and may hold a login."),
    TEXT("redis.user", redis_user, "", .doc = "User of its ACL; empty is the default user."),
    TEXT("redis.password", redis_password, "", .flags = OPTION_SECRET, .doc = "Where the user's password is."),
    TEXT("redis.prefix", redis_prefix, "agentarea:sandbox", .env = "SANDBOX_CONTROL_REDIS_PREFIX",
	 .doc = "What the names of all keys but the streams begin with."),
    TEXT("redis.request_stream", redis_request_stream, "agentarea.sandbox.execution.requests",
	 .env = "SANDBOX_EXECUTION_REQUEST_STREAM", .doc = "Stream of the executions that are to run."),
    TEXT("redis.event_stream", redis_event_stream, "agentarea.sandbox.execution.events",
	 .env = "SANDBOX_EXECUTION_EVENT_STREAM", .doc = "Stream of everything that happens to executions."),
    TEXT("redis.dead_stream", redis_dead_stream, "agentarea.sandbox.execution.dead",
	 .doc = "Stream of the messages that could not be worked on."),
    TEXT("redis.group", redis_group, "agentarea-sandbox-runners", .env = "SANDBOX_RUNNER_CONSUMER_GROUP",
	 .doc = "Group of consumers of the requests."),
    COUNT("redis.connections", redis_connections, "16", 1, 1024, .doc = "Connections at once."),
    COUNT("redis.min_acks", redis_min_acks, "0", 0, 100,
	  .doc = "Replicas that must have a change before it counts; with 0 a failover may lose the last ones."),
    TTL("redis.ack_wait", redis_ack_wait_ms, "1s", .doc = "How long the replicas' word is waited for; no longer than lease.operation_ttl."),
    WORD("objects.type", blob_type, "dir", .words = "dir|s3", .doc = "Where objects are kept; this version has dir."),
    TEXT("objects.path", blob_path, "", .doc = "Folder of the objects; empty means objects in state_dir."),

    TEXT("runtime.manifest", manifest, "", .env = "SANDBOX_RUNTIME_MANIFEST_PATH",
	 .doc = "File that /runtime/manifest answers with, as it stands; empty means none."),
    TEXT("runtime.manifest_json", manifest_json, "", .env = "SANDBOX_RUNTIME_MANIFEST_JSON",
	 .doc = "The text itself instead of a file."),

    TTL("lease.active", lease_active_ms, "2h", .env = "SANDBOX_TASK_LEASE_TTL",
	.doc = "Lease of a session while operations run."),
    TTL_FROM(0, "lease.idle", lease_idle_ms, "15m", .env = "SANDBOX_TASK_IDLE_TTL",
	     .doc = "Lease after the last operation; 0 releases at once."),
    TTL("lease.operation_ttl", operation_ttl_ms, "30s", .doc = "How long an operation outlives its last renewal."),
    TTL("lease.owner_ttl", owner_ttl_ms, "30s", .doc = "How long a provisioning outlives its owner's last renewal."),
    TTL("gc.interval", gc_interval_ms, "30s", .env = "SANDBOX_TASK_GC_INTERVAL",
	.doc = "Time between two collections."),

    TTL("session.max_age", session_max_age_ms, "24h", .doc = "Ceiling of one session's life."),
    TTL("session.scheduling", scheduling_ms, "5m", .doc = "Budget of a session to be scheduled."),
    TTL("session.starting", starting_ms, "2m", .doc = "Budget of a scheduled session to become ready."),
    TTL("session.begin_wait", begin_wait_ms, "30s",
	.doc = "How long a request waits for a session that is being released."),
    TTL("session.teardown_wait", teardown_wait_ms, "30s", .doc = "How long a teardown waits for running operations."),
    COUNT("task.concurrency", task_concurrency, "16", 1, COUNT_MAX, .doc = "Operations at once in one task."),
    TTL("task.retention", task_retention_ms, "168h", .doc = "How long the row of a task without session is kept."),
    FLAG("placement.pin", placement_pin,
	 .doc = "Tasks are pinned to their target, so that several may share a region."),

    TTL("execution.timeout", exec_timeout_ms, "120s", .env = "SANDBOX_DEFAULT_EXECUTION_TIMEOUT_SECONDS",
	.flags = OPTION_SECONDS, .doc = "Timeout of a command that names none."),
    TTL("execution.timeout_max", exec_timeout_max_ms, "1800s", .env = "SANDBOX_MAX_EXECUTION_TIMEOUT_SECONDS",
	.flags = OPTION_SECONDS, .doc = "Longest timeout a command may ask for."),
    TTL("execution.queue_timeout", exec_queue_ms, "5m", .env = "SANDBOX_EXECUTION_QUEUE_TIMEOUT",
	.doc = "How long a command may wait in the queue."),
    TTL("execution.retention", exec_retention_ms, "24h", .env = "SANDBOX_EXECUTION_RECORD_TTL",
	.doc = "How long a record and its outputs live after the end."),
    TTL("execution.completion_grace", completion_grace_ms, "2m", .env = "SANDBOX_EXECUTION_COMPLETION_GRACE",
	.doc = "Time past a command's timeout for its result to be stored."),
    TTL("execution.claim_ttl", claim_ttl_ms, "30s", .doc = "How long a claim outlives its last renewal."),
    BYTES(KIB, "execution.output_max", output_max_bytes, "1GiB", .doc = "Most bytes kept of one output stream."),
    BYTES(KIB, "execution.spool_max", spool_max_bytes, "4GiB", .doc = "Most bytes of outputs on local disk at once."),
    COUNT("execution.max_deliveries", max_deliveries, "5", 1, 1000,
	  .doc = "Attempts that may end without a trace before a message is a dead letter."),
    BYTES(KIB, "files.size_max", file_max_bytes, "2GiB", .doc = "Largest file that is taken or given."),
    TTL("files.stall_timeout", file_stall_ms, "60s",
	.doc = "How long a provider may move no byte of a file before its call is given up."),
    TTL("files.transfer_timeout", file_transfer_ms, "1h", .doc = "Longest time of one transfer, however it moves."),
    COUNT("runner.concurrency", runner_concurrency, "512", 1, COUNT_MAX, .flags = OPTION_LIVE, .doc = "Commands at once."),
    COUNT("runner.queue_max", queue_max, "10000", 1, 10 * COUNT_MAX, .flags = OPTION_LIVE,
	  .doc = "Commands that may wait; more are refused."),
    COUNT("runner.workspace_concurrency", workspace_concurrency, "0", 0, COUNT_MAX, .flags = OPTION_LIVE,
	  .doc = "Commands of one workspace at once; more wait, and hold up no other's; 0 is no limit."),
    COUNT("runner.workspace_queue_max", workspace_queue_max, "0", 0, 10 * COUNT_MAX, .flags = OPTION_LIVE,
	  .doc = "Commands of one workspace that may wait; more are refused; 0 is no limit."),
    {0},
};
#undef AT
#define AT(field) .off = offsetof(struct conf_target, field)

const struct option_row conf_target_options[] = {
    TEXT("provider", provider, NULL, .env = "SANDBOX_PROVIDER", .flags = OPTION_REQUIRED,
	 .doc = "Plugin that serves this target."),
    TEXT("name", name, NULL, .flags = OPTION_REQUIRED, .doc = "Unique name of the target; keeps its meaning for ever."),
    TEXT("region", region, "", .env = "SANDBOX_REGION",
	 .doc = "Region it serves; empty serves only requests without one."),
    {.key = "required",
     .type = OPTION_BOOLEAN,
     AT(required),
     .default_text = "true",
     .doc = "A refused plugin stops the start; false turns that into a degraded target."},
    FLAG("drained", drained, .doc = "Takes no new sessions."),
    COUNT("max_sessions", max_sessions, "0", 0, COUNT_MAX, .doc = "Most sessions at once; 0 is no limit."),
    COUNT("max_operations", max_operations, "256", 1, 100000, .doc = "Most calls into the provider at once."),
    COUNT("warm", warm, "0", 0, 10000, .doc = "Sessions kept ready for new tasks."),
    WORD("isolation", isolation, "", .words = "|none|container|gvisor|microvm",
	 .doc = "Weakest isolation that is taken; empty takes what the provider gives."),
    TEXT("image", image, "", .doc = "Image or template of its sessions; empty is the provider's own."),
    FLAG("allow_internet", allow_internet, .env = "SANDBOX_ALLOW_INTERNET", .doc = "Sessions may reach the internet."),
    COUNT("cpu_millis", cpu_millis, "0", 0, 1024000,
	  .doc = "Thousandths of a processor per session; 0 is the provider's own."),
    BYTES(0, "memory", memory, "0", .doc = "Memory per session; 0 is the provider's own."),
    BYTES(0, "disk", disk, "0", .doc = "Disk per session; 0 is the provider's own."),
    {0},
};

static const char *const scope_words[] = {
#define X(name, word) word,
    SCOPE_TABLE(X)
#undef X
};

const char *conf_scope_word(unsigned ordinal)
{
	return ordinal < SCOPE_COUNT ? scope_words[ordinal] : NULL;
}
