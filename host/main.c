/* SPDX-License-Identifier: Apache-2.0 */
/*
 * berthd: argv, and which of its jobs that asks for. Runs on the main thread. Must hold no logic of its own; every error
 * exit prints one sentence, "berthd: <place>: <why>".
 */
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/buf.h"
#include "core/limits.h"
#include "core/secret.h"
#include "daemon.h"
#include "plugin/crash.h"
#include "plugin/describe.h"
#include "plugin/loader.h"

#define CONF_DEFAULT "/etc/berth/berth.conf"

static const char usage[] = "usage: berthd [-c FILE] [-t [--target NAME]] [--dev]\n"
			    "       berthd --describe PLUGIN | --version | --help\n"
			    "  -c, --config FILE  configuration file (default " CONF_DEFAULT ")\n"
			    "  -t, --test         check everything, print the effective configuration, exit\n"
			    "      --target NAME  with -t: check this target only\n"
			    "      --describe PLUGIN  load the file as a start would, print what it says of itself\n"
			    "      --dev          make a token for this run and print it (loopback only)\n";

enum job { JOB_SERVE, JOB_CHECK, JOB_DESCRIBE, JOB_VERSION, JOB_HELP, JOB_NONE };

struct options {
	const char *conf;
	const char *target; /* of -t: this one only */
	const char *plugin; /* of --describe */
	bool test;
	bool dev;
};

static enum job refuse(const char *word, const char *why)
{
	fprintf(stderr, "berthd: %s%s\n%s", word, why, usage);
	return JOB_NONE;
}

/* The first option that is a job of its own decides; what follows it is not looked at. */
static enum job read_options(int argc, char **argv, struct options *options)
{
	static const struct option longs[] = {
		{"config", required_argument, NULL, 'c'}, {"test", no_argument, NULL, 't'},
		{"dev", no_argument, NULL, 'd'},	  {"version", no_argument, NULL, 'V'},
		{"help", no_argument, NULL, 'h'},	  {"target", required_argument, NULL, 'T'},
		{"describe", required_argument, NULL, 'D'}, {0},
	};
	int c;

	opterr = 0; /* in our own words below */
	while ((c = getopt_long(argc, argv, "c:th", longs, NULL)) != -1) {
		switch (c) {
		case 'c':
			options->conf = optarg;
			break;
		case 't':
			options->test = true;
			break;
		case 'd':
			options->dev = true;
			break;
		case 'T':
			options->target = optarg;
			break;
		case 'D':
			options->plugin = optarg;
			return JOB_DESCRIBE;
		case 'V':
			return JOB_VERSION;
		case 'h':
			return JOB_HELP;
		default:
			return refuse(argv[optind - 1], ": not an option, or its value is missing");
		}
	}
	if (optind < argc)
		return refuse(argv[optind], ": not an option");
	if (options->target && !options->test)
		return refuse("--target", " goes with -t");
	return options->test ? JOB_CHECK : JOB_SERVE;
}

static int probe(int argc, char **argv)
{
	char *end = NULL;
	long fd = argc == 5 ? strtol(argv[2], &end, 10) : -1;

	if (fd < 0 || fd > INT_MAX || !end || *end) {
		fputs("berthd: --probe: needs a descriptor, a path and a name\n", stderr);
		return EXIT_USAGE;
	}
	return loader_probe_main((int)fd, argv[3], argv[4]);
}

static int describe(const char *file)
{
	char probe_path[PATH_MAX];
	struct err err = {0};
	struct buf out;
	int code = 0;

	crash_install();
	buf_init(&out, LIMIT_MIB);
	if (parts_program(probe_path, &err) != 0 || plugin_describe(file, probe_path, &out, &err) != 0)
		code = fail("providers", &err);
	else
		fwrite(out.ptr, 1, out.len, stdout);
	buf_fini(&out);
	return code;
}

static void print_dev_token(const struct conf *conf)
{
	for (size_t i = 0; i < conf->token_count; i++) {
		size_t len = 0;
		const void *secret = secret_ptr(conf->tokens[i].secret, &len);

		if (strcmp(conf->tokens[i].name, "dev") == 0) {
			printf("berthd: token of this run: %.*s\n", (int)len, (const char *)secret);
			fflush(stdout);
		}
	}
}

static void print_refusal(const char *sentence, void *arg)
{
	*(bool *)arg = true;
	fprintf(stderr, "berthd: configuration: %s\n", sentence);
}

static int read_conf(const struct options *options, struct host *host)
{
	struct err err = {0};
	bool told = false;

	host->dev = options->dev;
	serve_block_signals(host);
	crash_install();
	if (conf_load_telling(options->conf, options->dev, print_refusal, &told, &host->conf, &err) != 0)
		return told ? EXIT_CONFIG : fail("configuration", &err);
	return 0;
}

static int check(const struct options *options)
{
	struct host host = {0};
	int code = read_conf(options, &host);

	return code ? code : check_conf(&host, options->target);
}

static int run(const struct options *options)
{
	struct host host = {0};
	int code = read_conf(options, &host);

	if (code != 0)
		return code;
	if (options->dev)
		print_dev_token(host.conf);
	return serve(&host);
}

int main(int argc, char **argv)
{
	struct options options = {.conf = CONF_DEFAULT};

	if (argc > 1 && strcmp(argv[1], "--probe") == 0)
		return probe(argc, argv);
	switch (read_options(argc, argv, &options)) {
	case JOB_SERVE:
		return run(&options);
	case JOB_CHECK:
		return check(&options);
	case JOB_DESCRIBE:
		return describe(options.plugin);
	case JOB_VERSION:
		puts("berthd " BERTH_VERSION);
		return 0;
	case JOB_HELP:
		fputs(usage, stdout);
		return 0;
	case JOB_NONE:
		break;
	}
	return EXIT_USAGE;
}
