/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules of paths that try to leave the workspace root: through links that commands make, also while they are being
 * swapped, and through archives. What lies outside is a folder below /tmp of the session, so that a provider that fails
 * harms nothing.
 */
#include "rules.h"

struct escape {
	struct session *session;
	const char *out; /* the folder outside */
	const char *dir; /* inside; dir/link leads to out, dir/up above the root */
};

static bool prepare(struct check *check, struct escape *escape)
{
	escape->session = session_shared(check);
	escape->dir = file_dir(check);
	escape->out = check_printf(check, "/tmp/berth-conformance-%s-%s", check->kit->tag, escape->dir);
	return escape->session &&
	       run_shell(check, escape->session,
			 check_printf(check,
				      "mkdir -p %s %s/in && printf secret >%s/victim && ln -s %s %s/link && ln -s "
				      "../../.. %s/up &&"
				      " ln -s %s/victim %s/file && printf mine >%s/own",
				      escape->out, escape->dir, escape->out, escape->out, escape->dir, escape->dir,
				      escape->out, escape->dir, escape->dir));
}

/* Nothing came, nothing went, nothing changed. */
static void must_be_untouched(struct check *check, const struct escape *escape)
{
	const char *text =
		run_shell(check, escape->session, check_printf(check, "cd %s && ls -A && cat victim", escape->out));

	MUST(check, text && !strcmp(text, "victim\nsecret"), "what lies outside the root was changed: %.100s",
	     text ? text : "");
}

static void clear(struct check *check, const struct escape *escape)
{
	run_shell(check, escape->session, check_printf(check, "rm -rf %s", escape->out));
}

static int try_verb(struct check *check, const struct escape *escape, int verb, const char *path, struct buf *back,
		    struct err *err)
{
	const struct berth_session *abi = &escape->session->abi;
	const char *own = check_printf(check, "%s/own", escape->dir);

	switch (verb) {
	case 0:
		return file_get(check, escape->session, path, 0, BERTH_SIZE_UNKNOWN, back, err);
	case 1:
		return file_put(check, escape->session, path, 0644, "evil", 4, err);
	case 2:
		return call_file_stat(check_call(check), abi, path, err);
	case 3:
		return call_file_list(check_call(check), abi, path, BERTH_LIST_RECURSIVE, err);
	case 4:
		return call_file_remove(check_call(check), abi, path, BERTH_REMOVE_RECURSIVE, err);
	case 5:
		return call_file_move(check_call(check), abi, path, own, err);
	case 6:
		return call_file_move(check_call(check), abi, own, path, err);
	case 7:
		return file_import(check, escape->session, path, "", 0, err);
	default:
		return file_export(check, escape->session, &path, 1, back, err);
	}
}

void rule_escape_links(struct check *check)
{
	static const char *const verbs[] = {"read",	 "write",   "stat",   "list",  "remove",
					    "move from", "move to", "import", "export"};
	static const char *const names[] = {"link/victim", "link/new", "up/conformance-none", "link/victim/x"};
	struct escape escape;

	if (!prepare(check, &escape))
		return;
	for (int verb = 0; verb < (check->kit->capabilities & BERTH_CAP_BULK ? 9 : 7); verb++)
		for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
			struct buf *back = check_buf(check);
			struct err err = {0};
			int rc = try_verb(check, &escape, verb, check_printf(check, "%s/%s", escape.dir, names[i]),
					  back, &err);

			MUST(check, rc && !back->len,
			     "%s through a link out of the root (%s) answers %s, and gives %zu bytes", verbs[verb],
			     names[i], kit_code(rc), back->len);
			MUST(check, is_invalid(rc) && !strcmp(err.reason, "path_escapes"),
			     "%s through a link out of the root (%s) answers %s, reason \"%s\", instead of invalid, "
			     "path_escapes",
			     verbs[verb], names[i], kit_code(rc), err.reason);
		}
	must_be_untouched(check, &escape);
	clear(check, &escape);
}

/* The link itself is the last part of the path. */
void rule_escape_last(struct check *check)
{
	struct escape escape;
	struct buf *back = check_buf(check);
	struct err err = {0};
	const char *file, *link;
	int rc;

	if (!prepare(check, &escape))
		return;
	file = check_printf(check, "%s/file", escape.dir);
	link = check_printf(check, "%s/link", escape.dir);
	rc = file_get(check, escape.session, file, 0, BERTH_SIZE_UNKNOWN, back, &err);
	MUST(check, is_invalid(rc) && !back->len, "read of a link out of the root answers %s", kit_code(rc));
	file_put(check, escape.session, file, 0644, "evil", 4, &err); /* refused, or the link is replaced */
	rc = call_file_list(check_call(check), &escape.session->abi, link, 0, &err);
	MUST(check, is_invalid(rc), "list of a link out of the root answers %s", kit_code(rc));
	call_file_remove(check_call(check), &escape.session->abi, link, BERTH_REMOVE_RECURSIVE, &err);
	must_be_untouched(check, &escape);
	clear(check, &escape);
}

void rule_escape_dots(struct check *check)
{
	static const char *const paths[] = {"../x", "a/../../x", "/etc/passwd", "..", "a/./b", "a//b", "", "x/"};
	struct session *session = session_shared(check);

	for (size_t i = 0; session && i < sizeof(paths) / sizeof(*paths); i++) {
		struct err err = {0};
		int rc = file_get(check, session, paths[i], 0, BERTH_SIZE_UNKNOWN, check_buf(check), &err);

		MUST(check, is_invalid(rc), "read of the path \"%s\" answers %s", paths[i], kit_code(rc));
		rc = file_put(check, session, paths[i], 0644, "x", 1, &err);
		MUST(check, is_invalid(rc), "write to the path \"%s\" answers %s", paths[i], kit_code(rc));
	}
}

void rule_escape_swapped(struct check *check)
{
	int rounds = check->kit->opt->stress ? 3000 : 150;
	struct escape escape;
	struct run *swapper;
	const char *stop;

	if (!prepare(check, &escape))
		return;
	stop = check_printf(check, "%s/stop", escape.dir);
	swapper = run_plan(
		check, escape.session,
		check_printf(check,
			     "cd %s; mkdir spare; printf good >spare/victim; cp -r spare now; echo ready\n"
			     "while [ ! -e stop ]; do rm -rf now; ln -s %s now; rm -f now; cp -r spare now; done",
			     escape.dir, escape.out));
	swapper->command.timeout_ms = swapper->limit_ms = kit_ms(check->kit, 60000);
	run_start(swapper);
	MUST(check, run_wait_output(swapper, "ready", 10000), "the swapping command did not begin");
	for (int i = 0; i < rounds; i++) {
		const char *path = check_printf(check, "%s/now/victim", escape.dir);
		struct buf *back = check_buf(check);
		struct err err = {0};

		if (!file_get(check, escape.session, path, 0, BERTH_SIZE_UNKNOWN, back, &err))
			MUST(check,
			     !back->len || !memcmp(back->ptr, "good", back->len) ||
				     !memcmp(back->ptr, "evil", back->len),
			     "a read through a link that is being swapped gives what lies outside the root");
		file_put(check, escape.session, path, 0644, "evil", 4, &err);
		call_file_remove(check_call(check), &escape.session->abi, path, 0, &err);
	}
	run_shell(check, escape.session, check_printf(check, ": >%s", stop));
	MUST(check, run_wait(swapper, 20000), "the swapping command does not end");
	must_be_untouched(check, &escape);
	clear(check, &escape);
}

void rule_escape_tar(struct check *check)
{
	static const char *const names[] = {"../evil", "/tmp/evil", "a/../../evil", "link/evil"};
	struct escape escape;

	if (!prepare(check, &escape))
		return;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct buf *tar = check_buf(check);
		struct err err = {0};
		int rc;

		file_tar_entry(tar, names[i], '0', "", 0644, "evil", 4);
		file_tar_end(tar);
		rc = file_import(check, escape.session, escape.dir, tar->ptr, tar->len, &err);
		MUST(check, is_invalid(rc), "import of an archive with the entry %s answers %s", names[i],
		     kit_code(rc));
	}
	must_be_untouched(check, &escape);
	clear(check, &escape);
}

/* A link that the archive brings itself, and a file through it. */
void rule_escape_tar_link(struct check *check)
{
	struct escape escape;
	struct buf *tar = check_buf(check);
	struct err err = {0};

	if (!prepare(check, &escape))
		return;
	file_tar_entry(tar, "brought", '2', escape.out, 0777, NULL, 0);
	file_tar_entry(tar, "brought/evil", '0', "", 0644, "evil", 4);
	file_tar_end(tar);
	file_import(check, escape.session, escape.dir, tar->ptr, tar->len,
		    &err); /* refused, or taken apart harmlessly */
	must_be_untouched(check, &escape);
	clear(check, &escape);
}
