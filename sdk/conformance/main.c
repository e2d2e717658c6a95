/* SPDX-License-Identifier: Apache-2.0 */
/*
 * berth-conformance plugin.so --config target.conf: chooses the rules, runs one after the other, reports. Main thread;
 * exits 0 when no rule failed, 1 when one did, 2 on wrong usage, 3 when the plugin or the target was refused.
 */
#include "kit.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <unistd.h>

#include "core/log.h"
#include "fault.h"
#include "plugin/loader.h"

static const char usage[] =
	"usage: berth-conformance plugin.so --config target.conf [option…]\n"
	"       berth-conformance --list | --help\n"
	"  --config FILE       one target, as in providers.d\n"
	"  --list              print the rules and stop\n"
	"  --rule ID           only this rule, or all of a family (files); repeatable\n"
	"  --stress            more of everything, and the rules that need it\n"
	"  --tap, --json       what to print (TAP)\n"
	"  --summary FILE      write a summary to publish\n"
	"  --without WORD      commands or files: the target has none by design; their rules are skipped and named\n"
	"  --deployment NAME   owner mark of what is created; everything that carries it is deleted (conformance)\n"
	"  --helpers DIR       where berth-supervise is (beside this program, or ../lib/berth/helpers)\n"
	"  --state DIR         the target's private folder is made below it (a temporary one)\n"
	"  --gone SECONDS      how long after a release its session may still be seen (30)\n"
	"  --patience N        factor of every time limit (1)\n";

static const struct option long_options[] = {
	{"config", required_argument, NULL, 'c'},
	{"list", no_argument, NULL, 'l'},
	{"rule", required_argument, NULL, 'r'},
	{"stress", no_argument, NULL, 's'},
	{"tap", no_argument, NULL, 't'},
	{"json", no_argument, NULL, 'j'},
	{"summary", required_argument, NULL, 'S'},
	{"without", required_argument, NULL, 'w'},
	{"helpers", required_argument, NULL, 'H'},
	{"deployment", required_argument, NULL, 'd'},
	{"state", required_argument, NULL, 'D'},
	{"patience", required_argument, NULL, 'p'},
	{"gone", required_argument, NULL, 'g'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

/* The whole rule, or its family before the dot. */
static bool rule_matches(const struct rule *rule, const char *word)
{
	size_t len = strlen(word);

	return !strncmp(rule->id, word, len) && (rule->id[len] == '\0' || rule->id[len] == '.');
}

static bool rule_known(const char *word)
{
	for (const struct rule *rule = rules; rule->id; rule++)
		if (rule_matches(rule, word))
			return true;
	fprintf(stderr, "berth-conformance: no rule \"%s\"; --list names them\n", word);
	return false;
}

/* False, for callers that hand on that the arguments are wrong. */
static bool __attribute__((format(printf, 1, 2))) complain(const char *fmt, ...)
{
	va_list args;

	fputs("berth-conformance: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputs("; --help says what there is\n", stderr);
	return false;
}

static bool take_without(struct kit_options *opt, const char *word)
{
	if (!strcmp(word, "commands"))
		opt->without |= NEED_COMMANDS;
	else if (!strcmp(word, "files"))
		opt->without |= NEED_FILES;
	else
		return complain("--without: expected commands or files, got \"%s\"", word);
	return true;
}

static bool take_number(int64_t *ret, const char *option, const char *word, int64_t most)
{
	char *end;

	*ret = strtol(word, &end, 10);
	if (*word && !*end && *ret >= 1 && *ret <= most)
		return true;
	return complain("%s: expected a number from 1 to %lld, got \"%s\"", option, (long long)most, word);
}

static bool take_option(struct kit_options *opt, int letter)
{
	switch (letter) {
	case 'c':
		opt->config = optarg;
		return true;
	case 'l':
		opt->list = true;
		return true;
	case 'r':
		opt->rules[opt->rule_count++] = optarg;
		return rule_known(optarg);
	case 's':
		opt->stress = true;
		return true;
	case 't':
		opt->format = KIT_TAP;
		return true;
	case 'j':
		opt->format = KIT_JSON;
		return true;
	case 'S':
		opt->summary = optarg;
		return true;
	case 'H':
		opt->helpers = optarg;
		return true;
	case 'd':
		opt->deployment = optarg;
		return true;
	case 'D':
		opt->state = optarg;
		return true;
	case 'w':
		return take_without(opt, optarg);
	case 'p':
		return take_number(&opt->patience, "--patience", optarg, 100);
	case 'g':
		return take_number(&opt->gone_s, "--gone", optarg, 3600);
	case 'h':
		opt->help = true;
		return true;
	default: /* getopt has named it */
		return false;
	}
}

static bool take_arguments(struct kit_options *opt, int argc, char **argv)
{
	int letter;

	while ((letter = getopt_long(argc, argv, "", long_options, NULL)) != -1)
		if (!take_option(opt, letter))
			return false;
	if (optind < argc)
		opt->plugin = argv[optind++];
	if (opt->help || opt->list)
		return true;
	if (optind < argc)
		return complain("one plugin.so is expected, \"%s\" is one too many", argv[optind]);
	if (!opt->plugin)
		return complain("plugin.so is missing, the provider to check");
	return opt->config || complain("--config is missing, the file of one target as in providers.d");
}

static void list_rules(void)
{
	for (const struct rule *rule = rules; rule->id; rule++) {
		char needs[200];

		report_needs(rule, needs, sizeof(needs));
		printf("%s\t%s\t%s\n", rule->id, needs, rule->sentence);
	}
}

static bool wanted(const struct kit_options *opt, const struct rule *rule)
{
	for (size_t i = 0; i < opt->rule_count; i++)
		if (rule_matches(rule, opt->rules[i]))
			return true;
	return !opt->rule_count;
}

static bool skip(struct check *check)
{
	const struct kit_options *opt = check->kit->opt;
	const struct rule *rule = check->rule;
	const struct rule lacking = {.capabilities = rule->capabilities & ~check->kit->capabilities};
	char words[200];

	report_needs(&lacking, words, sizeof(words));
	if (lacking.capabilities)
		check_skip(check, "needs %s, which this target does not declare", words);
	else if (rule->needs & opt->without & NEED_COMMANDS)
		check_skip(check, "needs commands: --without commands");
	else if (rule->needs & opt->without & NEED_FILES)
		check_skip(check, "needs files: --without files");
	else if ((rule->needs & NEED_STRESS) && !opt->stress)
		check_skip(check, "runs with --stress only");
	else if ((rule->needs & NEED_HTTP) && !fault_exchanges())
		check_skip(check, "needs HTTP: this target made no exchange through the host");
	return check->verdict == SKIPPED;
}

/* Once the target is closed nothing of it may be left. */
static void judge_close(struct check *check, bool closed)
{
	const struct kit *kit = check->kit;
	int64_t until = clock_after_ms(kit_ms(kit, 2000));
	int fds = kit_count_fds(), threads = kit_count_threads();

	/* A thread that was joined is listed for a moment longer. */
	while (threads > kit->threads && clock_boot_ns() < until)
		threads = kit_count_threads();
	/* The host keeps the plugin's own file open. */
	MUST(check, closed, "a call did not come back, so that the target could not be closed");
	MUST(check, threads <= kit->threads, "%d threads before open, %d after close", kit->threads, threads);
	MUST(check, fds <= kit->fds + 1, "%d descriptors before open, %d after close (1 more is the plugin's file)",
	     kit->fds, fds);
}

static void run_rule(struct kit *kit, const struct rule *rule, struct outcome *ret)
{
	int64_t begin_ns = clock_boot_ns();
	struct check check;

	check_init(&check, kit, rule);
	if (!skip(&check)) {
		if (rule->fn)
			rule->fn(&check);
		else
			judge_close(&check, kit_close(kit));
	}
	check_fini(&check);
	*ret = (struct outcome){
		.rule = rule, .verdict = check.verdict, .took_ms = (clock_boot_ns() - begin_ns) / CLOCK_NS_PER_MS};
	memcpy(ret->message, check.message, sizeof(ret->message));
}

static int run_all(struct kit *kit, FILE *out)
{
	size_t count = 0, at = 0, failed = 0;
	struct outcome *outcomes;
	struct err err = {0};

	for (const struct rule *rule = rules; rule->id; rule++)
		count += wanted(kit->opt, rule);
	outcomes = calloc(count + 1, sizeof(*outcomes));
	if (!outcomes)
		abort();
	report_begin(out, kit, count);
	for (const struct rule *rule = rules; rule->id; rule++) {
		if (!wanted(kit->opt, rule))
			continue;
		run_rule(kit, rule, &outcomes[at]);
		failed += outcomes[at].verdict == FAILED;
		report_one(out, kit, at + 1, &outcomes[at]);
		at++;
	}
	report_end(out, kit, outcomes, count);
	if (kit->opt->summary && report_summary(kit, outcomes, count, &err))
		fprintf(stderr, "berth-conformance: %s\n", err.msg);
	free(outcomes);
	return failed ? 1 : 0;
}

/* A plugin that prints must not break the report. */
static FILE *keep_output(void)
{
	int fd = fcntl(1, F_DUPFD_CLOEXEC, 3);
	FILE *out = fd < 0 ? NULL : fdopen(fd, "w");

	if (out)
		dup2(2, 1);
	return out;
}

static int run_kit(const struct kit_options *opt)
{
	struct kit *kit = calloc(1, sizeof(*kit));
	FILE *out = keep_output();
	struct err err = {0};
	int rc;

	if (!kit || !out)
		return 3;
	rc = kit_open(kit, opt, &err);
	if (!rc)
		rc = kit_sweep(kit, &err); /* what a killed run left behind */
	if (rc) {
		fprintf(out, "%s%s\n", opt->format == KIT_TAP ? "Bail out! " : "", err.msg);
		rc = 3;
	} else {
		rc = run_all(kit, out);
	}
	fclose(out);
	if (!kit_close(kit))
		_exit(rc ? rc : 1); /* a thread still runs in the plugin */
	guard_drop(&kit->guard);
	conf_free(kit->conf);
	free(kit);
	return rc;
}

int main(int argc, char **argv)
{
	struct kit_options opt = {.deployment = "conformance", .patience = 1, .gone_s = 30};
	int rc;

	if (argc == 5 && !strcmp(argv[1], "--probe"))
		return loader_probe_main((int)strtol(argv[2], NULL, 10), argv[3], argv[4]);
	opt.rules = calloc((size_t)argc + 1, sizeof(*opt.rules));
	if (!opt.rules)
		return 3;
	if (!take_arguments(&opt, argc, argv)) {
		rc = 2;
	} else if (opt.help) {
		fputs(usage, stdout);
		rc = 0;
	} else if (opt.list) {
		list_rules();
		rc = 0;
	} else {
		log_init(LOG_ERROR, LOG_LOGFMT);
		sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
		setenv(KIT_SECRET_NAME, "1", 1);
		rc = run_kit(&opt);
	}
	free(opt.rules);
	return rc;
}
