/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's metrics: one table, counted with relaxed atomics anywhere, written as Prometheus text on request. What is
 * only known when somebody asks (gauges, the targets' own) is written through the same table by whoever knows it.
 */
#ifndef OBS_METRICS_H
#define OBS_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/buf.h"

/* Labels: X(NAME, label, most words). NONE is no label. Values are small numbers; their words are lists of constants. */
#define METRIC_DIMS(X)                                                                                                 \
	X(NONE, "", 1)                                                                                                 \
	X(ROUTE, "route", 64)                                                                                          \
	X(STATUS, "status", 40)                                                                                        \
	X(ENDING, "ending", 10)                                                                                        \
	X(OUTCOME, "outcome", 2)                                                                                       \
	X(LIMIT, "limit", 5)                                                                                           \
	X(TARGET, "target", 1) /* words of the configuration: gauges only */

/* X(NAME, type, name, unit, label, label, sentence) */
#define METRIC_TABLE(X)                                                                                                \
	X(HTTP_REQUESTS, COUNTER, "berth_http_requests_total", "requests", ROUTE, STATUS,                              \
	  "Requests that are over; status 0: cut before there was an answer.")                                         \
	X(HTTP_SECONDS, HISTOGRAM, "berth_http_request_duration_seconds", "seconds", ROUTE, NONE,                      \
	  "From the first byte of a request to the last of its answer, waits that the caller asked for included.")     \
	X(HTTP_BYTES, COUNTER, "berth_http_response_bytes_total", "bytes", NONE, NONE, "Bytes of answers' bodies.")    \
	X(HTTP_CONNECTIONS, GAUGE, "berth_http_connections", "connections", NONE, NONE, "Open connections.")           \
	X(HTTP_CUT, COUNTER, "berth_http_connections_cut_total", "connections", LIMIT, NONE,                           \
	  "Connections ended because the client was slower than a limit allows, idle, or one too many (full).")        \
	X(HTTP_UNDER_WAY, GAUGE, "berth_http_requests_under_way", "requests", NONE, NONE, "Requests not over yet.")    \
	X(HTTP_BUSY, GAUGE, "berth_http_workers_busy", "threads", NONE, NONE, "Workers that handle a request now.")    \
	X(HTTP_QUEUED, GAUGE, "berth_http_requests_queued", "requests", NONE, NONE, "Requests that wait for a worker.") \
	X(EXEC_ACCEPTED, COUNTER, "berth_executions_accepted_total", "executions", NONE, NONE,                         \
	  "Executions whose record was made.")                                                                         \
	X(EXEC_ENDED, COUNTER, "berth_executions_ended_total", "executions", ENDING, NONE,                             \
	  "Executions with a terminal record; not_run: no command was started.")                                       \
	X(EXEC_SECONDS, HISTOGRAM, "berth_execution_duration_seconds", "seconds", NONE, NONE,                          \
	  "Time that commands ran, as their provider measured it.")                                                    \
	X(EXEC_RUNNING, GAUGE, "berth_executions_running", "executions", NONE, NONE, "Executions that a runner works on.") \
	X(EXEC_QUEUED, GAUGE, "berth_executions_queued", "executions", NONE, NONE, "Executions that wait for their turn.") \
	X(EXEC_PARKED, GAUGE, "berth_executions_parked", "executions", NONE, NONE,                                     \
	  "Executions that wait for a session, for capacity or for the provider.")                                     \
	X(EXEC_DEFECTS, GAUGE, "berth_execution_defects", "transitions", NONE, NONE,                                   \
	  "Transitions that the table refused since the start: each is a defect of this program.")                     \
	X(DEAD_LETTERS, COUNTER, "berth_dead_letters_total", "letters", NONE, NONE,                                    \
	  "Messages, claims and executions that this host made dead letters.")                                         \
	X(SESSIONS, GAUGE, "berth_sessions", "sessions", TARGET, NONE, "Bindings of a target that are not gone.")      \
	X(PROVISIONS, COUNTER, "berth_session_provisions_total", "calls", OUTCOME, NONE, "Creates at a provider.")     \
	X(PROVISION_SECONDS, HISTOGRAM, "berth_session_provision_duration_seconds", "seconds", NONE, NONE,             \
	  "Time of a create at a provider, without the wait until the session is ready.")                              \
	X(RELEASES, COUNTER, "berth_session_releases_total", "calls", OUTCOME, NONE, "Releases at a provider.")        \
	X(STORE_STEPS, COUNTER, "berth_store_steps_total", "steps", NONE, NONE, "Steps that were run.")                \
	X(STORE_GROUPS, COUNTER, "berth_store_groups_total", "groups", NONE, NONE, "Commits; each holds many steps.")  \
	X(STORE_FAILURES, COUNTER, "berth_store_failures_total", "groups", NONE, NONE, "Commits that failed.")         \
	X(STORE_COMMIT_SECONDS, HISTOGRAM, "berth_store_commit_duration_seconds", "seconds", NONE, NONE,               \
	  "Time until a commit was durable.")                                                                          \
	X(STORE_ROUND_TRIPS, COUNTER, "berth_store_round_trips_total", "exchanges", NONE, NONE,                        \
	  "Exchanges with Redis; 0 with SQLite.")                                                                      \
	X(STORE_CONFLICTS, COUNTER, "berth_store_conflicts_total", "steps", NONE, NONE,                                \
	  "Steps that were run again because a row had changed meanwhile; 0 with SQLite.")                             \
	X(STORE_HEALTHY, GAUGE, "berth_store_healthy", "flag", NONE, NONE, "1 when the store takes writes.")           \
	X(TARGET_DEGRADED, GAUGE, "berth_target_degraded", "flag", TARGET, NONE, "1 when a target is degraded.")       \
	X(TARGET_RUNNING, GAUGE, "berth_target_calls_running", "calls", TARGET, NONE, "Provider calls under way.")     \
	X(TARGET_STUCK, GAUGE, "berth_target_calls_stuck", "calls", TARGET, NONE,                                      \
	  "Provider calls that are past their deadline and have not returned.")                                        \
	X(TARGET_CALLS, TOTAL, "berth_target_calls_total", "calls", TARGET, NONE, "Provider calls.")                   \
	X(TARGET_FAILURES, TOTAL, "berth_target_call_failures_total", "calls", TARGET, NONE, \
	  "Provider calls that failed, not those that found nothing.") \
	X(PROCESS_RSS, GAUGE, "process_resident_memory_bytes", "bytes", NONE, NONE, "Resident memory of the daemon.")  \
	X(PROCESS_FDS, GAUGE, "process_open_fds", "descriptors", NONE, NONE, "Open descriptors of the daemon.")        \
	X(PROCESS_THREADS, GAUGE, "process_threads", "threads", NONE, NONE, "Threads of the daemon.")                  \
	X(PLUGIN_BYTES, GAUGE, "berth_plugin_memory_bytes", "bytes", NONE, NONE,                                       \
	  "Bytes that plugins hold through the host's allocator.")                                                     \
	X(UPTIME, GAUGE, "berth_uptime_seconds", "seconds", NONE, NONE, "Time since the daemon serves.")

enum metric {
#define X(name, ...) METRIC_##name,
	METRIC_TABLE(X)
#undef X
		METRIC_COUNT
};

enum metric_dim {
#define X(name, ...) METRIC_DIM_##name,
	METRIC_DIMS(X)
#undef X
		METRIC_DIM_COUNT
};

#define METRIC_OUTCOME(code) ((code) ? 1u : 0u)

/* Any thread, no lock. `a` and `b` are places in the words of the metric's labels, 0 without one. */
void metric_add(enum metric metric, unsigned a, unsigned b, uint64_t n);
void metric_observe_ns(enum metric metric, unsigned a, int64_t ns);
/* The place of a word; of one that is not listed, the last one's. */
unsigned metric_place(enum metric_dim dim, const char *word);
const char *metric_word(enum metric_dim dim, unsigned place); /* NULL past the last */
unsigned metric_status(unsigned status);
/* Words of ROUTE, which the layer above knows; constant, before anything is counted. */
void metric_set_routes(const char *const *words, unsigned count);

/* HELP and TYPE of one; a `doc` may hold anything. type: "counter", "gauge", "histogram". */
void metric_put_head(struct buf *out, const char *name, const char *type, const char *doc);
void metric_put_label(struct buf *out, const char *label, const char *value); /* label="value", escaped */
/* A gauge or total: its head when `target` is the first or NULL, and one value. */
void metric_put(struct buf *out, enum metric metric, const char *target, bool first, double value);
/* Everything that was counted here: counters and histograms. */
void metrics_render(struct buf *out);
/* The process's own gauges. */
void metrics_render_process(struct buf *out);
/* For tests: what was added to a counter. */
uint64_t metric_value(enum metric metric, unsigned a, unsigned b);

#endif
