/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The workers of a copy and its account: what was copied, what was the same already, what could not be. Workers are threads with
 * a connection each; they take the next file under the lock and hold none while they transfer.
 */
#include "ctl/tree.h"

#include <unistd.h>


#define JOBS_USUAL 4
#define TRIES_MAX 6
#define PAUSE_MS 300
#define STACK_SIZE (512 * 1024)

int copy_init(struct copy *copy, struct ctl *ctl, const char *task, const char *base, const char *local,
	      const char *top)
{
	*copy = (struct copy){.ctl = ctl, .task = task, .base = base, .local = local, .top = top, .top_fd = -1};
	pthread_mutex_init(&copy->lock, NULL);
	copy->failed = json_object_new_array();
	return copy->failed ? 0 : ctl_fail(CTL_ERROR, "out of memory");
}

void copy_fini(struct copy *copy)
{
	tree_fini(&copy->source);
	tree_fini(&copy->there);
	free(copy->todo);
	json_object_put(copy->failed);
	if (copy->top_fd >= 0)
		close(copy->top_fd);
	pthread_mutex_destroy(&copy->lock);
}

static void note_failure(struct copy *copy, const char *path, int rc, const char *why)
{
	struct json_object *one = json_object_new_object();

	json_object_object_add(one, "path", json_object_new_string(path));
	json_object_object_add(one, "why", json_object_new_string(why));
	json_object_array_add(copy->failed, one);
	copy->rc = copy->rc ? copy->rc : rc;
	copy->again = copy->again || copy->running;
	copy->stop = copy->stop || rc == CTL_DENIED || rc == CTL_UNAVAILABLE;
}

void copy_failed(struct copy *copy, const char *path, int rc, const char *why)
{
	struct buf name;

	buf_init(&name, 65536);
	ctl_clean(&name, copy->top);
	buf_puts(&name, *path ? "/" : "");
	ctl_clean(&name, path);
	pthread_mutex_lock(&copy->lock);
	ctl_progress_end(&copy->progress);
	if (!copy->stop) /* what made it stop has been said */
		ctl_fail(rc, "%s: %s", name.ptr ? name.ptr : "", why);
	note_failure(copy, path, rc, why);
	pthread_mutex_unlock(&copy->lock);
	buf_fini(&name);
}

void copy_moved(void *arg, int64_t bytes)
{
	struct copy *copy = arg;

	pthread_mutex_lock(&copy->lock);
	ctl_progress_add(&copy->progress, bytes);
	pthread_mutex_unlock(&copy->lock);
}

/* Nothing is lost by another try: a file appears whole or not at all. */
static bool worth_a_try(int rc, const struct ctl_reply *reply, int try)
{
	bool away = rc == CTL_UNAVAILABLE || (!rc && (reply->status == 429 || reply->status == 503));

	if (!away || try + 1 >= TRIES_MAX || ctl_stopped())
		return false;
	usleep((useconds_t)(reply->retry_after_ms > 0 && reply->retry_after_ms < 10000 ? reply->retry_after_ms : PAUSE_MS << try) *
	       1000);
	return !ctl_stopped();
}

int copy_judge(struct copy *copy, const char *path, int rc, struct ctl_reply *reply, int try, bool *ret_again)
{
	struct buf why;

	*ret_again = worth_a_try(rc, reply, try);
	if (*ret_again || (!rc && reply->status / 100 == 2))
		return 0;
	if (ctl_stopped())
		return CTL_ERROR;
	buf_init(&why, 65536);
	if (rc == CTL_UNAVAILABLE)
		buf_printf(&why, "berthd at %s does not answer", copy->ctl->address);
	else if (rc)
		buf_puts(&why, "could not be read or written here");
	else
		ctl_clean(&why, ctl_text(reply->json, "message"));
	rc = rc ? rc : ctl_code_of(reply->status);
	copy_failed(copy, path, rc, why.ptr && *why.ptr ? why.ptr : "the answer is not berthd's");
	buf_fini(&why);
	return rc;
}

struct worker {
	struct copy *copy;
	struct ctl ctl;
	pthread_t thread;
};

static const struct entry *next(struct copy *copy)
{
	const struct entry *entry = NULL;

	pthread_mutex_lock(&copy->lock);
	if (copy->next < copy->todo_count && !copy->stop && !ctl_stopped())
		entry = &copy->source.entries[copy->todo[copy->next++]];
	pthread_mutex_unlock(&copy->lock);
	return entry;
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	struct copy *copy = worker->copy;
	const struct entry *entry;

	while ((entry = next(copy))) {
		int rc = copy->one(copy, &worker->ctl, entry);

		pthread_mutex_lock(&copy->lock);
		if (!rc) {
			copy->copied++;
			copy->bytes += entry->size > 0 ? entry->size : 0;
		}
		copy->progress.files_done++;
		ctl_progress_add(&copy->progress, 0);
		pthread_mutex_unlock(&copy->lock);
	}
	ctl_disconnect(&worker->ctl);
	return NULL;
}

int copy_check_jobs(int64_t jobs)
{
	return jobs <= COPY_JOBS_MAX ? 0 : ctl_fail(CTL_USAGE, "--jobs: at most %d at once", COPY_JOBS_MAX);
}

void copy_run(struct copy *copy, int64_t jobs, const char *label)
{
	struct worker workers[COPY_JOBS_MAX] = {{0}};
	int64_t bytes = 0;
	pthread_attr_t attr;
	size_t count = 0;

	for (size_t i = 0; i < copy->todo_count; i++)
		bytes += copy->source.entries[copy->todo[i]].size;
	copy->running = true;
	ctl_progress_begin(&copy->progress, label, bytes);
	copy->progress.on = copy->progress.on && !copy->ctl->json;
	copy->progress.files = (int64_t)copy->todo_count;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	jobs = jobs ? jobs : JOBS_USUAL;
	for (; count < (size_t)jobs && count < COPY_JOBS_MAX && count < copy->todo_count; count++) {
		workers[count].copy = copy;
		workers[count].ctl = ctl_twin(copy->ctl);
		if (pthread_create(&workers[count].thread, &attr, work, &workers[count]))
			break;
	}
	pthread_attr_destroy(&attr);
	if (!count && copy->todo_count)
		copy_failed(copy, "", CTL_ERROR, "no thread can be started");
	for (size_t i = 0; i < count; i++)
		pthread_join(workers[i].thread, NULL);
	ctl_progress_end(&copy->progress);
}

static void print_json(const struct copy *copy)
{
	const struct {
		const char *key;
		int64_t value;
	} rows[] = {{"copied", (int64_t)copy->copied}, {"bytes", copy->bytes}, {"same", (int64_t)copy->same},
		    {"links", (int64_t)copy->links}, {"folders", (int64_t)copy->folders}};
	struct json_object *json = json_object_new_object();

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		json_object_object_add(json, rows[i].key, json_object_new_int64(rows[i].value));
	json_object_object_add(json, "failed", json_object_get(copy->failed));
	ctl_json(json);
	json_object_put(json);
}

int copy_report(struct copy *copy)
{
	size_t failed = json_object_array_length(copy->failed), left = copy->todo_count - copy->next;
	struct buf text;

	if (copy->ctl->json)
		print_json(copy);
	buf_init(&text, 4096);
	buf_printf(&text, "%zu files copied (", copy->copied);
	ctl_put_bytes(&text, copy->bytes);
	buf_printf(&text, "), %zu the same already, %zu links, %zu folders", copy->same, copy->links, copy->folders);
	if (ctl_stopped())
		fprintf(stderr, "berthctl: stopped: %s, %zu files left; repeat the command to go on\n", text.ptr, left);
	else if (failed)
		fprintf(stderr, "berthctl: %zu not copied, %zu not tried; %s%s\n", failed, left, text.ptr,
			copy->again ? "; repeat the command to go on" : "");
	else if (!copy->ctl->json && isatty(STDERR_FILENO))
		fprintf(stderr, "%s\n", text.ptr);
	buf_fini(&text);
	return copy->rc ? copy->rc : failed || ctl_stopped() ? CTL_ERROR : 0;
}
