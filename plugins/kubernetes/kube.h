/* SPDX-License-Identifier: Apache-2.0 */
/* One instance of the Kubernetes provider, and the operations of the provider table. */
#ifndef KUBERNETES_KUBE_H
#define KUBERNETES_KUBE_H

#include <berth/provider.h>
#include <json-c/json.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cluster.h"
#include "execcred.h"
#include "handed.h"
#include "names.h"

/* The host's table; set by init, before anything else runs. */
extern const struct berth_host *kube_host;

struct owed;
struct watch;
struct sign_key;

/* Constant after open, but for what `lock` protects. */
struct kube {
	struct berth_target *target;
	char *deployment;
	char *ns;     /* of every object it makes */
	char *prefix; /* of their names */
	char *image;  /* of the executor's container, when the template names none; may be empty */
	char *container;
	char *runtime_class; /* empty: the cluster's default */
	char *warm_pool;     /* mode sandboxclaim: the SandboxWarmPool */
	uint32_t isolation;  /* what every session has */
	bool claims;	     /* mode sandboxclaim */
	bool via_proxy;	     /* pods are reached through the API server */
	bool network_policy; /* the operator's word: policies keep off the internet who must not reach it */
	unsigned port;	     /* of the executor */
	char *key_id;	     /* of the signing key, as executors know it */
	int64_t pull_grace_ms, kill_grace_ms;
	struct json_object *template; /* {metadata, spec}; never changed after open */
	char label_deployment[LABEL_VALUE_MAX + 1];

	_Atomic int64_t quiet_ns; /* the API server asked for less until then; what is not urgent waits */
	pthread_mutex_t lock;
	struct cluster cluster;	       /* lock: the materials */
	struct execprog exec;
	struct sign_key *sign_key;     /* lock: as it was last decoded; NULL: not yet */
	unsigned char sign_digest[32]; /* lock: of the text that it was decoded from */
	struct watch *watch;
	struct handed handed; /* what claims were answered */
	struct owed *owed;    /* what executors are to forget */
};

/* What the client and the operations count and measure; the index of the host's counter(). */
enum kube_metric {
	METRIC_REQUESTS,
	METRIC_RETRIES,
	METRIC_THROTTLED,
	METRIC_CONFLICTS,
	METRIC_WATCH_RESTARTS,
	METRIC_COUNT
};

/* options.c */
extern const struct berth_option *const kube_options[];
extern const struct berth_metric *const kube_metrics[];
int32_t kube_open(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
		  struct berth_instance_info *ret_info);
void kube_close(void *inst);

/* ops.c */
extern const struct berth_ops kube_ops;

/* call.c: what each operation needs of the call it runs in. */
int64_t kube_deadline_ns(struct berth_call *call);
/* CANCELLED or TIMEOUT when the operation should end now. */
int32_t kube_stopped(struct berth_call *call, struct kerr *err);
/* Waits until until_ns or a cancel, whichever is first: as kube_stopped. */
int32_t kube_wait(struct berth_call *call, int64_t until_ns, struct kerr *err);
/* Explains err to the host, unless it was, and returns its code. */
int32_t kube_end(struct berth_call *call, int32_t rc, const struct kerr *err);
void kube_log(struct kube *k, struct berth_call *call, uint32_t level, const char *text, const char *name,
	      const char *value);

#endif
