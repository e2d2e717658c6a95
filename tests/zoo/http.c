/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A provider whose commands are HTTP exchanges: the script is "METHOD URL", or a word before that. Its output is the
 * answer's body, its exit code the status less 200.
 */
#define ZOO_NAME "http"
#define ZOO_OPTIONS options
#define ZOO_OPEN http_open
#define ZOO_EXECUTE http_execute
#define ZOO_INSPECT http_inspect
#include <berth/provider.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static int32_t http_open(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
			 struct berth_instance_info *ret_info);
static int32_t http_execute(void *inst, struct berth_call *call, const struct berth_session *session,
			    const struct berth_command *command);
static int32_t http_inspect(void *inst, struct berth_call *call, const struct berth_session *session);
static const struct berth_option key_row = {.struct_size = sizeof(key_row),
					    .type = BERTH_OPTION_STRING,
					    .key = "api_key",
					    .secret = 1,
					    .doc = "Sent to the peer."};
static const struct berth_option open_row = {.struct_size = sizeof(open_row),
					     .type = BERTH_OPTION_STRING,
					     .key = "open_url",
					     .doc = "Asked for in open, which is forbidden."};
static const struct berth_option *const options[] = {&key_row, &open_row, NULL};
#include "zoo.h"

static struct berth_target *target;

struct job {
	struct berth_call *call;
	const char *method, *url;
	uint32_t flags, size; /* of the request's struct; 0 = whole */
	struct berth_http_response response;
	int32_t code;
};

static int32_t to_stdout(void *ctx, const void *ptr, size_t len)
{
	return host->sink_write(ctx, BERTH_STREAM_STDOUT, ptr, len);
}

static void run_job(struct job *job)
{
	char key[128], header[160];
	size_t len = 0;
	struct berth_pair secret = {.name = zoo_str("Authorization"), .value = {.ptr = header}};
	struct berth_http_request request = {
	    .struct_size = job->size ? job->size : sizeof(request),
	    .flags = job->flags,
	    .method = zoo_str(job->method),
	    .url = zoo_str(job->url),
	    .write = job->call ? to_stdout : NULL,
	    .ctx = job->call,
	};

	if (host->secret(target, "api_key", key, sizeof(key), &len) == BERTH_OK) {
		secret.value.len = (size_t)snprintf(header, sizeof(header), "Bearer %.*s", (int)len, key);
		request.secret_headers = &secret;
		request.secret_header_count = 1;
	}
	job->response.struct_size = sizeof(job->response);
	job->code = host->http(target, job->call, &request, &job->response);
}

static void *job_main(void *arg)
{
	run_job(arg);
	return NULL;
}

static int32_t http_open(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
			 struct berth_instance_info *ret_info)
{
	target = args->target;
	if (args->options[1]->is_set) {
		struct job job = {.call = call, .method = "GET", .url = "http://127.0.0.1:1/"};

		run_job(&job);
	}
	return zoo_open(args, call, ret_inst, ret_info);
}

/* The state is a URL: asked for by a thread of its own, without a call or with a stolen one. */
static int32_t http_inspect(void *inst, struct berth_call *call, const struct berth_session *session)
{
	char url[256];
	bool stolen = session->ref.len == 6 && !memcmp(session->ref.ptr, "stolen", 6);
	struct job job = {.call = stolen ? call : NULL, .method = "GET", .url = url};
	pthread_t thread;

	snprintf(url, sizeof(url), "%.*s", (int)session->state.len, session->state.ptr);
	pthread_create(&thread, NULL, job_main, &job);
	pthread_join(thread, NULL);
	if (job.code)
		return host->fail(call, job.code, "from_thread", 0, 0, "the thread's exchange failed");
	return zoo_inspect(inst, call, session);
}

static int32_t end(struct berth_call *call, uint32_t kind, uint32_t status)
{
	struct berth_ending ending = {
	    .struct_size = sizeof(ending),
	    .kind = kind,
	    .exit_code = kind == BERTH_ENDING_EXIT ? (int32_t)status - 200 : 0,
	    .quiescent = BERTH_QUIESCENT_YES,
	};

	return host->emit_ending(call, &ending);
}

/* What a provider does when its command is cancelled: tells the peer, with another exchange. */
static int32_t stop_peer(struct job *job)
{
	char url[256];
	uint32_t state = host->cancel_state(job->call);
	int32_t code = job->code;
	const char *path = strchr(job->url + strlen("http://"), '/');

	if (!path)
		return code;
	snprintf(url, sizeof(url), "%.*s/%s", (int)(path - job->url), job->url,
		 state == BERTH_CANCEL_DETACH ? "never" : "ok?stopped");
	job->method = "POST";
	job->url = url;
	run_job(job);
	if (state == BERTH_CANCEL_DETACH || job->code)
		return code;
	return end(job->call, BERTH_ENDING_CANCELLED, 0);
}

static int32_t http_execute(void *inst, struct berth_call *call, const struct berth_session *session,
			    const struct berth_command *command)
{
	char script[512], *save = NULL, *word;
	struct job job = {.call = call};

	(void)inst;
	(void)session;
	snprintf(script, sizeof(script), "%.*s", (int)command->script.len, command->script.ptr);
	word = strtok_r(script, " ", &save);
	if (!strcmp(word, "long"))
		job.flags = BERTH_HTTP_LONG;
	if (!strcmp(word, "old")) /* built before the fields after ctx */
		job.size = offsetof(struct berth_http_request, unix_socket);
	if (!strcmp(word, "tiny"))
		job.size = 4;
	job.method = strcmp(word, "plain") && !job.flags && !job.size ? word : strtok_r(NULL, " ", &save);
	job.url = strtok_r(NULL, " ", &save);
	run_job(&job);
	if (job.code == BERTH_CANCELLED)
		return stop_peer(&job);
	return job.code ? job.code : end(call, BERTH_ENDING_EXIT, job.response.status);
}
