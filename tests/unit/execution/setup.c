/* SPDX-License-Identifier: Apache-2.0 */
#include "setup.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "execution/execution_private.h"
#include "plugin/target.h"

#define CHECK(call)                                                                                                    \
	do {                                                                                                           \
		if ((call) != 0) {                                                                                     \
			fprintf(stderr, "%s: %s\n", #call, err.msg);                                                   \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)

static char *owned(const char *text)
{
	return (char *)(uintptr_t)text;
}

static void set_conf(struct host *host, const char *runtime)
{
	const char *pairs[][2] = {
		{"root", host->root}, {"fault_file", host->faults}, {"create_settle", "0s"}, {"runtime", runtime}};

	host->conf = (struct conf){
		.deployment = owned("test"),
		.state_dir = host->dir,
		.plugin_dir = owned(BERTH_TEST_PLUGIN_DIR),
		.helper_dir = owned(BERTH_TEST_BIN_DIR),
		.lease_active_ms = 7200000,
		.lease_idle_ms = 900000,
		.gc_interval_ms = 100,
		.operation_ttl_ms = 30000,
		.claim_ttl_ms = 30000,
		.owner_ttl_ms = 30000,
		.session_max_age_ms = 86400000,
		.scheduling_ms = 20000,
		.starting_ms = 20000,
		.begin_wait_ms = 30000,
		.teardown_wait_ms = 30000,
		.task_concurrency = 16,
		.task_retention_ms = 86400000,
		.exec_timeout_ms = 60000,
		.exec_timeout_max_ms = 3600000,
		.exec_queue_ms = 600000,
		.exec_retention_ms = 86400000,
		.completion_grace_ms = 10000,
		.output_max_bytes = INT64_C(1) << 30,
		.spool_max_bytes = INT64_C(1) << 30,
		.file_max_bytes = INT64_C(1) << 30,
		.max_deliveries = 5,
		.runner_concurrency = 64,
		.queue_max = 1000,
		.stop_grace_ms = 0,
		.targets = &host->target,
		.target_count = 1,
	};
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
		host->settings[i] = (struct conf_pair){
			.key = owned(pairs[i][0]), .value = owned(pairs[i][1]), .where = owned("test")};
	host->target = (struct conf_target){
		.file = owned("test"),
		.provider = owned("mock"),
		.name = owned("one"),
		.region = owned(""),
		.required = true,
		.max_operations = 256,
		.isolation = owned(""),
		.image = owned(""),
		.settings = host->settings,
		.setting_count = sizeof(pairs) / sizeof(pairs[0]),
	};
}

void host_make(struct host *host, const char *runtime)
{
	memset(host, 0, sizeof(*host));
	snprintf(host->dir, sizeof(host->dir), "/tmp/berth-execution-XXXXXX");
	assert_non_null(mkdtemp(host->dir));
	snprintf(host->db, sizeof(host->db), "%s/berth.db", host->dir);
	snprintf(host->root, sizeof(host->root), "%s/root", host->dir);
	snprintf(host->faults, sizeof(host->faults), "%s/faults", host->dir);
	snprintf(host->key, sizeof(host->key), "%s/state.key", host->dir);
	snprintf(host->objects, sizeof(host->objects), "%s/objects", host->dir);
	assert_int_equal(mkdir(host->root, 0700), 0);
	log_init(getenv("TEST_LOG") ? LOG_DEBUG : LOG_ERROR + 1, LOG_LOGFMT);
	set_conf(host, runtime);
}

void host_up(struct host *host)
{
	struct err err = {0};

	snprintf(host->id, sizeof(host->id), "host-%u-%d", ++host->starts, (int)getpid());
	struct store_config store = {.path = host->db, .deployment = "test", .host_id = host->id, .readers = 2};

	CHECK(store_open_sqlite(&store, &host->store, &err));
	CHECK(blob_open_dir(host->objects, store_id(host->store), &host->blobs, &err));
	CHECK(registry_open(&host->conf, NULL, &host->registry, &err));
	CHECK(seal_open_file(host->key, NULL, true, &host->seal, &err));
	host->watch = watch_new();
	assert_non_null(host->watch);
	struct sessions_config sessions = {.conf = &host->conf,
					   .store = host->store,
					   .registry = host->registry,
					   .watch = host->watch,
					   .seal = host->seal,
					   .host_id = host->id};
	CHECK(sessions_new(&sessions, &host->sessions, &err));
	struct executions_config executions = {.conf = &host->conf,
					       .store = host->store,
					       .blobs = host->blobs,
					       .sessions = host->sessions,
					       .watch = host->watch,
					       .host_id = host->id};
	CHECK(executions_new(&executions, &host->e, &err));
	CHECK(sessions_start(host->sessions, &err));
	CHECK(executions_start(host->e, &err));
}

static void close_rest(struct host *host)
{
	sessions_free(host->sessions);
	registry_close(host->registry, clock_after_ms(10000));
	watch_free(host->watch);
	seal_free(host->seal);
	blob_close(host->blobs);
	store_close(host->store);
	host->e = NULL;
}

void host_down(struct host *host, int64_t grace_ms)
{
	struct executions_stat stat;

	host->conf.stop_grace_ms = grace_ms;
	executions_stop(host->e, clock_after_ms(grace_ms + 20000));
	sessions_stop(host->sessions, clock_after_ms(20000));
	executions_stat(host->e, &stat);
	assert_int_equal(stat.defects, 0);
	assert_int_equal(stat.running + stat.queued + stat.parked, 0);
	executions_free(host->e);
	close_rest(host);
}

void host_die(struct host *host)
{
	atomic_store(&host->e->dead, true);
}

void host_crash(struct host *host)
{
	host_die(host);
	sessions_stop(host->sessions, clock_boot_ns()); /* what is being provisioned is left to the next process */
	executions_free(host->e);
	close_rest(host);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void host_end(struct host *host)
{
	nftw(host->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int host_setup_made(void **state)
{
	host_make(*state, "process");
	return 0;
}

int host_setup(void **state)
{
	host_setup_made(state);
	host_up(*state);
	return 0;
}

int host_teardown(void **state)
{
	host_down(*state, 0);
	host_end(*state);
	return 0;
}

/* ---- the provider ---- */

void host_faults(struct host *host, const char *rules)
{
	char tmp[128];
	FILE *file;

	snprintf(tmp, sizeof(tmp), "%s.tmp", host->faults);
	file = fopen(tmp, "w");
	assert_non_null(file);
	fputs(rules, file);
	fclose(file);
	assert_int_equal(rename(tmp, host->faults), 0);
}

long host_counter(struct host *host, const char *name)
{
	char path[128], line[64];
	long value = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/counters", host->root);
	file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file)) {
		if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ' ')
			value = strtol(line + strlen(name), NULL, 10);
	}
	if (file)
		fclose(file);
	return value;
}

size_t host_sessions(struct host *host)
{
	char path[128];
	struct dirent *entry;
	size_t count = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/sessions", host->root);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		count += entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return count;
}

/* ---- executions ---- */

struct execution_create host_request(const char *task, const char *body)
{
	struct execution_create in = {
		.command_body = body, .command_len = strlen(body), .stdout_max = -1, .stderr_max = -1};

	snprintf(in.ident.workspace, sizeof(in.ident.workspace), "ws");
	snprintf(in.ident.task, sizeof(in.ident.task), "%s", task);
	snprintf(in.body_sha256, sizeof(in.body_sha256), "%064d", 0);
	return in;
}

int host_create(struct host *host, const struct execution_create *in, char ret_id[IDENT_ID_MAX + 1])
{
	struct err err = {0};
	bool replayed;
	int rc = execution_create(host->e, in, ret_id, &replayed, &err);

	if (rc && getenv("TEST_LOG"))
		fprintf(stderr, "create: %s\n", err.msg);
	return rc;
}

void host_start(struct host *host, const char *task, const char *body, char ret_id[IDENT_ID_MAX + 1])
{
	struct execution_create in = host_request(task, body);

	assert_int_equal(host_create(host, &in, ret_id), 0);
}

struct until {
	struct host *host;
	const char *id, *status;
};

static bool reached(void *arg)
{
	const struct until *until = arg;
	struct execution_head head;
	char *status;
	bool same;

	if (!until->status)
		return execution_head(until->host->e, until->id, &head, NULL) == 0 && head.terminal;
	status = host_get(until->host, until->id, "status");
	same = strcmp(status, until->status) == 0;
	free(status);
	return same;
}

static void wait_record(struct host *host, const char *id, const char *status)
{
	struct until until = {host, id, status};
	char key[64];

	execution_watch_key(id, key);
	if (watch_block(host->watch, key, reached, &until, clock_after_ms(WAIT_MS)))
		return;
	char *now = host_get(host, id, "status");

	fprintf(stderr, "%s is %s, not %s\n", id, now, status ? status : "terminal");
	fail();
}

void host_finish(struct host *host, const char *id)
{
	wait_record(host, id, NULL);
}

void host_until(struct host *host, const char *id, const char *status)
{
	wait_record(host, id, status);
}

void host_wait(struct host *host, bool (*check)(void *arg), void *arg)
{
	int64_t deadline = clock_after_ms(WAIT_MS);

	while (clock_left_ms(deadline) > 0) {
		if (watch_block(host->watch, "test:nothing", check, arg, clock_after_ms(20)))
			return;
	}
	fail();
}

char *host_get(struct host *host, const char *id, const char *path)
{
	struct json_object *json = NULL, *at;
	char part[64], *value;
	struct err err = {0};
	struct buf buf;

	buf_init(&buf, 8 << 20);
	if (execution_render(host->e, id, 0, &buf, NULL, &err) || json_parse(buf.ptr, buf.len, &json, &err)) {
		fprintf(stderr, "%s: %s\n", id, err.msg);
		buf_fini(&buf);
		return strdup("");
	}
	at = json;
	for (const char *from = path; at && *from;) {
		size_t len = strcspn(from, ".");

		snprintf(part, sizeof(part), "%.*s", (int)len, from);
		if (!json_object_is_type(at, json_type_object) || !json_object_object_get_ex(at, part, &at))
			at = NULL;
		from += len + (from[len] == '.');
	}
	value = strdup(at ? json_object_get_string(at) : "");
	json_object_put(json);
	buf_fini(&buf);
	return value;
}

void host_expect(struct host *host, const char *id, const char *path, const char *value)
{
	char *got = host_get(host, id, path);

	if (strcmp(got, value) != 0) {
		char *error = host_get(host, id, "error"), *reason = host_get(host, id, "reason");

		fprintf(stderr, "%s: %s is %s, not %s (reason %s: %s)\n", id, path, got, value, reason, error);
		fail();
	}
	free(got);
}

struct reading {
	struct output_reader *reader;
	uint64_t offset;
	char block[65536];
	size_t len;
	bool end;
};

static bool read_more(void *arg)
{
	struct reading *r = arg;

	assert_int_equal(output_read(r->reader, r->offset, r->block, sizeof(r->block), &r->len, &r->end, NULL), 0);
	return r->len > 0 || r->end;
}

char *host_output(struct host *host, const char *id, unsigned stream, size_t *ret_len)
{
	struct reading *r = calloc(1, sizeof(*r));
	struct buf buf;
	char key[64];

	buf_init(&buf, 1u << 30);
	output_watch_key(id, key);
	assert_int_equal(output_open(host->e, id, stream, &r->reader, NULL), 0);
	do {
		assert_true(watch_block(host->watch, key, read_more, r, clock_after_ms(WAIT_MS)));
		buf_append(&buf, r->block, r->len);
		r->offset += r->len;
	} while (!r->end || r->len > 0);
	output_close(r->reader);
	free(r);
	buf_append(&buf, "", 0);
	*ret_len = buf.len;
	return buf.ptr ? buf_take(&buf) : strdup("");
}

void host_expect_output(struct host *host, const char *id, unsigned stream, const char *text)
{
	size_t len;
	char *got = host_output(host, id, stream, &len);

	if (len != strlen(text) || memcmp(got, text, len) != 0) {
		fprintf(stderr, "%s: output is %.*s, not %s\n", id, (int)len, got, text);
		fail();
	}
	free(got);
}

/* ---- the store ---- */

struct kinds {
	const char *id;
	enum store_stream stream;
	char *ret;
	size_t cap, count;
};

static bool kinds_one(const struct stream_entry *entry, void *arg)
{
	struct kinds *k = arg;
	const char *type;

	k->count++;
	if (!k->id || strcmp(entry->subject, k->id) != 0)
		return true;
	type = strstr(entry->doc, "\"type\":\"com.agentarea.sandbox.execution.");
	assert_non_null(type);
	type += strlen("\"type\":\"com.agentarea.sandbox.execution.");
	snprintf(k->ret + strlen(k->ret), k->cap - strlen(k->ret), "%s%.*s", *k->ret ? " " : "",
		 (int)strcspn(type, "\""), type);
	return true;
}

static int kinds_step(struct txn *txn, void *arg, struct err *err)
{
	struct kinds *k = arg;

	if (k->ret)
		k->ret[0] = '\0';
	k->count = 0;
	return txn_read_stream(txn, k->stream, 0, 1000000, kinds_one, k, err);
}

void host_kinds(struct host *host, const char *id, char *ret, size_t cap)
{
	struct kinds k = {.id = id, .stream = STREAM_EVENTS, .ret = ret, .cap = cap};

	assert_int_equal(store_view(host->store, kinds_step, &k, NULL), 0);
}

size_t host_stream(struct host *host, enum store_stream stream)
{
	struct kinds k = {.stream = stream};

	assert_int_equal(store_view(host->store, kinds_step, &k, NULL), 0);
	return k.count;
}

static size_t count_words(const char *text)
{
	size_t count = *text != '\0';

	for (; *text; text++)
		count += *text == ' ';
	return count;
}

/* One event per revision, the last one is the record's status, and nothing of an open execution is left. */
void host_check_history(struct host *host, const char *id)
{
	char kinds[512], *status = host_get(host, id, "status"), *revision = host_get(host, id, "revision");
	const char *last;

	host_kinds(host, id, kinds, sizeof(kinds));
	last = strrchr(kinds, ' ');
	assert_int_equal(strncmp(kinds, "requested", 9), 0);
	assert_string_equal(last ? last + 1 : kinds, status);
	assert_int_equal(count_words(kinds), strtol(revision, NULL, 10));
	assert_false(host_has_row(host, STORE_CLAIM, id));
	free(status);
	free(revision);
}

void host_run(struct host *host, const char *task, const char *body, char ret_id[IDENT_ID_MAX + 1])
{
	host_start(host, task, body, ret_id);
	host_finish(host, ret_id);
	host_check_history(host, ret_id);
}

bool host_has_row(struct host *host, enum store_table table, const char *key)
{
	char *doc = NULL;
	bool has;

	assert_int_equal(store_get(host->store, table, key, &doc, NULL, NULL), 0);
	has = doc != NULL;
	free(doc);
	return has;
}
