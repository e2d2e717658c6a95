/* SPDX-License-Identifier: Apache-2.0 */
/* A run directory, a workspace root and a mark that finds every process of the commands run in them. */
#ifndef SUP_FIXTURE_H
#define SUP_FIXTURE_H

#include "fake_host.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <berth/supervised.h>

struct fixture {
	char base[64];
	char run[96];
	char root[96];
	char mark[48]; /* BERTH_TEST_MARK=… in every command's environment */
	struct berth_pair env[2];
	struct berth_sup sup;
	int descriptors; /* of this process at the start */
};

static inline int count_entries(const char *path)
{
	DIR *dir = opendir(path);
	int count = 0;

	assert_non_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static inline int fixture_setup(void **state)
{
	struct fixture *fx = calloc(1, sizeof(*fx));

	assert_non_null(fx);
	fx->descriptors = count_entries("/proc/self/fd");
	snprintf(fx->base, sizeof(fx->base), "/tmp/berth-sup-XXXXXX");
	assert_non_null(mkdtemp(fx->base));
	assert_int_equal(chmod(fx->base, 0711), 0);
	snprintf(fx->run, sizeof(fx->run), "%s/run", fx->base);
	snprintf(fx->root, sizeof(fx->root), "%s/root", fx->base);
	assert_int_equal(mkdir(fx->run, 0711), 0);
	assert_int_equal(chmod(fx->run, 0711), 0);
	assert_int_equal(mkdir(fx->root, 0755), 0);
	snprintf(fx->mark, sizeof(fx->mark), "%s", fx->base + strlen("/tmp/"));
	fx->env[0] = (struct berth_pair){fake_str("PATH"), fake_str("/usr/bin:/bin")};
	fx->env[1] = (struct berth_pair){fake_str("BERTH_TEST_MARK"), fake_str(fx->mark)};
	fx->sup = (struct berth_sup){
		.struct_size = sizeof(fx->sup),
		.helper = BERTH_TEST_BIN_DIR "/berth-supervise",
		.run_dir = fx->run,
		.root = fx->root,
		.env = fx->env,
		.env_count = 2,
		.uid = -1,
		.gid = -1,
		.kill_grace_ms = 200,
		.drain_grace_ms = 100,
	};
	*state = fx;
	return 0;
}

/* Processes whose environment carries the fixture's mark; zombies have none. */
static inline int fixture_processes(const struct fixture *fx)
{
	static char environ_text[1 << 18];
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	int count = 0;

	assert_non_null(proc);
	while ((entry = readdir(proc))) {
		char path[300];
		ssize_t n;
		int fd;

		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/environ", entry->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		n = read(fd, environ_text, sizeof(environ_text));
		count += n > 0 && memmem(environ_text, (size_t)n, fx->mark, strlen(fx->mark)) != NULL;
		close(fd);
	}
	closedir(proc);
	return count;
}

/* The supervisor's process number, from its mark. */
static inline pid_t supervisor_of(const struct fixture *fx, const char *id)
{
	char path[200], text[512] = "";
	const char *at;
	int fd;

	snprintf(path, sizeof(path), "%s/%s/started", fx->run, id);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (read(fd, text, sizeof(text) - 1) < 0)
		text[0] = '\0';
	close(fd);
	at = strstr(text, "\npid=");
	return at ? (pid_t)strtol(at + 5, NULL, 10) : 0;
}

static inline void run_program(const char *const argv[])
{
	char *args[8] = {NULL};
	char *no_env[] = {NULL};
	pid_t pid;
	int status;

	for (int i = 0; argv[i]; i++)
		assert_non_null((args[i] = strdup(argv[i])));
	assert_int_equal(posix_spawn(&pid, argv[0], NULL, NULL, args, no_env), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	for (int i = 0; args[i]; i++)
		free(args[i]);
}

static inline int fixture_teardown(void **state)
{
	struct fixture *fx = *state;
	const char *const remove[] = {"/bin/rm", "-rf", fx->base, NULL};

	assert_int_equal(berth_sup_kill_all(&fx->sup, fake_now_ns() + INT64_C(20000000000)), BERTH_OK);
	assert_int_equal(fixture_processes(fx), 0);
	run_program(remove);
	assert_int_equal(count_entries("/proc/self/fd"), fx->descriptors);
	free(fx);
	return 0;
}

static inline struct berth_command make_command(const char *id, const char *script)
{
	return (struct berth_command){
		.struct_size = sizeof(struct berth_command),
		.attempt = 1,
		.execution_id = fake_str(id),
		.script = fake_str(script),
		.cwd = fake_str("."),
		.timeout_ms = 30000,
		.stdout_max = UINT64_C(1) << 40,
		.stderr_max = UINT64_C(1) << 40,
	};
}

/* Runs a script under a new id; the call is left open for its results. */
static inline int32_t run_script(struct fixture *fx, struct berth_call *call, const char *script)
{
	static int number;
	struct berth_command command;
	char id[32];

	snprintf(id, sizeof(id), "script-%d", number++);
	command = make_command(id, script);
	fake_call_init(call);
	return berth_sup_execute(&fake_host, call, &fx->sup, &command);
}

static inline void assert_ending(const struct berth_call *call, uint32_t kind, int value)
{
	assert_int_equal(call->endings, 1);
	assert_int_equal(call->ending.kind, kind);
	if (kind == BERTH_ENDING_EXIT)
		assert_int_equal(call->ending.exit_code, value);
	if (kind == BERTH_ENDING_SIGNAL)
		assert_int_equal(call->ending.signal, value);
}

static inline void assert_stream(const struct berth_call *call, uint32_t stream, const char *text)
{
	assert_int_equal(call->stream[stream].len, strlen(text));
	if (*text)
		assert_memory_equal(call->stream[stream].ptr, text, strlen(text));
}

static inline bool stream_has(const struct berth_call *call, uint32_t stream, const char *text)
{
	return memmem(call->stream[stream].ptr, call->stream[stream].len, text, strlen(text)) != NULL;
}

/* One script, its exit code and its standard output. */
static inline void expect_script(struct fixture *fx, const char *script, int exit_code, const char *out)
{
	struct berth_call call;

	assert_int_equal(run_script(fx, &call, script), BERTH_OK);
	assert_ending(&call, BERTH_ENDING_EXIT, exit_code);
	assert_stream(&call, BERTH_STREAM_STDOUT, out);
	fake_call_fini(&call);
}

static inline bool root_has(const struct fixture *fx, const char *name)
{
	char path[200];

	snprintf(path, sizeof(path), "%s/%s", fx->root, name);
	return access(path, F_OK) == 0;
}

static inline void root_touch(const struct fixture *fx, const char *name)
{
	char path[200];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", fx->root, name);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
}

/* A command in a thread of its own. */
struct runner {
	struct fixture *fx;
	struct berth_call call;
	struct berth_command command;
	struct berth_resume resume; /* used when its attempt is set */
	int32_t rc;
	pthread_t thread;
};

static inline void *runner_main(void *ctx)
{
	struct runner *runner = ctx;

	if (runner->resume.attempt)
		runner->rc = berth_sup_reattach(&fake_host, &runner->call, &runner->fx->sup, &runner->resume);
	else
		runner->rc = berth_sup_execute(&fake_host, &runner->call, &runner->fx->sup, &runner->command);
	return NULL;
}

static inline void runner_start(struct runner *runner, struct fixture *fx, const char *id, const char *script)
{
	*runner = (struct runner){.fx = fx, .command = make_command(id, script)};
	fake_call_init(&runner->call);
	assert_int_equal(pthread_create(&runner->thread, NULL, runner_main, runner), 0);
}

static inline void runner_join(struct runner *runner)
{
	assert_int_equal(pthread_join(runner->thread, NULL), 0);
}

#endif
