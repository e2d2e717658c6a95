/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of everything that crosses the provider ABI on 64-bit machines, and the numbers behind its names. Compiled
 * as C11, never linked. A line is added when something is appended; none may change once 1.0 is frozen.
 */
#include <berth/provider.h>

#define SIZE(type, size) _Static_assert(sizeof(struct type) >= (size), "size of " #type)
/* Elements of arrays: their size is the stride that an older plugin was compiled with, so they never grow. */
#define ELEMENT(type, size) _Static_assert(sizeof(struct type) == (size), "size of the array element " #type)
#define FIELD(type, field, off, size)                                                                                  \
	_Static_assert(offsetof(struct type, field) == (off) && sizeof(((struct type *)0)->field) == (size),           \
		       #type "." #field)
#define NUMBER(name, value) _Static_assert((name) == (value), #name)

_Static_assert(sizeof(void *) == 8 && sizeof(size_t) == 8, "written for 64 bits");

ELEMENT(berth_str, 16);
FIELD(berth_str, ptr, 0, 8);
FIELD(berth_str, len, 8, 8);

ELEMENT(berth_pair, 32);
FIELD(berth_pair, name, 0, 16);
FIELD(berth_pair, value, 16, 16);

SIZE(berth_identity, 40);
FIELD(berth_identity, struct_size, 0, 4);
FIELD(berth_identity, reserved, 4, 4);
FIELD(berth_identity, workspace_id, 8, 16);
FIELD(berth_identity, task_id, 24, 16);

SIZE(berth_spec, 176);
FIELD(berth_spec, struct_size, 0, 4);
FIELD(berth_spec, isolation, 4, 4);
FIELD(berth_spec, deployment, 8, 16);
FIELD(berth_spec, workspace_id, 24, 16);
FIELD(berth_spec, task_id, 40, 16);
FIELD(berth_spec, intent, 56, 16);
FIELD(berth_spec, region, 72, 16);
FIELD(berth_spec, pool_key, 88, 16);
FIELD(berth_spec, image, 104, 16);
FIELD(berth_spec, env, 120, 8);
FIELD(berth_spec, env_count, 128, 8);
FIELD(berth_spec, cpu_millis, 136, 8);
FIELD(berth_spec, memory_bytes, 144, 8);
FIELD(berth_spec, disk_bytes, 152, 8);
FIELD(berth_spec, internet_allowed, 160, 4);
FIELD(berth_spec, reserved, 164, 4);
FIELD(berth_spec, expires_ms, 168, 8);

SIZE(berth_session, 72);
FIELD(berth_session, struct_size, 0, 4);
FIELD(berth_session, reserved, 4, 4);
FIELD(berth_session, ref, 8, 16);
FIELD(berth_session, state, 24, 16);
FIELD(berth_session, root, 40, 16);
FIELD(berth_session, boot_id, 56, 16);

SIZE(berth_session_info, 184);
FIELD(berth_session_info, struct_size, 0, 4);
FIELD(berth_session_info, phase, 4, 4);
FIELD(berth_session_info, ref, 8, 16);
FIELD(berth_session_info, state, 24, 16);
FIELD(berth_session_info, workspace_id, 40, 16);
FIELD(berth_session_info, task_id, 56, 16);
FIELD(berth_session_info, intent, 72, 16);
FIELD(berth_session_info, boot_id, 88, 16);
FIELD(berth_session_info, root, 104, 16);
FIELD(berth_session_info, dead_reason, 120, 16);
FIELD(berth_session_info, created_ms, 136, 8);
FIELD(berth_session_info, expires_ms, 144, 8);
FIELD(berth_session_info, isolation, 152, 4);
FIELD(berth_session_info, reserved, 156, 4);
FIELD(berth_session_info, cpu_millis, 160, 8);
FIELD(berth_session_info, memory_bytes, 168, 8);
FIELD(berth_session_info, disk_bytes, 176, 8);

SIZE(berth_command, 104);
FIELD(berth_command, struct_size, 0, 4);
FIELD(berth_command, attempt, 4, 4);
FIELD(berth_command, execution_id, 8, 16);
FIELD(berth_command, script, 24, 16);
FIELD(berth_command, cwd, 40, 16);
FIELD(berth_command, env, 56, 8);
FIELD(berth_command, env_count, 64, 8);
FIELD(berth_command, has_stdin, 72, 4);
FIELD(berth_command, keep_descendants, 76, 4);
FIELD(berth_command, timeout_ms, 80, 8);
FIELD(berth_command, stdout_max, 88, 8);
FIELD(berth_command, stderr_max, 96, 8);

SIZE(berth_execution, 40);
FIELD(berth_execution, struct_size, 0, 4);
FIELD(berth_execution, attempt, 4, 4);
FIELD(berth_execution, id, 8, 16);
FIELD(berth_execution, handle, 24, 16);

SIZE(berth_resume, 56);
FIELD(berth_resume, struct_size, 0, 4);
FIELD(berth_resume, attempt, 4, 4);
FIELD(berth_resume, execution_id, 8, 16);
FIELD(berth_resume, handle, 24, 16);
FIELD(berth_resume, stdout_offset, 40, 8);
FIELD(berth_resume, stderr_offset, 48, 8);

SIZE(berth_ending, 64);
FIELD(berth_ending, struct_size, 0, 4);
FIELD(berth_ending, kind, 4, 4);
FIELD(berth_ending, exit_code, 8, 4);
FIELD(berth_ending, signal, 12, 4);
FIELD(berth_ending, survivors, 16, 4);
FIELD(berth_ending, quiescent, 20, 4);
FIELD(berth_ending, duration_ms, 24, 8);
FIELD(berth_ending, stdout_dropped, 32, 8);
FIELD(berth_ending, stderr_dropped, 40, 8);
FIELD(berth_ending, reason, 48, 16);

SIZE(berth_file_write, 48);
FIELD(berth_file_write, struct_size, 0, 4);
FIELD(berth_file_write, mode, 4, 4);
FIELD(berth_file_write, path, 8, 16);
FIELD(berth_file_write, size, 24, 8);
FIELD(berth_file_write, sha256, 32, 16);

SIZE(berth_file_info, 48);
FIELD(berth_file_info, struct_size, 0, 4);
FIELD(berth_file_info, kind, 4, 4);
FIELD(berth_file_info, path, 8, 16);
FIELD(berth_file_info, size, 24, 8);
FIELD(berth_file_info, mtime_ms, 32, 8);
FIELD(berth_file_info, mode, 40, 4);
FIELD(berth_file_info, reserved, 44, 4);

SIZE(berth_change, 40);
FIELD(berth_change, struct_size, 0, 4);
FIELD(berth_change, kind, 4, 4);
FIELD(berth_change, path, 8, 16);
FIELD(berth_change, size, 24, 8);
FIELD(berth_change, mode, 32, 4);
FIELD(berth_change, reserved, 36, 4);

SIZE(berth_call_info, 48);
FIELD(berth_call_info, struct_size, 0, 4);
FIELD(berth_call_info, reserved, 4, 4);
FIELD(berth_call_info, deadline_ns, 8, 8);
FIELD(berth_call_info, request_id, 16, 16);
FIELD(berth_call_info, traceparent, 32, 16);

SIZE(berth_http_request, 256);
FIELD(berth_http_request, struct_size, 0, 4);
FIELD(berth_http_request, flags, 4, 4);
FIELD(berth_http_request, method, 8, 16);
FIELD(berth_http_request, url, 24, 16);
FIELD(berth_http_request, headers, 40, 8);
FIELD(berth_http_request, header_count, 48, 8);
FIELD(berth_http_request, secret_headers, 56, 8);
FIELD(berth_http_request, secret_header_count, 64, 8);
FIELD(berth_http_request, body, 72, 16);
FIELD(berth_http_request, read, 88, 8);
FIELD(berth_http_request, body_size, 96, 8);
FIELD(berth_http_request, write, 104, 8);
FIELD(berth_http_request, head, 112, 8);
FIELD(berth_http_request, ctx, 120, 8);
FIELD(berth_http_request, unix_socket, 128, 16);
FIELD(berth_http_request, proxy, 144, 16);
FIELD(berth_http_request, ca_pem, 160, 16);
FIELD(berth_http_request, client_cert_pem, 176, 16);
FIELD(berth_http_request, client_key_pem, 192, 16);
FIELD(berth_http_request, tls_server_name, 208, 16);
FIELD(berth_http_request, connect_timeout_ms, 224, 8);
FIELD(berth_http_request, idle_timeout_ms, 232, 8);
FIELD(berth_http_request, total_timeout_ms, 240, 8);
FIELD(berth_http_request, response_max, 248, 8);

SIZE(berth_http_response, 24);
FIELD(berth_http_response, struct_size, 0, 4);
FIELD(berth_http_response, status, 4, 4);
FIELD(berth_http_response, sent, 8, 4);
FIELD(berth_http_response, reserved, 12, 4);
FIELD(berth_http_response, retry_after_ms, 16, 8);

SIZE(berth_host, 216);
FIELD(berth_host, struct_size, 0, 4);
FIELD(berth_host, abi_major, 4, 2);
FIELD(berth_host, abi_minor, 6, 2);
FIELD(berth_host, log, 8, 8);
FIELD(berth_host, info, 16, 8);
FIELD(berth_host, fail, 24, 8);
FIELD(berth_host, emit_session, 32, 8);
FIELD(berth_host, emit_cursor, 40, 8);
FIELD(berth_host, emit_ending, 48, 8);
FIELD(berth_host, emit_file, 56, 8);
FIELD(berth_host, emit_change, 64, 8);
FIELD(berth_host, emit_token, 72, 8);
FIELD(berth_host, emit_expiry, 80, 8);
FIELD(berth_host, created, 88, 8);
FIELD(berth_host, progress, 96, 8);
FIELD(berth_host, started, 104, 8);
FIELD(berth_host, gap, 112, 8);
FIELD(berth_host, sink_write, 120, 8);
FIELD(berth_host, source_read, 128, 8);
FIELD(berth_host, cancel_state, 136, 8);
FIELD(berth_host, cancel_fd, 144, 8);
FIELD(berth_host, http, 152, 8);
FIELD(berth_host, random, 160, 8);
FIELD(berth_host, secret, 168, 8);
FIELD(berth_host, counter, 176, 8);
FIELD(berth_host, histogram, 184, 8);
FIELD(berth_host, changed, 192, 8);
FIELD(berth_host, alloc, 200, 8);
FIELD(berth_host, free, 208, 8);

SIZE(berth_option, 40);
FIELD(berth_option, struct_size, 0, 4);
FIELD(berth_option, type, 4, 4);
FIELD(berth_option, key, 8, 8);
FIELD(berth_option, default_text, 16, 8);
FIELD(berth_option, required, 24, 4);
FIELD(berth_option, secret, 28, 4);
FIELD(berth_option, doc, 32, 8);

SIZE(berth_option_value, 56);
FIELD(berth_option_value, struct_size, 0, 4);
FIELD(berth_option_value, type, 4, 4);
FIELD(berth_option_value, key, 8, 8);
FIELD(berth_option_value, is_set, 16, 4);
FIELD(berth_option_value, reserved, 20, 4);
FIELD(berth_option_value, integer, 24, 8);
FIELD(berth_option_value, number, 32, 8);
FIELD(berth_option_value, string, 40, 16);

SIZE(berth_metric, 32);
FIELD(berth_metric, struct_size, 0, 4);
FIELD(berth_metric, type, 4, 4);
FIELD(berth_metric, name, 8, 8);
FIELD(berth_metric, unit, 16, 8);
FIELD(berth_metric, doc, 24, 8);

SIZE(berth_open_args, 112);
FIELD(berth_open_args, struct_size, 0, 4);
FIELD(berth_open_args, reserved, 4, 4);
FIELD(berth_open_args, target, 8, 8);
FIELD(berth_open_args, name, 16, 16);
FIELD(berth_open_args, deployment, 32, 16);
FIELD(berth_open_args, region, 48, 16);
FIELD(berth_open_args, data_dir, 64, 16);
FIELD(berth_open_args, helper_dir, 80, 16);
FIELD(berth_open_args, options, 96, 8);
FIELD(berth_open_args, option_count, 104, 8);

SIZE(berth_instance_info, 32);
FIELD(berth_instance_info, struct_size, 0, 4);
FIELD(berth_instance_info, reserved, 4, 4);
FIELD(berth_instance_info, capabilities, 8, 8);
FIELD(berth_instance_info, create_settle_ms, 16, 8);
FIELD(berth_instance_info, isolation, 24, 4);
FIELD(berth_instance_info, reserved2, 28, 4);

SIZE(berth_ops, 208);
FIELD(berth_ops, struct_size, 0, 4);
FIELD(berth_ops, reserved, 4, 4);
FIELD(berth_ops, open, 8, 8);
FIELD(berth_ops, close, 16, 8);
FIELD(berth_ops, check, 24, 8);
FIELD(berth_ops, find, 32, 8);
FIELD(berth_ops, list, 40, 8);
FIELD(berth_ops, provision, 48, 8);
FIELD(berth_ops, await_ready, 56, 8);
FIELD(berth_ops, assign, 64, 8);
FIELD(berth_ops, inspect, 72, 8);
FIELD(berth_ops, execute, 80, 8);
FIELD(berth_ops, reattach, 88, 8);
FIELD(berth_ops, forget, 96, 8);
FIELD(berth_ops, send_signal, 104, 8);
FIELD(berth_ops, file_read, 112, 8);
FIELD(berth_ops, file_write, 120, 8);
FIELD(berth_ops, file_stat, 128, 8);
FIELD(berth_ops, file_list, 136, 8);
FIELD(berth_ops, file_remove, 144, 8);
FIELD(berth_ops, file_move, 152, 8);
FIELD(berth_ops, import_tar, 160, 8);
FIELD(berth_ops, export_tar, 168, 8);
FIELD(berth_ops, mark, 176, 8);
FIELD(berth_ops, changes, 184, 8);
FIELD(berth_ops, renew, 192, 8);
FIELD(berth_ops, release, 200, 8);

SIZE(berth_provider, 112);
FIELD(berth_provider, magic, 0, 4);
FIELD(berth_provider, abi_major, 4, 2);
FIELD(berth_provider, abi_minor, 6, 2);
FIELD(berth_provider, struct_size, 8, 4);
FIELD(berth_provider, flags, 12, 4);
FIELD(berth_provider, name, 16, 8);
FIELD(berth_provider, version, 24, 8);
FIELD(berth_provider, build_id, 32, 8);
FIELD(berth_provider, capabilities, 40, 8);
FIELD(berth_provider, init, 48, 8);
FIELD(berth_provider, fini, 56, 8);
FIELD(berth_provider, ops, 64, 8);
FIELD(berth_provider, options, 72, 8);
FIELD(berth_provider, metrics, 80, 8);
FIELD(berth_provider, reserved, 88, 24);
NUMBER(BERTH_ABI_MAJOR, 1u);
NUMBER(BERTH_PROVIDER_MAGIC, 1112691784u);
NUMBER(BERTH_OK, 0u);
NUMBER(BERTH_INVALID, 1u);
NUMBER(BERTH_NOT_FOUND, 2u);
NUMBER(BERTH_NOT_STARTED, 3u);
NUMBER(BERTH_CONFLICT, 4u);
NUMBER(BERTH_CAPACITY, 5u);
NUMBER(BERTH_QUOTA, 6u);
NUMBER(BERTH_RATE_LIMITED, 7u);
NUMBER(BERTH_UNAUTHENTICATED, 8u);
NUMBER(BERTH_FORBIDDEN, 9u);
NUMBER(BERTH_UNAVAILABLE, 10u);
NUMBER(BERTH_TIMEOUT, 11u);
NUMBER(BERTH_CANCELLED, 12u);
NUMBER(BERTH_SESSION_LOST, 13u);
NUMBER(BERTH_UNSUPPORTED, 14u);
NUMBER(BERTH_UNKNOWN, 15u);
NUMBER(BERTH_STORAGE_FULL, 16u);
NUMBER(BERTH_INTERNAL, 17u);
NUMBER(BERTH_CAP_THREADSAFE, 1u);
NUMBER(BERTH_CAP_REATTACH, 2u);
NUMBER(BERTH_CAP_SIGNAL, 4u);
NUMBER(BERTH_CAP_BULK, 8u);
NUMBER(BERTH_CAP_CHANGES, 16u);
NUMBER(BERTH_CAP_RENEW, 32u);
NUMBER(BERTH_CAP_ASSIGN_TAGS, 64u);
NUMBER(BERTH_CAP_NATIVE_POOL, 128u);
NUMBER(BERTH_CAP_IDEMPOTENT_EXEC, 256u);
NUMBER(BERTH_PHASE_QUEUED, 1u);
NUMBER(BERTH_PHASE_UNSCHEDULABLE, 2u);
NUMBER(BERTH_PHASE_PULLING, 3u);
NUMBER(BERTH_PHASE_STARTING, 4u);
NUMBER(BERTH_PHASE_READY, 5u);
NUMBER(BERTH_PHASE_DEAD, 6u);
NUMBER(BERTH_PHASE_PAUSED, 7u);
NUMBER(BERTH_PHASE_STOPPING, 8u);
NUMBER(BERTH_ISOLATION_UNSET, 0u);
NUMBER(BERTH_ISOLATION_NONE, 10u);
NUMBER(BERTH_ISOLATION_CONTAINER, 20u);
NUMBER(BERTH_ISOLATION_GVISOR, 30u);
NUMBER(BERTH_ISOLATION_MICROVM, 40u);
NUMBER(BERTH_CANCEL_NONE, 0u);
NUMBER(BERTH_CANCEL_STOP, 1u);
NUMBER(BERTH_CANCEL_DETACH, 2u);
NUMBER(BERTH_STREAM_DATA, 0u);
NUMBER(BERTH_STREAM_STDOUT, 1u);
NUMBER(BERTH_STREAM_STDERR, 2u);
NUMBER(BERTH_ENDING_EXIT, 1u);
NUMBER(BERTH_ENDING_SIGNAL, 2u);
NUMBER(BERTH_ENDING_TIMEOUT, 3u);
NUMBER(BERTH_ENDING_CANCELLED, 4u);
NUMBER(BERTH_ENDING_OOM, 5u);
NUMBER(BERTH_ENDING_SESSION_LOST, 6u);
NUMBER(BERTH_ENDING_UNKNOWN, 7u);
NUMBER(BERTH_QUIESCENT_UNKNOWN, 0u);
NUMBER(BERTH_QUIESCENT_YES, 1u);
NUMBER(BERTH_QUIESCENT_NO, 2u);
NUMBER(BERTH_SIGNAL_TERM, 1u);
NUMBER(BERTH_SIGNAL_KILL, 2u);
NUMBER(BERTH_FILE_REGULAR, 1u);
NUMBER(BERTH_FILE_DIRECTORY, 2u);
NUMBER(BERTH_FILE_SYMLINK, 3u);
NUMBER(BERTH_FILE_OTHER, 4u);
NUMBER(BERTH_SIZE_UNKNOWN, 18446744073709551615ull);
NUMBER(BERTH_REF_MAX, 256u);
NUMBER(BERTH_STATE_MAX, 4096u);
NUMBER(BERTH_HANDLE_MAX, 1024u);
NUMBER(BERTH_REASON_MAX, 31u);
NUMBER(BERTH_TEXT_MAX, 1024u);
NUMBER(BERTH_PATH_MAX, 1024u);
NUMBER(BERTH_CURSOR_MAX, 4096u);
NUMBER(BERTH_TOKEN_MAX, 4096u);
NUMBER(BERTH_INTENT_MAX, 64u);
NUMBER(BERTH_BOOT_ID_MAX, 256u);
NUMBER(BERTH_RESULTS_MAX, 100000u);
NUMBER(BERTH_EXPIRES_NEVER, INT64_MAX);
NUMBER(BERTH_LOG_DEBUG, 0u);
NUMBER(BERTH_LOG_INFO, 1u);
NUMBER(BERTH_LOG_WARN, 2u);
NUMBER(BERTH_LOG_ERROR, 3u);
NUMBER(BERTH_HTTP_LONG, 1u);
NUMBER(BERTH_HTTP_TLS_INSECURE, 2u);
NUMBER(BERTH_OPTION_STRING, 1u);
NUMBER(BERTH_OPTION_INTEGER, 2u);
NUMBER(BERTH_OPTION_BOOLEAN, 3u);
NUMBER(BERTH_OPTION_DURATION, 4u);
NUMBER(BERTH_OPTION_SIZE, 5u);
NUMBER(BERTH_OPTION_FLOAT, 6u);
NUMBER(BERTH_METRIC_COUNTER, 1u);
NUMBER(BERTH_METRIC_HISTOGRAM, 2u);
NUMBER(BERTH_REMOVE_RECURSIVE, 1u);
NUMBER(BERTH_LIST_RECURSIVE, 1u);
