/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option table, opening and closing of an instance, and check. open and close are serial per target; check runs on
 * any thread. open touches only the local disk, and leaves nothing behind in memory when it fails.
 */
#include "mock.h"

#include "null.h"
#include "opcall.h"
#include "session.h"
#include "shim.h"
#include "text.h"

#include <berth/launcher.h>

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* How long a removal that a dead process left may keep open waiting. */
#define SWEEP_NS INT64_C(2000000000)
#define NULL_RECHECK_NS INT64_C(100000000)

enum {
	OPT_RUNTIME,
	OPT_ROOT,
	OPT_FAULT_FILE,
	OPT_SUPERVISE,
	OPT_READY_DELAY,
	OPT_CREATE_SETTLE,
	OPT_SESSION_TTL,
	OPT_KILL_GRACE,
	OPT_MEMORY_MAX,
	OPT_PIDS_MAX,
	OPT_COUNT
};

#define OPTION(name, kind, text, words)                                                                                \
	{.struct_size = sizeof(struct berth_option),                                                                   \
	 .type = BERTH_OPTION_##kind,                                                                                  \
	 .key = name,                                                                                                  \
	 .default_text = text,                                                                                         \
	 .doc = words}
static const struct berth_option options[OPT_COUNT] = {
    [OPT_RUNTIME] = OPTION("runtime", STRING, "process",
			   "\"process\" runs commands as children of this machine, "
			   "\"null\" only pretends, to measure the host."),
    [OPT_ROOT] =
	OPTION("root", STRING, NULL, "The directory that plays the provider; the target's own when not given."),
    [OPT_FAULT_FILE] = OPTION("fault_file", STRING, NULL, "The file of fault rules; <root>/faults when not given."),
    [OPT_SUPERVISE] =
	OPTION("supervise", STRING, NULL, "The path of berth-supervise; the installed one when not given."),
    [OPT_READY_DELAY] = OPTION("ready_delay", DURATION, "0s", "How long a new session takes to become ready."),
    [OPT_CREATE_SETTLE] = OPTION("create_settle", DURATION, "0s",
				 "How long after a lost create its session may appear, as "
				 "told to the host."),
    [OPT_SESSION_TTL] = OPTION("session_ttl", DURATION, "0s",
			       "The furthest expiry granted, counted from now; 0 grants what "
			       "is asked."),
    [OPT_KILL_GRACE] = OPTION("kill_grace", DURATION, "2s", "Time between TERM and KILL at a timeout or a cancel."),
    [OPT_MEMORY_MAX] = OPTION("memory_max", SIZE, "0", "Memory limit of one session by control group; 0 sets none."),
    [OPT_PIDS_MAX] = OPTION("pids_max", INTEGER, "0", "Process limit of one session by control group; 0 sets none."),
};

const struct berth_option *const mock_options[] = {&options[0], &options[1], &options[2], &options[3],
						   &options[4], &options[5], &options[6], &options[7],
						   &options[8], &options[9], NULL};
_Static_assert(OPT_COUNT == sizeof(mock_options) / sizeof(mock_options[0]) - 1, "every option is in the table");

static const struct berth_option_value *value_of(const struct berth_open_args *args, unsigned which)
{
	for (size_t i = 0; i < args->option_count; i++)
		if (args->options[i]->is_set && !strcmp(args->options[i]->key, options[which].key))
			return args->options[i];
	return NULL;
}

static int64_t number_of(const struct berth_open_args *args, unsigned which)
{
	const struct berth_option_value *value = value_of(args, which);

	return value ? value->integer : 0;
}

static char *join(struct berth_str dir, const char *name)
{
	char *text = NULL;

	if (asprintf(&text, "%.*s%s%s", (int)dir.len, dir.ptr, *name ? "/" : "", name) < 0)
		return NULL;
	return text;
}

/* The option's text, or what stands in for it. NULL: no memory. */
static char *path_of(const struct berth_open_args *args, unsigned which, struct berth_str dir, const char *name)
{
	const struct berth_option_value *value = value_of(args, which);

	return value && value->string.len ? join(value->string, "") : join(dir, name);
}

static int32_t refuse(struct berth_call *call, const char *reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int32_t refuse(struct berth_call *call, const char *reason, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return shim_host.fail(call, BERTH_INVALID, reason, 0, 0, text);
}

/* The daemon's own folder is none that an operator means. */
static int32_t check_paths(const struct berth_open_args *args, struct berth_call *call)
{
	static const unsigned all[] = {OPT_ROOT, OPT_FAULT_FILE, OPT_SUPERVISE};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		const struct berth_option_value *value = value_of(args, all[i]);

		if (value && value->string.len && value->string.ptr[0] != '/')
			return refuse(call, options[all[i]].key, "%s: expected an absolute path, got \"%.*s\"",
				      options[all[i]].key, (int)value->string.len, value->string.ptr);
	}
	return BERTH_OK;
}

static int32_t set_runtime(struct mock *m, const struct berth_open_args *args, struct berth_call *call)
{
	const struct berth_option_value *value = value_of(args, OPT_RUNTIME);
	struct berth_str word = value ? value->string : text_str("process");

	m->null = word.len == 4 && !memcmp(word.ptr, "null", 4);
	if (!m->null && (word.len != 7 || memcmp(word.ptr, "process", 7)))
		return refuse(call, "runtime", "runtime is \"%.*s\", expected \"process\" or \"null\"", (int)word.len,
			      word.ptr);
	if (m->null && (number_of(args, OPT_MEMORY_MAX) || number_of(args, OPT_PIDS_MAX)))
		return refuse(call, "runtime",
			      "memory_max and pids_max mean nothing for runtime \"null\", which runs nothing");
	return BERTH_OK;
}

static int32_t set_numbers(struct mock *m, const struct berth_open_args *args, struct berth_call *call)
{
	static const unsigned all[] = {OPT_READY_DELAY, OPT_CREATE_SETTLE, OPT_SESSION_TTL,
				       OPT_KILL_GRACE,  OPT_MEMORY_MAX,    OPT_PIDS_MAX};
	char error[2560];

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (number_of(args, all[i]) < 0)
			return refuse(call, "option", "%s is negative", options[all[i]].key);
	m->ready_delay_ms = number_of(args, OPT_READY_DELAY);
	m->create_settle_ms = number_of(args, OPT_CREATE_SETTLE);
	m->session_ttl_ms = number_of(args, OPT_SESSION_TTL);
	m->kill_grace_ms = number_of(args, OPT_KILL_GRACE);
	if (!text_copy(m->deployment, sizeof(m->deployment), args->deployment))
		return refuse(call, "deployment", "the deployment's name is longer than %zu bytes",
			      sizeof(m->deployment) - 1);
	if (limit_open(&m->limits, (uint64_t)number_of(args, OPT_MEMORY_MAX), (uint64_t)number_of(args, OPT_PIDS_MAX),
		       error, sizeof(error)))
		return refuse(call, "cgroup", "%s", error);
	return BERTH_OK;
}

static int32_t set_files(struct mock *m, const struct berth_open_args *args, struct berth_call *call)
{
	char *root = path_of(args, OPT_ROOT, args->data_dir, "");
	char why[128];
	int err = root ? store_open(&m->store, root, m->null) : -ENOMEM;

	if (!err)
		err = tally_open(&m->tally, m->store.root_fd, !m->null);
	if (err == -EBADMSG)
		refuse(call, "root", "%s/counters has other rows than this version writes: move it away", root);
	else if (err)
		refuse(call, "root", "%s cannot be used: %s", root ? root : "root", strerror_r(-err, why, sizeof(why)));
	free(root);
	if (err)
		return BERTH_INVALID;
	m->fault_file = path_of(args, OPT_FAULT_FILE, text_str(m->store.root), "faults");
	m->supervise = path_of(args, OPT_SUPERVISE, args->helper_dir, "berth-supervise");
	m->cache = m->null ? null_cache_new() : NULL;
	m->launcher = m->supervise && !m->null ? berth_launcher_new(m->supervise) : NULL;
	if (!m->fault_file || !m->supervise || (m->null ? !m->cache : !m->launcher))
		return shim_host.fail(call, BERTH_UNAVAILABLE, "memory", 1, 0, "no memory");
	fault_init(&m->faults, m->fault_file, m->null ? NULL_RECHECK_NS : 0);
	return BERTH_OK;
}

static struct mock *mock_new(struct berth_target *target)
{
	struct mock *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->target = target;
	m->isolation = BERTH_ISOLATION_NONE;
	m->store.root_fd = m->store.sessions_fd = m->store.tasks_fd = m->store.new_fd = m->store.trash_fd = -1;
	m->tally.log_fd = -1;
	return m;
}

void mock_close(void *inst)
{
	struct mock *m = inst;

	if (!m)
		return;
	if (m->faults.path)
		fault_fini(&m->faults);
	null_cache_free(m->cache);
	berth_launcher_free(m->launcher);
	tally_close(&m->tally);
	store_close(&m->store);
	free(m->fault_file);
	free(m->supervise);
	free(m);
}

static void say_plainly(struct mock *m, struct berth_call *call)
{
	struct berth_str process =
	    text_str("the mock provider isolates nothing: commands run as the user of this daemon, with its "
		     "files, network and processes in reach");
	struct berth_str null = text_str("the mock provider's null runtime runs nothing: commands only pretend to end");
	struct berth_pair root = {text_str("root"), text_str(m->store.root)};

	shim_host.log(m->target, call, BERTH_LOG_WARN, m->null ? &null : &process, &root, 1);
}

int32_t mock_open(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
		  struct berth_instance_info *ret_info)
{
	struct mock *m = mock_new(args->target);
	struct opcall oc;
	int32_t rc =
	    m ? set_runtime(m, args, call) : shim_host.fail(call, BERTH_UNAVAILABLE, "memory", 1, 0, "no memory");

	if (!rc)
		rc = check_paths(args, call);
	if (!rc)
		rc = set_numbers(m, args, call);
	if (!rc)
		rc = set_files(m, args, call);
	if (!rc) {
		rc = opcall_begin(&oc, m, call, OP_OPEN, text_str(""), text_str(""));
		rc = opcall_end(&oc, rc);
	}
	if (rc) {
		mock_close(m);
		return rc;
	}
	if (effect_has(&oc.fx, FX_ISOLATION))
		m->isolation = oc.fx.isolation;
	store_tidy(&m->store);
	session_sweep(m, 0, text_boot_ns() + SWEEP_NS);
	say_plainly(m, call);
	ret_info->capabilities = m->null ? MOCK_CAPABILITIES_NULL : MOCK_CAPABILITIES;
	ret_info->create_settle_ms = m->create_settle_ms;
	ret_info->isolation = m->isolation;
	*ret_inst = m;
	return BERTH_OK;
}

static int32_t check_root(struct opcall *oc)
{
	struct mock *m = oc->m;
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "check-%ld-%lx", (long)getpid(), (unsigned long)(uintptr_t)oc);
	fd = openat(m->store.root_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return opcall_fail_errno(oc, -errno, m->store.root);
	close(fd);
	unlinkat(m->store.root_fd, name, 0);
	/* The directory may have been taken away and made anew under an open target. */
	if (access(m->store.root, W_OK))
		return opcall_fail_errno(oc, -errno, m->store.root);
	return BERTH_OK;
}

static int32_t check(struct opcall *oc)
{
	struct mock *m = oc->m;
	char error[FAULT_ERROR_MAX];
	int32_t rc = check_root(oc);

	if (rc)
		return rc;
	if (!m->null && access(m->supervise, X_OK))
		return opcall_fail(oc, BERTH_INVALID, "supervise",
				   "%s is missing or cannot be run; helper_dir of berth.conf names its folder",
				   m->supervise);
	if (fault_error(&m->faults, error))
		return opcall_fail(oc, BERTH_INVALID, "fault_file", "%s: %s", m->fault_file, error);
	return BERTH_OK;
}

int32_t mock_check(void *inst, struct berth_call *call)
{
	struct opcall oc;
	int32_t rc = opcall_begin(&oc, inst, call, OP_CHECK, text_str(""), text_str(""));

	return opcall_end(&oc, rc ? rc : check(&oc));
}
