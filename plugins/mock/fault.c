/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching the fault file and deciding which rules a call fires. Entered by every thread of every operation; the lock
 * is held for looking at the file and taking a reference, never while a fault acts. With recheck_ns and no rules the
 * path is one load of a clock and two of atomics, so that the null runtime measures its host and not this.
 */
#include "fault.h"

#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

void fault_init(struct faults *faults, const char *path, int64_t recheck_ns)
{
	*faults = (struct faults){.path = path, .recheck_ns = recheck_ns};
	atomic_init(&faults->checked_ns, INT64_MIN / 2);
	atomic_init(&faults->active, false);
	atomic_init(&faults->news, false);
	pthread_mutex_init(&faults->lock, NULL);
}

static void set_unref(struct fault_set *set)
{
	if (set && atomic_fetch_sub(&set->refs, 1) == 1)
		free(set);
}

void fault_fini(struct faults *faults)
{
	set_unref(faults->set);
	pthread_mutex_destroy(&faults->lock);
}

static bool same_file(const struct faults *faults, const struct stat *st)
{
	return faults->seen && faults->dev == st->st_dev && faults->ino == st->st_ino && faults->size == st->st_size &&
	       faults->mtime.tv_sec == st->st_mtim.tv_sec && faults->mtime.tv_nsec == st->st_mtim.tv_nsec;
}

static void note_file(struct faults *faults, const struct stat *st)
{
	faults->seen = true;
	faults->dev = st->st_dev;
	faults->ino = st->st_ino;
	faults->size = st->st_size;
	faults->mtime = st->st_mtim;
}

static char *read_text(int fd, char ret_error[FAULT_ERROR_MAX])
{
	char *text = malloc(FAULT_FILE_MAX + 1);
	size_t len = 0;
	ssize_t got = 1;

	while (text && got > 0 && len <= FAULT_FILE_MAX) {
		got = read(fd, text + len, FAULT_FILE_MAX + 1 - len);
		len += got > 0 ? (size_t)got : 0;
	}
	if (text && got >= 0 && len <= FAULT_FILE_MAX && !memchr(text, '\0', len)) {
		text[len] = '\0';
		return text;
	}
	snprintf(ret_error, FAULT_ERROR_MAX, got < 0 ? "cannot be read" : "is no text of at most %d bytes",
		 FAULT_FILE_MAX);
	free(text);
	return NULL;
}

static void forget_locked(struct faults *faults)
{
	set_unref(faults->set);
	faults->set = NULL;
	faults->error[0] = '\0';
}

/* Reads the file again when it is another one than last time. */
static void refresh_locked(struct faults *faults)
{
	struct stat st;
	char *text;
	int fd = -1;

	if (stat(faults->path, &st) || (fd = open(faults->path, O_RDONLY | O_CLOEXEC)) < 0 || fstat(fd, &st)) {
		int rc = errno;

		forget_locked(faults);
		faults->seen = false;
		if (rc != ENOENT)
			snprintf(faults->error, sizeof(faults->error), "cannot be read: errno %d", rc);
	} else if (!same_file(faults, &st)) {
		forget_locked(faults);
		note_file(faults, &st);
		text = read_text(fd, faults->error);
		if (text)
			faults->set = fault_parse(text, faults->error);
		free(text);
		atomic_store(&faults->news, *faults->error);
	}
	if (fd >= 0)
		close(fd);
	atomic_store(&faults->active, faults->set && faults->set->count);
}

/* True when the last look is still good; else this thread is the one to look, unless another just took that on. */
static bool fresh(struct faults *faults)
{
	int64_t now, last;

	if (!faults->recheck_ns)
		return false;
	now = text_boot_ns();
	last = atomic_load_explicit(&faults->checked_ns, memory_order_relaxed);
	if (now - last < faults->recheck_ns)
		return true;
	return !atomic_compare_exchange_strong(&faults->checked_ns, &last, now);
}

static struct fault_set *current_set(struct faults *faults)
{
	bool good = fresh(faults);
	struct fault_set *set;

	if (good && !atomic_load_explicit(&faults->active, memory_order_relaxed))
		return NULL;
	pthread_mutex_lock(&faults->lock);
	if (!good)
		refresh_locked(faults);
	set = faults->set;
	if (set)
		atomic_fetch_add(&set->refs, 1);
	pthread_mutex_unlock(&faults->lock);
	return set;
}

static bool matches(const struct fault_rule *rule, enum op op, const char *workspace, const char *task)
{
	size_t len = strlen(workspace);

	if (!(rule->ops & OP_BIT(op)))
		return false;
	return rule->any_task ||
	       (!strncmp(rule->task, workspace, len) && rule->task[len] == '/' && !strcmp(rule->task + len + 1, task));
}

/* Counts this call for the rule and tells whether the rule fires for it. */
static bool fires(struct fault_rule *rule)
{
	uint64_t n = atomic_fetch_add(&rule->seen, 1) + 1;

	if ((rule->nth && n != rule->nth) || (rule->every && n % rule->every) || n < rule->from)
		return false;
	return !rule->count || atomic_fetch_add(&rule->fired, 1) < rule->count;
}

bool fault_take(struct faults *faults, enum op op, const char *workspace, const char *task, struct effect *ret)
{
	struct fault_set *set = current_set(faults);
	uint32_t allowed = fault_allowed(op);

	if (!set)
		return false;
	for (size_t i = 0; i < set->count; i++) {
		struct fault_rule *rule = &set->rules[i];

		/* A rule for "*" meets only the calls that at least one of its effects means something for. */
		if (matches(rule, op, workspace, task) && (rule->fx.set & allowed) && fires(rule))
			fault_merge(ret, &rule->fx, allowed); /* the earlier line wins */
	}
	set_unref(set);
	return ret->set;
}

bool fault_error(struct faults *faults, char ret_error[FAULT_ERROR_MAX])
{
	bool bad;

	pthread_mutex_lock(&faults->lock);
	refresh_locked(faults);
	bad = *faults->error;
	memcpy(ret_error, faults->error, FAULT_ERROR_MAX);
	pthread_mutex_unlock(&faults->lock);
	return bad;
}

bool fault_news(struct faults *faults, char ret_error[FAULT_ERROR_MAX])
{
	if (!atomic_load_explicit(&faults->news, memory_order_relaxed) || !atomic_exchange(&faults->news, false))
		return false;
	pthread_mutex_lock(&faults->lock);
	memcpy(ret_error, faults->error, FAULT_ERROR_MAX);
	pthread_mutex_unlock(&faults->lock);
	return *ret_error;
}
