/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the format of the run directory's small files (started, poison, status) and the rule that tells one process from
 * a later one with the same number. Shared by berth-supervise and the library; entered by any thread, keeps no state.
 * Must never follow a symlink in the run directory, never wait there for what a command may have put in its way (a FIFO,
 * a lock), and never report a status that is not complete.
 */
#include "supervised_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <berth/types.h>

/* Who keeps to the rules holds a lock for the time of a start. */
#define LOCK_WAIT_NS INT64_C(5000000000)
#define LOCK_PAUSE_NS 100000

int64_t sup_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (int64_t)ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static int read_fd(int fd, char *buf, size_t cap)
{
	size_t len = 0;

	for (;;) {
		ssize_t n = read(fd, buf + len, cap - len);

		if (n < 0 && errno == EINTR)
			continue;
		/* A FIFO that somebody holds open is no file of ours. */
		if (n < 0)
			return errno == EAGAIN ? -EBADMSG : -errno;
		len += (size_t)n;
		if (len == cap)
			return -EFBIG;
		if (n == 0) {
			buf[len] = '\0';
			return (int)len;
		}
	}
}

int sup_read_file(int dir, const char *name, char *buf, size_t cap)
{
	int fd = openat(dir, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	int rc;

	if (fd < 0)
		return -errno;
	rc = read_fd(fd, buf, cap);
	close(fd);
	return rc;
}

int sup_damaged(int rc)
{
	static const int errors[] = {EBADMSG, EFBIG, EISDIR, ELOOP, ENXIO};

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (rc == -errors[i])
			return 1;
	return 0;
}

int sup_write_all(int fd, const void *data, size_t len)
{
	const char *at = data;

	while (len > 0) {
		ssize_t n = write(fd, at, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

/* -ENXIO or -ELOOP: there is something else of that name. */
static int open_regular(int dir, const char *name, int *ret_fd)
{
	struct stat st;

	*ret_fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (*ret_fd < 0)
		return -errno;
	if (fstat(*ret_fd, &st) == 0 && S_ISREG(st.st_mode))
		return 0;
	close(*ret_fd);
	return -ENXIO;
}

/* What a command has put there instead of a file goes. */
static int open_temporary(int dir, const char *name, int *ret_fd)
{
	int rc = open_regular(dir, name, ret_fd);

	if (rc != -ENXIO && rc != -ELOOP)
		return rc;
	if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
		return -errno;
	*ret_fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	return *ret_fd < 0 ? -errno : 0;
}

int sup_replace_file(int dir, const char *temporary, const char *name, const void *data, size_t len, int sync)
{
	int fd, rc = open_temporary(dir, temporary, &fd);

	if (rc < 0)
		return rc;
	rc = sup_write_all(fd, data, len);
	if (rc == 0 && sync && fsync(fd) < 0)
		rc = -errno;
	close(fd);
	if (rc == 0 && renameat(dir, temporary, dir, name) < 0)
		rc = -errno;
	return rc;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static int unescape(const char *src, size_t len, char *buf, size_t cap)
{
	size_t out = 0;

	for (size_t i = 0; i < len; i++) {
		char c = src[i];

		if (c == '%') {
			if (len - i < 3 || hex_digit(src[i + 1]) < 0 || hex_digit(src[i + 2]) < 0)
				return -EINVAL;
			c = (char)(hex_digit(src[i + 1]) * 16 + hex_digit(src[i + 2]));
			i += 2;
		}
		if (c == '\0' || out + 1 >= cap)
			return -EINVAL;
		buf[out++] = c;
	}
	buf[out] = '\0';
	return (int)out;
}

int sup_value(const char *text, const char *key, char *buf, size_t cap)
{
	size_t key_len = strlen(key);

	for (const char *line = text; *line;) {
		const char *end = strchr(line, '\n');

		/* A line without its newline was cut short: it does not count. */
		if (!end)
			return -ENOENT;
		if ((size_t)(end - line) > key_len && line[key_len] == '=' && memcmp(line, key, key_len) == 0)
			return unescape(line + key_len + 1, (size_t)(end - line) - key_len - 1, buf, cap);
		line = end + 1;
	}
	return -ENOENT;
}

int sup_number(const char *text, const char *key, int64_t *ret_value)
{
	char digits[24];
	char *end;
	long long value;
	int rc = sup_value(text, key, digits, sizeof(digits));

	if (rc < 0)
		return rc;
	errno = 0;
	value = strtoll(digits, &end, 10);
	if (rc == 0 || *end || errno)
		return -EINVAL;
	*ret_value = value;
	return 0;
}

/* Whatever runs in the sandbox may have written it: a number that does not fit its field is refused, never cut to another. */
int sup_number_in(const char *text, const char *key, int64_t min, int64_t max, int64_t *ret_value)
{
	int64_t value;
	int rc = sup_number(text, key, &value);

	if (rc < 0)
		return rc;
	if (value < min || value > max)
		return -ERANGE;
	*ret_value = value;
	return 0;
}

int sup_escape(const char *src, size_t len, char *buf, size_t cap)
{
	static const char hex[] = "0123456789ABCDEF";
	size_t out = 0;

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)src[i];

		if (out + 4 > cap)
			return -ENAMETOOLONG;
		if (c >= 0x20 && c != '%' && c != 0x7f) {
			buf[out++] = (char)c;
			continue;
		}
		buf[out++] = '%';
		buf[out++] = hex[c >> 4];
		buf[out++] = hex[c & 15];
	}
	if (out >= cap)
		return -ENAMETOOLONG;
	buf[out] = '\0';
	return (int)out;
}

static int lock_within(int id_dir, int64_t wait_ns)
{
	/* An open of its own: a lock belongs to the open file, and id_dir may be shared. */
	int fd = openat(id_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int64_t until = sup_now_ns() + wait_ns;
	struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
	int err = fd < 0 ? errno : 0;

	while (err == 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EINTR && (errno != EWOULDBLOCK || sup_now_ns() >= until)) {
			err = errno == EWOULDBLOCK ? ETIMEDOUT : errno;
			break;
		}
		nanosleep(&pause, NULL);
		pause.tv_nsec *= pause.tv_nsec < 64 * LOCK_PAUSE_NS ? 2 : 1;
	}
	if (err && fd >= 0)
		close(fd);
	return err ? -err : fd;
}

int sup_lock(int id_dir)
{
	return lock_within(id_dir, LOCK_WAIT_NS);
}

static int started_parse(const char *text, struct sup_started *ret_started)
{
	struct sup_started started = {0};
	int64_t attempt, pid, start, number;

	if (sup_number_in(text, "attempt", 0, UINT32_MAX, &attempt) < 0 ||
	    sup_number_in(text, "pid", 1, INT32_MAX, &pid) < 0 || sup_number_in(text, "start", 0, INT64_MAX, &start) < 0 ||
	    sup_value(text, "boot", started.boot, sizeof(started.boot)) < 0)
		return -EBADMSG;
	started.attempt = (uint32_t)attempt;
	started.pid = (int32_t)pid;
	started.start = (uint64_t)start;
	/* One write appended both; a reader in between sees neither. */
	if (sup_number_in(text, "leader_start", 0, INT64_MAX, &number) == 0) {
		started.leader_start = (uint64_t)number;
		if (sup_number_in(text, "leader", 1, INT32_MAX, &number) == 0)
			started.leader = (int32_t)number;
	}
	(void)sup_number_in(text, "timeout_ms", 1, INT64_MAX, &started.timeout_ms);
	*ret_started = started;
	return 0;
}

int sup_started_read(int id_dir, struct sup_started *ret_started)
{
	int fd = openat(id_dir, "started", O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	char *text;
	int rc;

	/* Before the memory: most looks find nothing. */
	if (fd < 0)
		return -errno;
	text = malloc(SUP_SPEC_MAX);
	rc = text ? read_fd(fd, text, SUP_SPEC_MAX) : -ENOMEM;
	if (rc >= 0)
		rc = started_parse(text, ret_started);
	free(text);
	close(fd);
	return rc;
}

int sup_poison_read(int id_dir, uint32_t *ret_attempt)
{
	char text[SUP_SMALL_MAX];
	int64_t attempt;
	int rc = sup_read_file(id_dir, "poison", text, sizeof(text));

	if (rc == -ENOENT) {
		*ret_attempt = 0;
		return 0;
	}
	if (rc < 0)
		return rc;
	if (sup_number_in(text, "attempt", 0, UINT32_MAX, &attempt) < 0)
		return -EBADMSG;
	*ret_attempt = (uint32_t)attempt;
	return 0;
}

static int poison_locked(int id_dir, uint32_t attempt, struct sup_started *ret_started)
{
	char text[32];
	uint32_t present = 0;
	int len;
	int rc = sup_started_read(id_dir, ret_started);

	if (rc == 0)
		return 1;
	if (rc != -ENOENT)
		return rc;
	rc = sup_poison_read(id_dir, &present);
	if (rc < 0 || present >= attempt)
		return rc;
	len = snprintf(text, sizeof(text), "attempt=%" PRIu32 "\n", attempt);
	return sup_replace_file(id_dir, "poison.tmp", "poison", text, (size_t)len, 0);
}

static int poison_within(int id_dir, uint32_t attempt, int64_t wait_ns, struct sup_started *ret_started)
{
	int lock, rc = sup_started_read(id_dir, ret_started);

	/* Nothing takes a mark away again, so it needs no lock: the command may hold that. */
	if (rc != -ENOENT)
		return rc == 0 ? 1 : rc;
	lock = lock_within(id_dir, wait_ns);
	if (lock < 0)
		return lock;
	rc = poison_locked(id_dir, attempt, ret_started);
	close(lock);
	return rc;
}

int sup_poison(int id_dir, uint32_t attempt, struct sup_started *ret_started)
{
	return poison_within(id_dir, attempt, LOCK_WAIT_NS, ret_started);
}

int sup_poison_now(int id_dir, uint32_t attempt, struct sup_started *ret_started)
{
	return poison_within(id_dir, attempt, 0, ret_started);
}

static const struct {
	uint32_t kind;
	const char *word;
} kinds[] = {
	{BERTH_ENDING_EXIT, "exit"},       {BERTH_ENDING_SIGNAL, "signal"}, {BERTH_ENDING_TIMEOUT, "timeout"},
	{BERTH_ENDING_CANCELLED, "cancelled"}, {BERTH_ENDING_OOM, "oom"},   {BERTH_ENDING_UNKNOWN, "unknown"},
	{BERTH_ENDING_SESSION_LOST, "session_lost"}, {SUP_KIND_REFUSED, "refused"},
};

static const char *const quiescents[] = {
	[BERTH_QUIESCENT_UNKNOWN] = "unknown",
	[BERTH_QUIESCENT_YES] = "yes",
	[BERTH_QUIESCENT_NO] = "no",
};

/* The supervisor writes words only; anything else is not its file. */
static int reason_ok(const char *reason)
{
	return reason[strspn(reason, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static int words_read(const char *text, struct sup_status *status)
{
	char kind[16], quiescent[16];
	size_t i;

	if (sup_value(text, "kind", kind, sizeof(kind)) < 0 ||
	    sup_value(text, "quiescent", quiescent, sizeof(quiescent)) < 0 ||
	    sup_value(text, "reason", status->reason, sizeof(status->reason)) < 0 || !reason_ok(status->reason))
		return -EBADMSG;
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i].word, kind) == 0)
			status->kind = kinds[i].kind;
	for (i = 0; i < sizeof(quiescents) / sizeof(quiescents[0]); i++)
		if (strcmp(quiescents[i], quiescent) == 0)
			status->quiescent = (uint32_t)i;
	return status->kind ? 0 : -EBADMSG;
}

int sup_status_read(int attempt_dir, struct sup_status *ret_status)
{
	static const struct {
		const char *key;
		int64_t min, max;
	} keys[] = {
		{"exit_code", INT32_MIN, INT32_MAX}, {"signal", 0, INT32_MAX},	 {"survivors", 0, UINT32_MAX},
		{"duration_ms", 0, INT64_MAX},	     {"stdout", 0, INT64_MAX},	 {"stderr", 0, INT64_MAX},
		{"stdout_dropped", 0, INT64_MAX},    {"stderr_dropped", 0, INT64_MAX},
	};
	struct sup_status status = {0};
	int64_t n[sizeof(keys) / sizeof(keys[0])];
	char text[SUP_SMALL_MAX];
	int rc = sup_read_file(attempt_dir, "status", text, sizeof(text));

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (sup_number_in(text, keys[i].key, keys[i].min, keys[i].max, &n[i]) < 0)
			return -EBADMSG;
	status.exit_code = (int32_t)n[0];
	status.signal = (int32_t)n[1];
	status.survivors = (uint32_t)n[2];
	status.duration_ms = n[3];
	status.kept[0] = (uint64_t)n[4];
	status.kept[1] = (uint64_t)n[5];
	status.dropped[0] = (uint64_t)n[6];
	status.dropped[1] = (uint64_t)n[7];
	rc = words_read(text, &status);
	if (rc == 0)
		*ret_status = status;
	return rc;
}

int sup_status_write(int attempt_dir, const struct sup_status *status, int sync)
{
	char text[SUP_SMALL_MAX];
	const char *word = "unknown";
	int len;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i].kind == status->kind)
			word = kinds[i].word;
	len = snprintf(text, sizeof(text),
		       "kind=%s\nexit_code=%" PRId32 "\nsignal=%" PRId32 "\nsurvivors=%" PRIu32 "\nquiescent=%s\n"
		       "duration_ms=%" PRId64 "\nstdout=%" PRIu64 "\nstderr=%" PRIu64 "\nstdout_dropped=%" PRIu64
		       "\nstderr_dropped=%" PRIu64 "\nreason=%s\n",
		       word, status->exit_code, status->signal, status->survivors, quiescents[status->quiescent],
		       status->duration_ms, status->kept[0], status->kept[1], status->dropped[0], status->dropped[1],
		       status->reason);
	/* The environment was read before the start. Its file becomes the status: to make another costs more than all
	 * else here, and so no secret stays behind. */
	return sup_replace_file(attempt_dir, "env", "status", text, (size_t)len, sync);
}

int sup_boot_id(char *buf, size_t cap)
{
	int len = sup_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", buf, cap);

	if (len > 0 && buf[len - 1] == '\n')
		buf[--len] = '\0';
	return len;
}

int sup_proc_read(int32_t pid, struct sup_proc *ret_proc)
{
	char path[40], text[1024];
	struct sup_proc proc = {0};
	int32_t threads;
	const char *at;
	int rc;

	snprintf(path, sizeof(path), "/proc/%" PRId32 "/stat", pid);
	rc = sup_read_file(AT_FDCWD, path, text, sizeof(text));
	if (rc < 0)
		return rc == -ENOENT ? -ESRCH : rc;
	/* The name in brackets may hold anything; the fields start behind the last bracket. */
	at = strrchr(text, ')');
	if (!at || sscanf(at + 1,
			  " %c %" SCNd32 " %*d %" SCNd32
			  " %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %" SCNd32 " %*d %" SCNu64,
			  &proc.state, &proc.ppid, &proc.session, &threads, &proc.start) != 5)
		return -EBADMSG;
	/* Only its first thread has ended. */
	if (proc.state == 'Z' && threads > 1)
		proc.state = 'S';
	*ret_proc = proc;
	return 0;
}

int sup_alive(int32_t pid, uint64_t start)
{
	struct sup_proc proc;
	int rc = sup_proc_read(pid, &proc);

	if (rc < 0)
		return rc == -ESRCH ? 0 : rc;
	return proc.start == start && proc.state != 'Z' && proc.state != 'X';
}

int sup_supervisor_alive(const struct sup_started *started)
{
	char boot[SUP_BOOT_MAX];
	int rc = sup_boot_id(boot, sizeof(boot));

	if (rc < 0)
		return rc;
	return strcmp(boot, started->boot) == 0 ? sup_alive(started->pid, started->start) : 0;
}

int sup_signal_exact(int32_t pid, uint64_t start, int sig)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	int alive, rc = 0;

	if (fd < 0 && errno != ENOSYS)
		return -errno;
	/* The descriptor holds one process; if its number was reused before, the start time tells. */
	alive = sup_alive(pid, start);
	if (alive <= 0)
		rc = alive < 0 ? alive : -ESRCH;
	else if (fd >= 0 && syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0) < 0)
		rc = -errno;
	else if (fd < 0 && kill(pid, sig) < 0)
		rc = -errno;
	if (fd >= 0)
		close(fd);
	return rc;
}

int sup_signal_supervisor(const struct sup_started *started, int sig)
{
	int rc = sup_signal_exact(started->pid, started->start, sig);

	/* Its command may have stopped it. */
	if (rc == 0)
		(void)sup_signal_exact(started->pid, started->start, SIGCONT);
	return rc;
}
