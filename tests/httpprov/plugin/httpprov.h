/* SPDX-License-Identifier: Apache-2.0 */
/* One instance of the HTTP test provider, its operations, and the one way in which they talk to the server. */
#ifndef HTTPPROV_H
#define HTTPPROV_H

#include <berth/provider.h>

#include "wire.h"

#define PROV_CAPABILITIES                                                                                              \
	(BERTH_CAP_THREADSAFE | BERTH_CAP_REATTACH | BERTH_CAP_SIGNAL | BERTH_CAP_BULK | BERTH_CAP_CHANGES |           \
	 BERTH_CAP_RENEW | BERTH_CAP_ASSIGN_TAGS)

/* Constant after open. */
struct prov {
	struct berth_target *target;
	char *base_url; /* without a slash at its end */
	char *deployment;
	int64_t silence_ms; /* how long a command's stream may say nothing */
};
extern const struct berth_host *prov_host;
extern const struct berth_option *const prov_options[];

/* http.c: one request and what became of it. */
struct ask {
	struct prov *p;
	struct berth_call *call;
	const char *method;
	struct wire_buf path;	    /* with query; freed by ask_fini */
	struct wire_buf query_body; /* a JSON body; freed by ask_fini */
	struct berth_str body;
	int32_t (*read)(void *source, void *buf, size_t cap, size_t *ret_len); /* a body that can be read once */
	void *source;
	int32_t (*take)(void *sink, const void *ptr, size_t len); /* the body of a 200; NULL: kept in `reply` */
	void *sink;
	bool once;	 /* not even after a refusal: a create */
	bool again;	 /* asking twice does no harm: a lost answer is asked for again */
	bool changes;	 /* false: whatever the method, nothing changes by it */
	bool is_long;	 /* expected to wait */
	int64_t idle_ms; /* 0 = the host's */

	uint32_t status;
	int64_t retry_after_ms;
	bool sent, asked_before;
	int32_t taken;		  /* what take returned when it was not OK */
	struct wire_buf reply;	  /* freed by ask_fini */
	struct json_object *json; /* of a 2xx that was kept, once ask_json was asked */
};
/* The path begins with the text and is to be completed with ask_segment and ask_query. */
void ask_init(struct ask *ask, struct prov *p, struct berth_call *call, const char *method, const char *path);
void ask_session(struct ask *ask, const struct berth_session *session, const char *rest);
void ask_segment(struct ask *ask, struct berth_str text);
void ask_query(struct ask *ask, const char *name, struct berth_str value);
void ask_query_number(struct ask *ask, const char *name, uint64_t value);
/* OK: an answer of 2xx, whole. Anything else has been explained. */
int32_t ask_do(struct ask *ask);
/* The same, and the answer is a JSON object. */
int32_t ask_json(struct ask *ask);
/* ask_do and nothing more; frees. */
int32_t ask_simply(struct ask *ask);
void ask_fini(struct ask *ask);
/* Milliseconds to the call's deadline, at most a day; below 1 when it passed. */
int64_t ask_left_ms(struct berth_call *call);
/* Waits; false when the call is cancelled or its deadline comes before. */
bool ask_pause(struct berth_call *call, int64_t ms);
int32_t prov_fail(struct berth_call *call, int32_t code, const char *reason, const char *text);
/* What a provider's own error document says, explained; 0 when the text is none. */
int32_t prov_fail_document(struct prov *p, struct berth_call *call, const char *ptr, size_t len,
			   int64_t retry_after_ms);

/* open.c */
int32_t prov_open(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
		  struct berth_instance_info *ret_info);
void prov_close(void *inst);
int32_t prov_check(void *inst, struct berth_call *call);

/* sessions.c */
int32_t prov_find(void *inst, struct berth_call *call, const struct berth_identity *identity);
int32_t prov_list(void *inst, struct berth_call *call, const struct berth_str *cursor);
int32_t prov_provision(void *inst, struct berth_call *call, const struct berth_spec *spec);
int32_t prov_await_ready(void *inst, struct berth_call *call, const struct berth_session *session);
int32_t prov_assign(void *inst, struct berth_call *call, const struct berth_session *session,
		    const struct berth_identity *identity);
int32_t prov_inspect(void *inst, struct berth_call *call, const struct berth_session *session);
int32_t prov_renew(void *inst, struct berth_call *call, const struct berth_session *session, int64_t until_ms);
int32_t prov_release(void *inst, struct berth_call *call, const struct berth_session *session);

/* commands.c */
int32_t prov_execute(void *inst, struct berth_call *call, const struct berth_session *session,
		     const struct berth_command *command);
int32_t prov_reattach(void *inst, struct berth_call *call, const struct berth_session *session,
		      const struct berth_resume *resume);
int32_t prov_forget(void *inst, struct berth_call *call, const struct berth_session *session,
		    const struct berth_execution *execution);
int32_t prov_send_signal(void *inst, struct berth_call *call, const struct berth_session *session,
			 const struct berth_execution *execution, uint32_t signal);

/* stream.c: what a command says, as it comes in. */
struct stream {
	struct prov *p;
	struct berth_call *call;
	uint64_t offset[2]; /* given to the host */
	bool tell_started;
	bool sign;    /* of the command: it has begun */
	bool ended;   /* an ending was emitted */
	bool failed;  /* the server said so, explained */
	bool refused; /* the host wants no more; code */
	int32_t code;
	bool moved; /* something came since this was last cleared */
	unsigned char head[WIRE_FRAME_HEAD];
	size_t head_len;
	uint32_t left;	      /* of the payload */
	struct wire_buf note; /* the payload of a frame that is JSON */
};
/* For a new connection: half a frame of the last one is dropped. */
void stream_restart(struct stream *stream);
int32_t stream_take(void *stream, const void *ptr, size_t len);
void stream_fini(struct stream *stream);

/* files.c */
int32_t prov_file_read(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_str *path, uint64_t offset, uint64_t length);
int32_t prov_file_write(void *inst, struct berth_call *call, const struct berth_session *session,
			const struct berth_file_write *write);
int32_t prov_file_stat(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_str *path);
int32_t prov_file_list(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_str *path, uint32_t flags);
int32_t prov_file_remove(void *inst, struct berth_call *call, const struct berth_session *session,
			 const struct berth_str *path, uint32_t flags);
int32_t prov_file_move(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_str *from, const struct berth_str *to);
int32_t prov_import_tar(void *inst, struct berth_call *call, const struct berth_session *session,
			const struct berth_str *path);
int32_t prov_export_tar(void *inst, struct berth_call *call, const struct berth_session *session,
			const struct berth_str *paths, size_t path_count);
int32_t prov_mark(void *inst, struct berth_call *call, const struct berth_session *session);
int32_t prov_changes(void *inst, struct berth_call *call, const struct berth_session *session,
		     const struct berth_str *token);

#endif
