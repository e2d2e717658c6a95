/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option table, the metric table, opening and closing of an instance. open and close are serial per target; open
 * reads local files only, and leaves nothing behind when it fails.
 */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capabilities.h"
#include "kube.h"
#include "owed.h"
#include "sign.h"
#include "template.h"
#include "watch.h"

enum {
	OPT_KUBECONFIG,
	OPT_CONTEXT,
	OPT_ACCOUNT,
	OPT_EXEC,
	OPT_NAMESPACE,
	OPT_PREFIX,
	OPT_MODE,
	OPT_WARM_POOL,
	OPT_REACH,
	OPT_PORT,
	OPT_TEMPLATE,
	OPT_CONTAINER,
	OPT_IMAGE,
	OPT_EXECUTOR_IMAGE,
	OPT_ROOT,
	OPT_RUNTIME_CLASS,
	OPT_ISOLATION,
	OPT_NETWORK_POLICY,
	OPT_KEY,
	OPT_KEY_ID,
	OPT_MORE_KEYS,
	OPT_CPU,
	OPT_MEMORY,
	OPT_DISK,
	OPT_PULL_GRACE,
	OPT_KILL_GRACE,
	OPT_COUNT
};

#define OPTION(name, kind, text, words)                                                                                \
	{                                                                                                              \
		.struct_size = sizeof(struct berth_option), .type = BERTH_OPTION_##kind, .key = name,                  \
		.default_text = text, .doc = words                                                                     \
	}
static const struct berth_option options[OPT_COUNT] = {
	[OPT_KUBECONFIG] =
		OPTION("kubeconfig", STRING, NULL,
		       "Kubeconfig files, separated by colons; without them the account of the pod that this runs in."),
	[OPT_CONTEXT] = OPTION("context", STRING, NULL, "The kubeconfig's context; the current one when not given."),
	[OPT_ACCOUNT] = OPTION("service_account_dir", STRING, "/var/run/secrets/kubernetes.io/serviceaccount",
			       "Folder of the pod's own account: token, ca.crt, namespace."),
	[OPT_EXEC] = OPTION("exec_plugins", BOOLEAN, "false",
			    "Whether a program that a kubeconfig names may be run for credentials."),
	[OPT_NAMESPACE] = OPTION(
		"namespace", STRING, NULL,
		"Namespace of the sandboxes, used for nothing else; the context's or the pod's own when not given."),
	[OPT_PREFIX] =
		OPTION("name_prefix", STRING, "berth", "Start of the names of everything it makes, at most 12 bytes."),
	[OPT_MODE] = OPTION("mode", STRING, "pods",
			    "\"pods\" makes pods itself, \"sandboxclaim\" asks agent-sandbox for them."),
	[OPT_WARM_POOL] =
		OPTION("warm_pool", STRING, NULL, "Mode sandboxclaim: the SandboxWarmPool that sandboxes come from."),
	[OPT_REACH] = OPTION("reach", STRING, "pod",
			     "\"pod\" speaks to pods by their addresses, \"proxy\" through the API server, from "
			     "outside the cluster."),
	[OPT_PORT] = OPTION("executor_port", INTEGER, "8080", "Port of the executor in the pod."),
	[OPT_TEMPLATE] = OPTION("template", STRING, NULL,
				"File of the pod template in YAML or JSON; a built-in one when not given."),
	[OPT_CONTAINER] = OPTION("container", STRING, "executor", "The template's container that runs the executor."),
	[OPT_IMAGE] = OPTION("image", STRING, NULL, "Image of that container, when the template names none."),
	[OPT_EXECUTOR_IMAGE] =
		OPTION("executor_image", STRING, NULL,
		       "Built-in template: image that the executor is copied from; it is in `image` when not given."),
	[OPT_ROOT] = OPTION("workspace_root", STRING, "/berth/workspace",
			    "Built-in template: the workspace's folder in the pod."),
	[OPT_RUNTIME_CLASS] = OPTION("runtime_class", STRING, NULL,
				     "RuntimeClass of the pods; the cluster's default when not given."),
	[OPT_ISOLATION] = OPTION("runtime_isolation", STRING, "container",
				 "What that class isolates by: \"container\", \"gvisor\" or \"microvm\"."),
	[OPT_NETWORK_POLICY] =
		OPTION("network_policy", BOOLEAN, "false",
		       "The cluster enforces network policies that let only pods with the label berth.dev/internet, or "
		       "sandbox.users.io/internet, of value allowed reach the internet. Without it a target needs "
		       "allow_internet = true."),
	[OPT_KEY] = {.struct_size = sizeof(struct berth_option),
		     .type = BERTH_OPTION_STRING,
		     .key = OPTION_SIGNING_KEY,
		     .required = 1,
		     .secret = 1,
		     .doc = "Ed25519 private key in PEM that signs requests to executors."},
	[OPT_KEY_ID] = OPTION("signing_key_id", STRING, "k1", "The key's name, as executors know it."),
	[OPT_MORE_KEYS] =
		OPTION("executor_keys", STRING, NULL,
		       "Further public keys that new pods trust, id:base64, separated by commas; for rotation."),
	[OPT_CPU] = OPTION("cpu_millis", INTEGER, "1000", "CPU limit, in thousandths, of containers that have none."),
	[OPT_MEMORY] = OPTION("memory", SIZE, "1GiB", "Memory limit of containers that have none."),
	[OPT_DISK] = OPTION("disk", SIZE, "4GiB", "Limit of temporary storage of containers that have none."),
	[OPT_PULL_GRACE] = OPTION("pull_grace", DURATION, "60s",
				  "How long failures of an image's pull may last before they count."),
	[OPT_KILL_GRACE] = OPTION("kill_grace", DURATION, "2s", "Time between TERM and KILL at a timeout or a cancel."),
};

#define ROW(i) &options[i]
const struct berth_option *const kube_options[] = {ROW(0),  ROW(1),  ROW(2),  ROW(3),  ROW(4),	ROW(5),	 ROW(6),
						   ROW(7),  ROW(8),  ROW(9),  ROW(10), ROW(11), ROW(12), ROW(13),
						   ROW(14), ROW(15), ROW(16), ROW(17), ROW(18), ROW(19), ROW(20),
						   ROW(21), ROW(22), ROW(23), ROW(24), ROW(25), NULL};
_Static_assert(OPT_COUNT == sizeof(kube_options) / sizeof(kube_options[0]) - 1, "every option is in the table");

#define METRIC(word, what, words)                                                                                      \
	{                                                                                                              \
		.struct_size = sizeof(struct berth_metric), .type = BERTH_METRIC_COUNTER, .name = word, .unit = what,  \
		.doc = words                                                                                           \
	}
static const struct berth_metric metrics[METRIC_COUNT] = {
	[METRIC_REQUESTS] =
		METRIC("api_requests_total", "requests", "Requests to the API server, repeated ones included."),
	[METRIC_RETRIES] = METRIC("api_retries_total", "requests", "Requests that were sent again."),
	[METRIC_THROTTLED] =
		METRIC("api_throttled_total", "requests", "Requests that the API server refused as too many."),
	[METRIC_CONFLICTS] =
		METRIC("api_conflicts_total", "requests", "Changes of pods that another writer was ahead of."),
	[METRIC_WATCH_RESTARTS] =
		METRIC("watch_restarts_total", "watches", "Times that the watch had to list everything again."),
};
const struct berth_metric *const kube_metrics[] = {&metrics[0], &metrics[1], &metrics[2],
						   &metrics[3], &metrics[4], NULL};
_Static_assert(METRIC_COUNT == sizeof(kube_metrics) / sizeof(kube_metrics[0]) - 1, "every metric is in the table");

/* What open is busy with. */
struct opening {
	struct kube *k;
	const struct berth_open_args *args;
	char *text[OPT_COUNT]; /* of string options; "" when not set */
	int64_t number[OPT_COUNT];
	struct kerr *err;
};

static int32_t refuse(struct opening *o, unsigned which, const char *why)
{
	return kerr_set(o->err, BERTH_INVALID, "option", "%s: %s", options[which].key, why);
}

static int32_t take_values(struct opening *o)
{
	for (unsigned i = 0; i < OPT_COUNT; i++) {
		struct berth_str text = str_of("");

		for (size_t v = 0; v < o->args->option_count; v++) {
			const struct berth_option_value *value = o->args->options[v];

			if (!value->is_set || strcmp(value->key, options[i].key))
				continue;
			o->number[i] = value->integer;
			if (value->type == BERTH_OPTION_STRING && !options[i].secret)
				text = value->string;
		}
		o->text[i] = str_dup(text);
		if (!o->text[i])
			return refuse(o, i, "holds a NUL, or there is no memory");
		if (o->number[i] < 0)
			return refuse(o, i, "is negative");
	}
	return BERTH_OK;
}

/* Moves the text into the instance. */
static char *give(struct opening *o, unsigned which)
{
	char *text = o->text[which];

	o->text[which] = NULL;
	return text;
}

static int32_t take_cluster(struct opening *o)
{
	struct kube *k = o->k;
	int32_t rc =
		*o->text[OPT_KUBECONFIG]
			? cluster_from_kubeconfig(o->text[OPT_KUBECONFIG], o->text[OPT_CONTEXT], &k->cluster, o->err)
			: cluster_from_pod(o->text[OPT_ACCOUNT], getenv("KUBERNETES_SERVICE_HOST"),
					   getenv("KUBERNETES_SERVICE_PORT"), &k->cluster, o->err);

	if (rc)
		return rc;
	if (k->cluster.exec && !o->number[OPT_EXEC])
		return refuse(o, OPT_EXEC,
			      "the kubeconfig's user runs a program for credentials, which is not switched on");
	k->ns = *o->text[OPT_NAMESPACE] ? give(o, OPT_NAMESPACE) : strdup(k->cluster.ns ? k->cluster.ns : "");
	if (!k->ns || !names_dns(k->ns, 63))
		return refuse(o, OPT_NAMESPACE,
			      *o->text[OPT_KUBECONFIG] ? "the context names none: give one" : "is no name");
	return BERTH_OK;
}

static const struct {
	const char *word;
	uint32_t level;
} isolations[] = {{"container", BERTH_ISOLATION_CONTAINER},
		  {"gvisor", BERTH_ISOLATION_GVISOR},
		  {"microvm", BERTH_ISOLATION_MICROVM}};

static int32_t take_isolation(struct opening *o)
{
	for (size_t i = 0; i < sizeof(isolations) / sizeof(isolations[0]); i++)
		if (!strcmp(o->text[OPT_ISOLATION], isolations[i].word))
			o->k->isolation = isolations[i].level;
	if (!o->k->isolation)
		return refuse(o, OPT_ISOLATION, "expected container, gvisor or microvm");
	if (o->k->isolation > BERTH_ISOLATION_CONTAINER && !*o->text[OPT_RUNTIME_CLASS])
		return refuse(o, OPT_ISOLATION, "needs a runtime_class");
	return BERTH_OK;
}

/* A word out of two. */
static int32_t take_choice(struct opening *o, unsigned which, const char *no, const char *yes, bool *ret)
{
	*ret = !strcmp(o->text[which], yes);
	return *ret || !strcmp(o->text[which], no) ? BERTH_OK : refuse(o, which, "is none of its two words");
}

static int32_t take_words(struct opening *o)
{
	struct kube *k = o->k;
	int32_t rc = take_choice(o, OPT_MODE, "pods", "sandboxclaim", &k->claims);

	if (!rc)
		rc = take_choice(o, OPT_REACH, "pod", "proxy", &k->via_proxy);
	if (!rc)
		rc = take_isolation(o);
	if (!rc && (!names_dns(o->text[OPT_PREFIX], NAME_PREFIX_MAX)))
		rc = refuse(o, OPT_PREFIX, "expected [a-z0-9-], at most 12 bytes");
	if (!rc && !names_dns(o->text[OPT_CONTAINER], 63))
		rc = refuse(o, OPT_CONTAINER, "is no container's name");
	if (!rc && (o->number[OPT_PORT] < 1 || o->number[OPT_PORT] > 65535))
		rc = refuse(o, OPT_PORT, "expected 1 to 65535");
	if (!rc && k->claims && !names_dns(o->text[OPT_WARM_POOL], 63))
		rc = refuse(o, OPT_WARM_POOL, "mode sandboxclaim needs the name of a SandboxWarmPool");
	if (!rc && *o->text[OPT_RUNTIME_CLASS] && !names_dns(o->text[OPT_RUNTIME_CLASS], 63))
		rc = refuse(o, OPT_RUNTIME_CLASS, "is no RuntimeClass's name");
	if (rc)
		return rc;
	k->prefix = give(o, OPT_PREFIX);
	k->container = give(o, OPT_CONTAINER);
	k->warm_pool = give(o, OPT_WARM_POOL);
	k->key_id = give(o, OPT_KEY_ID);
	k->network_policy = o->number[OPT_NETWORK_POLICY] != 0;
	k->port = (unsigned)o->number[OPT_PORT];
	k->pull_grace_ms = o->number[OPT_PULL_GRACE];
	k->kill_grace_ms = o->number[OPT_KILL_GRACE];
	return BERTH_OK;
}

static int32_t keys_text(struct opening *o, char **ret)
{
	const char *more = o->text[OPT_MORE_KEYS];
	struct sign_key *key = NULL;
	char public[48];
	int32_t rc = sign_key_get(o->k, &key, o->err);

	if (!rc)
		sign_public(key, public);
	sign_key_drop(key);
	if (!rc && asprintf(ret, "%s:%s%s%s", o->k->key_id, public, *more ? "," : "", more) < 0)
		rc = kerr_set(o->err, BERTH_UNAVAILABLE, "memory", "no memory");
	return rc;
}

static int32_t take_template(struct opening *o)
{
	char *keys = NULL;
	int32_t rc = keys_text(o, &keys);
	const struct template_base base = {
		.container = o->k->container,
		.image = o->text[OPT_IMAGE],
		.executor_image = o->text[OPT_EXECUTOR_IMAGE],
		.runtime_class = o->text[OPT_RUNTIME_CLASS],
		.keys = keys,
		.root = o->text[OPT_ROOT],
		.port = o->k->port,
		.cpu_millis = o->number[OPT_CPU],
		.memory_bytes = o->number[OPT_MEMORY],
		.disk_bytes = o->number[OPT_DISK],
	};

	/* In mode sandboxclaim the template is the cluster's own, a SandboxTemplate. */
	if (!rc && !o->k->claims)
		rc = template_load(o->text[OPT_TEMPLATE], &base, &o->k->template, o->err);
	free(keys);
	o->k->runtime_class = give(o, OPT_RUNTIME_CLASS);
	o->k->image = give(o, OPT_IMAGE);
	return rc;
}

static int32_t take_names(struct opening *o)
{
	struct kube *k = o->k;

	k->deployment = str_dup(o->args->deployment);
	if (!k->deployment || !names_label(k->deployment, k->label_deployment))
		return kerr_set(o->err, BERTH_UNAVAILABLE, "memory", "no memory");
	return BERTH_OK;
}

int32_t kube_open(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
		  struct berth_instance_info *ret_info)
{
	struct kerr err = {0};
	struct kube *k = calloc(1, sizeof(*k));
	struct opening o = {.k = k, .args = args, .err = &err};
	int32_t rc;

	if (!k)
		return kube_host->fail(call, BERTH_UNAVAILABLE, "memory", 1, 0, "no memory");
	k->target = args->target;
	pthread_mutex_init(&k->lock, NULL);
	execprog_init(&k->exec);
	handed_init(&k->handed);
	rc = take_values(&o);
	if (!rc)
		rc = take_words(&o);
	if (!rc)
		rc = take_cluster(&o);
	if (!rc)
		rc = take_names(&o);
	if (!rc)
		rc = take_template(&o);
	if (!rc)
		rc = watch_start(k, &k->watch, &err);
	if (!rc)
		rc = owed_start(k, &k->owed, &err);
	for (unsigned i = 0; i < OPT_COUNT; i++)
		free(o.text[i]);
	if (rc) {
		kube_close(k);
		return kube_end(call, rc, &err);
	}
	ret_info->capabilities = k->claims ? CAPABILITIES_CLAIMS : CAPABILITIES_PODS;
	ret_info->create_settle_ms = 0; /* a task's object has one name */
	ret_info->isolation = k->isolation;
	*ret_inst = k;
	return BERTH_OK;
}

void kube_close(void *inst)
{
	struct kube *k = inst;

	if (!k)
		return;
	owed_stop(k->owed);
	watch_stop(k->watch);
	handed_fini(&k->handed);
	json_object_put(k->template);
	sign_key_drop(k->sign_key);
	execprog_fini(&k->exec);
	cluster_fini(&k->cluster);
	free(k->deployment);
	free(k->ns);
	free(k->prefix);
	free(k->image);
	free(k->container);
	free(k->runtime_class);
	free(k->warm_pool);
	free(k->key_id);
	pthread_mutex_destroy(&k->lock);
	free(k);
}
