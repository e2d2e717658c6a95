/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where and with what the commands of one session run: paths, the whole environment, the control group. Built anew for
 * every call from the session's files, so it holds no state. Any thread. Nothing of the daemon's own environment may
 * get in.
 */
#include "session.h"

#include "text.h"

#include <berth/launcher.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* How long pipes that a background child keeps open may go on after the command's leader ended. */
#define DRAIN_GRACE_MS 200

#define BASE_MAX 16

static struct berth_pair pair(const char *name, const char *value)
{
	return (struct berth_pair){text_str(name), text_str(value)};
}

static size_t base_env(const struct runner *r, const struct session *s, struct berth_pair ret[BASE_MAX])
{
	size_t n = 0;

	ret[n++] = pair("HOME", r->home);
	ret[n++] = pair("TMPDIR", r->tmp);
	ret[n++] = pair("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
	ret[n++] = pair("LANG", "C.UTF-8");
	ret[n++] = pair("BERTH_WORKSPACE_ID", s->workspace);
	ret[n++] = pair("BERTH_TASK_ID", s->task);
	ret[n++] = pair("AGENTAREA_WORKSPACE_ID", s->workspace);
	ret[n++] = pair("AGENTAREA_TASK_ID", s->task);
	ret[n++] = pair("AGENTAREA_WORKSPACE_ROOT", r->root);
	return n;
}

static size_t count_pairs(const char *text, size_t len)
{
	size_t count = 0;

	for (size_t i = 0; i < len; i++)
		count += !text[i];
	return count;
}

static bool has_name(const struct berth_pair *env, size_t count, struct berth_str name)
{
	for (size_t i = 0; i < count; i++)
		if (env[i].name.len == name.len && !memcmp(env[i].name.ptr, name.ptr, name.len))
			return true;
	return false;
}

/* The operator's variables of the spec win over the base. */
static int build_env(struct runner *r, const struct session *s, size_t own_len)
{
	struct berth_pair base[BASE_MAX];
	size_t base_count = base_env(r, s, base), own = count_pairs(r->own_env, own_len), count = 0;
	const char *at = r->own_env;

	r->env = calloc(own + base_count, sizeof(*r->env));
	if (!r->env)
		return -ENOMEM;
	for (size_t i = 0; i < own; i++, at += strlen(at) + 1) {
		size_t name_len = strcspn(at, "=");

		r->env[count].name = (struct berth_str){at, name_len};
		r->env[count++].value = text_str(at + name_len + (at[name_len] == '='));
	}
	for (size_t i = 0; i < base_count; i++)
		if (!has_name(r->env, own, base[i].name))
			r->env[count++] = base[i];
	r->sup.env = r->env;
	r->sup.env_count = count;
	return 0;
}

static void build_paths(struct runner *r, const struct mock *m, const struct session *s)
{
	const struct {
		char *at;
		const char *name;
	} paths[] = {{r->run_dir, "run"}, {r->root, "work"}, {r->home, "home"}, {r->tmp, "tmp"}};

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		snprintf(paths[i].at, SESSION_PATH_MAX, "%s/sessions/%s/%s", m->store.root, s->ref, paths[i].name);
}

int runner_new(struct mock *m, const struct session *s, struct runner **ret)
{
	struct runner *r = calloc(1, sizeof(*r));
	size_t own_len = 0;
	int rc = -ENOMEM;

	if (!r)
		return rc;
	build_paths(r, m, s);
	r->sup = (struct berth_sup){.struct_size = sizeof(r->sup),
				    .helper = m->supervise,
				    .run_dir = r->run_dir,
				    .root = r->root,
				    .uid = -1,
				    .gid = -1,
				    .kill_grace_ms = m->kill_grace_ms,
				    .drain_grace_ms = DRAIN_GRACE_MS,
				    .launch = berth_launcher_launch,
				    .launch_ctx = m->launcher};
	rc = store_env(&m->store, s->ref, &r->own_env, &own_len);
	if (!rc)
		rc = build_env(r, s, own_len);
	if (!rc)
		rc = limit_enter(&m->limits, s->ref, r->cgroup, sizeof(r->cgroup));
	if (rc) {
		runner_free(r);
		return rc;
	}
	if (*r->cgroup)
		r->sup.cgroup = r->cgroup;
	*ret = r;
	return 0;
}

void runner_free(struct runner *r)
{
	if (!r)
		return;
	free(r->env);
	free(r->own_env);
	free(r);
}
