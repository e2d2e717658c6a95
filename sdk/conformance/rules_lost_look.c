/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules of answers that do not come, come late, in part, or from strangers: for providers that talk HTTP through the
 * host. Each operation is first run undisturbed to see how many exchanges it makes; then each of them goes wrong in
 * turn, so that nothing need be known of the protocol. Here: what looks.
 */
#include "rules_lost.h"

bool lost_said(struct check *check, int rc, const struct err *err, const char *what)
{
	bool tells = rc && fault_tells(err->msg, "an error's text");

	MUST_OR(check, !tells, false, "the text of %s's error holds a secret", what);
	MUST_OR(check, rc != ERR_INTERNAL, false, "%s " OK_FMT, what, OK_ARGS(*err));
	return true;
}

static int look_check(const struct scene *scene, struct call *call, bool *ret_absent, struct err *err)
{
	(void)scene;
	(void)ret_absent;
	return call_check(call, err);
}

static int look_find(const struct scene *scene, struct call *call, bool *ret_absent, struct err *err)
{
	int rc = call_find(call, scene->session->workspace, scene->session->task, err);

	*ret_absent = !rc && !session_among(call, scene->session->ref, NULL);
	return rc;
}

static bool means_gone(int rc)
{
	return rc == ERR_NOT_FOUND || rc == ERR_SESSION_GONE;
}

static int look_inspect(const struct scene *scene, struct call *call, bool *ret_absent, struct err *err)
{
	int rc = call_inspect(call, &scene->session->abi, err);
	const struct berth_session_info *info = rc ? NULL : session_among(call, scene->session->ref, NULL);

	*ret_absent = means_gone(rc) || (info && phase_is_over(info->phase));
	return rc;
}

/* The deployment of the kit has one page at most here. */
static int look_list(const struct scene *scene, struct call *call, bool *ret_absent, struct err *err)
{
	int rc = call_list(call, NULL, err);

	*ret_absent = !rc && !call_cursor(call) && !session_among(call, scene->session->ref, NULL);
	return rc;
}

static int look_ready(const struct scene *scene, struct call *call, bool *ret_absent, struct err *err)
{
	int rc = call_await_ready(call, &scene->session->abi, err);

	*ret_absent = means_gone(rc);
	return rc;
}

static int look_renew(const struct scene *scene, struct call *call, bool *ret_absent, struct err *err)
{
	int rc = call_renew(call, &scene->session->abi, clock_wall_ms() + 60000, err);

	*ret_absent = means_gone(rc);
	return rc;
}

static int look_stat(const struct scene *scene, struct call *call, bool *ret_absent, struct err *err)
{
	int rc = call_file_stat(call, &scene->session->abi, scene->file, err);

	*ret_absent = means_gone(rc);
	return rc;
}

static int look_files(const struct scene *scene, struct call *call, bool *ret_absent, struct err *err)
{
	int rc = call_file_list(call, &scene->session->abi, ".", 0, err);
	const struct berth_file_info *infos;
	bool found = false;
	size_t count;

	infos = call_files(call, &count);
	for (size_t i = 0; i < count; i++)
		found = found || str_is(infos[i].path, scene->file);
	*ret_absent = means_gone(rc) || (!rc && !found);
	return rc;
}

static int look_changes(const struct scene *scene, struct call *call, bool *ret_absent, struct err *err)
{
	int rc = call_changes_since(call, &scene->session->abi, scene->mark, err);
	const struct berth_change *changes;
	bool found = false;
	size_t count;

	changes = call_changes(call, &count);
	for (size_t i = 0; i < count; i++)
		found = found || (str_is(changes[i].path, scene->file) && changes[i].kind);
	*ret_absent = means_gone(rc) || (!rc && !found);
	return rc;
}

const struct look lost_looks[LOOKS] = {
	{"check", 0, false, false, look_check},
	{"find", 0, false, false, look_find},
	{"inspect", 0, false, false, look_inspect},
	{"list", 0, false, false, look_list},
	{"await_ready", 0, false, false, look_ready},
	{"renew", BERTH_CAP_RENEW, false, false, look_renew},
	{"file_stat", 0, true, false, look_stat},
	{"file_list", 0, true, false, look_files},
	{"changes", BERTH_CAP_CHANGES, true, true, look_changes},
};

static bool make_mark(struct check *check, struct scene *scene)
{
	struct call *call = check_call(check);
	struct err err = {0};

	MUST_OR(check, !call_mark(call, &scene->session->abi, &err), false, "mark " OK_RC(err));
	scene->mark = call_token(call);
	return true;
}

bool scene_make(struct check *check, struct scene *ret)
{
	struct err err = {0};

	*ret = (struct scene){.session = session_make(check, NULL)};
	if (!ret->session || (check->kit->opt->without & NEED_FILES))
		return ret->session;
	if ((check->kit->capabilities & BERTH_CAP_CHANGES) && !make_mark(check, ret))
		return false;
	ret->file = check_printf(check, "lost-%u", check->kit->serial++);
	MUST_OR(check, !file_put(check, ret->session, ret->file, 0600, "seen\n", 5, &err), false,
		"file_write " OK_RC(err));
	return true;
}

bool look_possible(const struct check *check, const struct look *one, const struct scene *scene)
{
	return !(one->capability & ~check->kit->capabilities) && (!one->needs_file || scene->file) &&
	       (!one->needs_mark || scene->mark);
}

bool look(struct check *check, const struct look *one, const struct scene *scene, int64_t ms, int *ret_rc,
	  bool *ret_absent, struct err *ret_err)
{
	struct call *call = call_new(check->kit->target, clock_after_ms(ms), NULL);
	bool ok;

	memset(ret_err, 0, sizeof(*ret_err));
	*ret_absent = false;
	*ret_rc = one->fn(scene, call, ret_absent, ret_err);
	ok = lost_said(check, *ret_rc, ret_err, one->word);
	call_free(call);
	return ok;
}

/* How many exchanges it makes undisturbed. */
static unsigned look_exchanges(struct check *check, const struct look *one, const struct scene *scene)
{
	struct err err;
	bool absent;
	int rc;

	fault_arm(&(struct fault){.kind = FAULT_NONE});
	if (!look(check, one, scene, kit_ms(check->kit, 30000), &rc, &absent, &err))
		return 0;
	MUST_OR(check, !rc && !absent, 0, "%s, undisturbed, " OK_FMT, one->word, OK_ARGS(err));
	return fault_seen() < LOST_EXCHANGES ? fault_seen() : LOST_EXCHANGES;
}

static const struct misfortune misfortunes[] = {
	{"whose connection broke before the answer", {.kind = FAULT_LOSE}, false},
	{"whose answer was lost", {.kind = FAULT_LOSE_LATE}, false},
	{"whose answer broke off", {.kind = FAULT_CUT}, true},
	{"whose answer was short", {.kind = FAULT_SHORT}, true},
	{"whose answer was empty", {.kind = FAULT_SHORT, .bytes = 0}, false},
	{"whose answer was garbage", {.kind = FAULT_GARBAGE, .body = LOST_HTML}, false},
	{"whose answer was an empty object", {.kind = FAULT_GARBAGE, .body = "{}"}, false},
	{"whose answer was an empty list", {.kind = FAULT_GARBAGE, .body = "[]"}, false},
	{"that was answered by a stranger's 404", {.kind = FAULT_ANSWER, .status = 404, .body = LOST_HTML}, false},
	{"that was answered by an empty 404", {.kind = FAULT_ANSWER, .status = 404}, false},
	{"that was answered by a stranger's 410", {.kind = FAULT_ANSWER, .status = 410, .body = LOST_HTML}, false},
	{"that was answered with 500", {.kind = FAULT_ANSWER, .status = 500, .body = LOST_HTML}, false},
	{"that was answered with 502", {.kind = FAULT_ANSWER, .status = 502, .body = LOST_HTML}, false},
	{"that was answered with 204", {.kind = FAULT_ANSWER, .status = 204}, false},
};

static void must_look_rightly(struct check *check, const struct look *one, const struct scene *scene, unsigned at,
			      const struct misfortune *misfortune)
{
	struct fault fault = misfortune->fault;
	struct err err;
	bool absent;
	int rc;

	/* Twice: once it goes wrong and then well, once it goes wrong for good. */
	for (int round = 0; round < 2 && !check_failed(check); round++) {
		fault.at = round ? 0 : at;
		if (misfortune->half)
			fault.bytes = fault_body(at) / 2;
		fault_arm(&fault);
		/* For good: how long it goes on asking is not the question. */
		if (look(check, one, scene, kit_ms(check->kit, round ? LOST_FOR_GOOD_MS : 2 * LOST_DEADLINE_MS), &rc,
			 &absent, &err))
			MUST(check, !absent, "%s, %s (exchange %u), says that what is there is not there: %s",
			     one->word, misfortune->words, at, rc ? kit_code(rc) : "OK");
		fault_arm(&(struct fault){.kind = FAULT_NONE});
		look_exchanges(check, one, scene);
	}
}

void rule_lost_looks(struct check *check)
{
	struct scene scene;

	if (!scene_make(check, &scene))
		return;
	for (size_t i = 0; i < LOOKS; i++) {
		const struct look *one = &lost_looks[i];
		unsigned count = look_possible(check, one, &scene) ? look_exchanges(check, one, &scene) : 0;

		for (unsigned at = 1; at <= count; at++)
			for (size_t k = 0; k < LOST_COUNT(misfortunes) && !check_failed(check); k++)
				must_look_rightly(check, one, &scene, at, &misfortunes[k]);
	}
	fault_disarm();
}
