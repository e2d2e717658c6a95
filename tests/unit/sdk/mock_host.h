/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small host for tests of a provider plugin: loads it, hands it calls, keeps what it answers. One call belongs to one
 * thread; asserts are made by the main thread, after the call.
 */
#ifndef MOCK_HOST_H
#define MOCK_HOST_H

#include <berth/provider.h>
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MOCK_MAX 400
#define S(text) ((struct berth_str){(text), strlen(text)})

struct blob {
	char *ptr;
	size_t len;
};

struct seen_session {
	char ref[BERTH_REF_MAX + 64], task[300], intent[80], dead[BERTH_REASON_MAX + 300], root[1200], boot[64];
	size_t ref_len;
	uint32_t phase, isolation;
	int64_t expires_ms;
};

struct seen_change {
	uint32_t kind, mode;
	uint64_t size;
	char path[BERTH_PATH_MAX + 1];
};

struct berth_call {
	int64_t deadline_ns;
	atomic_uint cancel;
	int cancel_fd;
	pthread_mutex_t lock; /* out[], for those who wait for bytes */
	pthread_cond_t grown;
	struct blob out[3]; /* by stream */
	const char *source;
	size_t source_len;
	struct seen_session sessions[MOCK_MAX];
	size_t session_count, created_count;
	struct seen_change changes[MOCK_MAX];
	size_t change_count;
	struct berth_ending ending;
	char ending_reason[400];
	unsigned ending_count, file_count, progress_count;
	uint64_t gap[2], file_size;
	unsigned gap_count;
	char cursor[300], token[300];
	int64_t expiry_ms;
	char reason[64], text[1024];
	uint32_t retryable;
	int64_t retry_after_ms;
};

static char mock_log[8192];

static inline int64_t mock_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static inline void mock_copy(char *dst, size_t cap, struct berth_str src)
{
	size_t len = src.len < cap - 1 ? src.len : cap - 1;

	if (len)
		memcpy(dst, src.ptr, len);
	dst[len] = '\0';
}

static void host_log(struct berth_target *target, struct berth_call *call, uint32_t level, const struct berth_str *text,
		     const struct berth_pair *pairs, size_t count)
{
	size_t used = strlen(mock_log);

	(void)target, (void)call, (void)level, (void)pairs, (void)count;
	snprintf(mock_log + used, sizeof(mock_log) - used, "%.*s\n", (int)text->len, text->ptr);
}

static void host_info(struct berth_call *call, struct berth_call_info *ret_info)
{
	ret_info->deadline_ns = call->deadline_ns;
}

static int32_t host_fail(struct berth_call *call, int32_t code, const char *reason, uint32_t retryable,
			 int64_t retry_after_ms, const char *text)
{
	snprintf(call->reason, sizeof(call->reason), "%s", reason);
	snprintf(call->text, sizeof(call->text), "%s", text);
	call->retryable = retryable;
	call->retry_after_ms = retry_after_ms;
	return code;
}

static int32_t host_emit_session(struct berth_call *call, const struct berth_session_info *info)
{
	struct seen_session *seen = &call->sessions[call->session_count];

	if (call->session_count == MOCK_MAX)
		return BERTH_INTERNAL;
	call->session_count++;
	mock_copy(seen->ref, sizeof(seen->ref), info->ref);
	seen->ref_len = info->ref.len;
	snprintf(seen->task, sizeof(seen->task), "%.*s/%.*s", (int)info->workspace_id.len, info->workspace_id.ptr,
		 (int)info->task_id.len, info->task_id.ptr);
	mock_copy(seen->intent, sizeof(seen->intent), info->intent);
	mock_copy(seen->dead, sizeof(seen->dead), info->dead_reason);
	mock_copy(seen->root, sizeof(seen->root), info->root);
	mock_copy(seen->boot, sizeof(seen->boot), info->boot_id);
	seen->phase = info->phase;
	seen->isolation = info->isolation;
	seen->expires_ms = info->expires_ms;
	return BERTH_OK;
}

static int32_t host_created(struct berth_call *call, const struct berth_session_info *info)
{
	call->created_count++;
	return host_emit_session(call, info);
}

static int32_t host_emit_cursor(struct berth_call *call, const struct berth_str *cursor)
{
	mock_copy(call->cursor, sizeof(call->cursor), *cursor);
	return BERTH_OK;
}

static int32_t host_emit_ending(struct berth_call *call, const struct berth_ending *ending)
{
	call->ending = *ending;
	mock_copy(call->ending_reason, sizeof(call->ending_reason), ending->reason);
	call->ending_count++;
	return BERTH_OK;
}

static int32_t host_emit_file(struct berth_call *call, const struct berth_file_info *info)
{
	call->file_count++;
	call->file_size = info->size;
	return BERTH_OK;
}

static int32_t host_emit_change(struct berth_call *call, const struct berth_change *change)
{
	struct seen_change *seen = &call->changes[call->change_count];

	if (call->change_count == MOCK_MAX)
		return BERTH_INTERNAL;
	call->change_count++;
	*seen = (struct seen_change){.kind = change->kind, .mode = change->mode, .size = change->size};
	mock_copy(seen->path, sizeof(seen->path), change->path);
	return BERTH_OK;
}

static int32_t host_emit_token(struct berth_call *call, const struct berth_str *token)
{
	mock_copy(call->token, sizeof(call->token), *token);
	return BERTH_OK;
}

static int32_t host_emit_expiry(struct berth_call *call, int64_t effective_ms)
{
	call->expiry_ms = effective_ms;
	return BERTH_OK;
}

static void host_progress(struct berth_call *call, uint32_t phase, const char *text)
{
	(void)phase, (void)text;
	call->progress_count++;
}

static int32_t host_started(struct berth_call *call, const struct berth_str *handle)
{
	(void)call, (void)handle;
	return BERTH_OK;
}

static int32_t host_gap(struct berth_call *call, uint32_t stream, uint64_t from, uint64_t to)
{
	(void)stream;
	call->gap[0] = from;
	call->gap[1] = to;
	call->gap_count++;
	return BERTH_OK;
}

static int32_t host_sink_write(struct berth_call *call, uint32_t stream, const void *ptr, size_t len)
{
	struct blob *blob = &call->out[stream];

	pthread_mutex_lock(&call->lock);
	blob->ptr = realloc(blob->ptr, blob->len + len + 1);
	memcpy(blob->ptr + blob->len, ptr, len);
	blob->len += len;
	blob->ptr[blob->len] = '\0';
	pthread_cond_broadcast(&call->grown);
	pthread_mutex_unlock(&call->lock);
	return BERTH_OK;
}

static int32_t host_source_read(struct berth_call *call, void *buf, size_t cap, size_t *ret_len)
{
	*ret_len = call->source_len < cap ? call->source_len : cap;
	if (*ret_len)
		memcpy(buf, call->source, *ret_len);
	call->source += *ret_len;
	call->source_len -= *ret_len;
	return BERTH_OK;
}

static uint32_t host_cancel_state(struct berth_call *call)
{
	return atomic_load(&call->cancel);
}

static int32_t host_cancel_fd(struct berth_call *call)
{
	return call->cancel_fd;
}

static void host_random(void *buf, size_t len)
{
	if (getrandom(buf, len, 0) != (ssize_t)len)
		abort();
}

static const struct berth_host mock_host_table = {
    .struct_size = sizeof(struct berth_host),
    .abi_major = BERTH_ABI_MAJOR,
    .log = host_log,
    .info = host_info,
    .fail = host_fail,
    .emit_session = host_emit_session,
    .emit_cursor = host_emit_cursor,
    .emit_ending = host_emit_ending,
    .emit_file = host_emit_file,
    .emit_change = host_emit_change,
    .emit_token = host_emit_token,
    .emit_expiry = host_emit_expiry,
    .created = host_created,
    .progress = host_progress,
    .started = host_started,
    .gap = host_gap,
    .sink_write = host_sink_write,
    .source_read = host_source_read,
    .cancel_state = host_cancel_state,
    .cancel_fd = host_cancel_fd,
    .random = host_random,
};

static inline struct berth_call *call_make(void)
{
	struct berth_call *call = calloc(1, sizeof(*call));

	assert_non_null(call);
	call->deadline_ns = mock_now_ns() + INT64_C(20000000000);
	call->cancel_fd = eventfd(0, EFD_CLOEXEC);
	pthread_mutex_init(&call->lock, NULL);
	pthread_cond_init(&call->grown, NULL);
	return call;
}

static inline void call_drop(struct berth_call *call)
{
	for (int i = 0; i < 3; i++)
		free(call->out[i].ptr);
	close(call->cancel_fd);
	pthread_mutex_destroy(&call->lock);
	pthread_cond_destroy(&call->grown);
	free(call);
}

static inline void call_stop(struct berth_call *call, uint32_t how)
{
	uint64_t one = 1;

	atomic_store(&call->cancel, how);
	assert_int_equal(write(call->cancel_fd, &one, sizeof(one)), sizeof(one));
}

/* One open target on a root of its own. */
struct rig {
	const struct berth_provider *provider;
	const struct berth_ops *ops;
	void *inst;
	struct berth_instance_info info;
	char dir[64]; /* removed with everything in it */
	char root[80];
};

struct rig_option {
	const char *key;
	const char *text; /* NULL: integer */
	int64_t integer;
};

/* Opens against the rig's root; options end with a NULL key; the call's code. */
static inline int32_t rig_open(struct rig *rig, struct berth_call *call, const struct rig_option *options)
{
	struct berth_option_value values[16] = {{0}};
	const struct berth_option_value *given[16];
	struct berth_open_args args = {.struct_size = sizeof(args),
				       .name = S("one"),
				       .deployment = S("test"),
				       .data_dir = S(rig->root),
				       .helper_dir = S(BERTH_TEST_BIN_DIR),
				       .options = given};

	for (; options && options->key; options++) {
		struct berth_option_value *value = &values[args.option_count];

		given[args.option_count++] = value;
		*value = (struct berth_option_value){
		    .struct_size = sizeof(*value), .key = options->key, .is_set = 1, .integer = options->integer};
		if (options->text)
			value->string = S(options->text);
	}
	rig->info = (struct berth_instance_info){.struct_size = sizeof(rig->info)};
	return rig->ops->open(&args, call, &rig->inst, &rig->info);
}

static inline void rig_load(struct rig *rig)
{
	void *lib = dlopen(BERTH_TEST_PLUGIN_DIR "/mock.so", RTLD_NOW | RTLD_LOCAL);
	const struct berth_provider *(*entry)(void);

	if (!lib)
		fail_msg("%s", dlerror());
	*(void **)&entry = dlsym(lib, BERTH_PROVIDER_ENTRY);
	assert_non_null(entry);
	*rig = (struct rig){.provider = entry()};
	rig->ops = rig->provider->ops;
	assert_int_equal(rig->provider->init(&mock_host_table), BERTH_OK);
	snprintf(rig->dir, sizeof(rig->dir), "/tmp/mock-test-XXXXXX");
	assert_non_null(mkdtemp(rig->dir));
	snprintf(rig->root, sizeof(rig->root), "%s/root", rig->dir);
	assert_int_equal(mkdir(rig->root, 0700), 0);
}

static inline void rig_start(struct rig *rig, const struct rig_option *options)
{
	struct berth_call *call = call_make();

	rig_load(rig);
	if (rig_open(rig, call, options))
		fail_msg("open: %s", call->text);
	call_drop(call);
}

static inline void rig_shell(const struct rig *rig, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What a test looks at and changes behind the provider's back, it does as an operator would. */
static inline void rig_shell(const struct rig *rig, const char *format, ...)
{
	char script[4096], command[4400];
	va_list args;

	va_start(args, format);
	vsnprintf(script, sizeof(script), format, args);
	va_end(args);
	snprintf(command, sizeof(command), "cd '%s' && { %s ; }", rig->root, script);
	if (system(command) != 0)
		fail_msg("the shell says no: %s", script);
}

static inline void rig_stop(struct rig *rig)
{
	if (rig->inst)
		rig->ops->close(rig->inst);
	rig_shell(rig, "cd / && rm -rf '%s'", rig->dir);
}

static inline uint64_t rig_counter(const struct rig *rig, const char *name)
{
	char path[128], row[32], value[32];
	FILE *file;
	uint64_t found = UINT64_MAX;

	snprintf(path, sizeof(path), "%s/counters", rig->root);
	file = fopen(path, "r");
	assert_non_null(file);
	while (fscanf(file, "%31s %31s", row, value) == 2)
		if (!strcmp(row, name))
			found = strtoull(value, NULL, 10);
	fclose(file);
	assert_true(found != UINT64_MAX);
	return found;
}

static inline void rig_faults(const struct rig *rig, const char *text)
{
	char path[128], temporary[140];
	FILE *file;

	snprintf(path, sizeof(path), "%s/faults", rig->root);
	snprintf(temporary, sizeof(temporary), "%s.new", path);
	file = fopen(temporary, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(rename(temporary, path), 0);
}

#define INTENT "0123456789abcdef0123456789abcdef"

static inline int32_t do_provision(struct rig *rig, struct berth_call *call, const char *workspace, const char *task,
				   int64_t expires_ms)
{
	struct berth_spec spec = {.struct_size = sizeof(spec),
				  .deployment = S("test"),
				  .workspace_id = S(workspace),
				  .task_id = S(task),
				  .intent = S(INTENT),
				  .expires_ms = expires_ms};

	return rig->ops->provision(rig->inst, call, &spec);
}

/* Provisions and returns the ref. */
static inline void make_session(struct rig *rig, const char *workspace, const char *task, char ret_ref[64])
{
	struct berth_call *call = call_make();

	assert_int_equal(do_provision(rig, call, workspace, task, 0), BERTH_OK);
	assert_int_equal(call->created_count, 1);
	snprintf(ret_ref, 64, "%.63s", call->sessions[0].ref);
	call_drop(call);
}

static inline struct berth_session session_of(const char *ref)
{
	return (struct berth_session){.struct_size = sizeof(struct berth_session), .ref = S(ref)};
}

static inline int32_t do_find(struct rig *rig, struct berth_call *call, const char *workspace, const char *task)
{
	struct berth_identity identity = {
	    .struct_size = sizeof(identity), .workspace_id = S(workspace), .task_id = S(task)};

	return rig->ops->find(rig->inst, call, &identity);
}

static inline size_t count_found(struct rig *rig, const char *workspace, const char *task)
{
	struct berth_call *call = call_make();
	size_t count;

	assert_int_equal(do_find(rig, call, workspace, task), BERTH_OK);
	count = call->session_count;
	call_drop(call);
	return count;
}

static inline int32_t do_execute(struct rig *rig, struct berth_call *call, const char *ref, const char *id,
				 const char *script)
{
	struct berth_session session = session_of(ref);
	struct berth_command command = {.struct_size = sizeof(command),
					.attempt = 1,
					.execution_id = S(id),
					.script = S(script),
					.cwd = S("."),
					.timeout_ms = 20000,
					.stdout_max = 1 << 20,
					.stderr_max = 1 << 20};

	return rig->ops->execute(rig->inst, call, &session, &command);
}

static inline int32_t do_reattach(struct rig *rig, struct berth_call *call, const char *ref, const char *id,
				  uint64_t from)
{
	struct berth_session session = session_of(ref);
	struct berth_resume resume = {
	    .struct_size = sizeof(resume), .attempt = 1, .execution_id = S(id), .stdout_offset = from};

	return rig->ops->reattach(rig->inst, call, &session, &resume);
}

static inline int32_t do_simple(struct rig *rig, struct berth_call *call, const char *ref,
				int32_t (*op)(void *, struct berth_call *, const struct berth_session *))
{
	struct berth_session session = session_of(ref);

	return op(rig->inst, call, &session);
}

/* The code of one operation whose answer does not matter. */
static inline int32_t code_of(struct rig *rig, const char *ref,
			      int32_t (*op)(void *, struct berth_call *, const struct berth_session *))
{
	struct berth_call *call = call_make();
	int32_t rc = do_simple(rig, call, ref, op);

	call_drop(call);
	return rc;
}

/* An execute on a thread of its own. */
struct background {
	struct rig *rig;
	struct berth_call *call;
	const char *ref, *id, *script;
	pthread_t thread;
	int32_t rc;
};

static inline void *background_main(void *arg)
{
	struct background *b = arg;

	b->rc = do_execute(b->rig, b->call, b->ref, b->id, b->script);
	return NULL;
}

static inline void background_start(struct background *b, struct rig *rig, const char *ref, const char *id,
				    const char *script)
{
	*b = (struct background){.rig = rig, .call = call_make(), .ref = ref, .id = id, .script = script};
	assert_int_equal(pthread_create(&b->thread, NULL, background_main, b), 0);
}

/* Until stdout has that many bytes. */
static inline void background_await(struct background *b, size_t len)
{
	struct timespec until;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 20;
	pthread_mutex_lock(&b->call->lock);
	while (!rc && b->call->out[BERTH_STREAM_STDOUT].len < len)
		rc = pthread_cond_timedwait(&b->call->grown, &b->call->lock, &until);
	pthread_mutex_unlock(&b->call->lock);
	assert_int_equal(rc, 0);
}

static inline int32_t background_join(struct background *b)
{
	pthread_join(b->thread, NULL);
	return b->rc;
}

#endif
