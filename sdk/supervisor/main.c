/* SPDX-License-Identifier: Apache-2.0 */
/*
 * berth-supervise: argv only. It runs inside sandboxes as one static binary, so it needs no other file. Its exit codes
 * are listed in ../lib/supervised_files.h. Must never print anything of a command.
 */
#include "sup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
	"usage: berth-supervise run --dir <run-dir>/<execution id> --attempt <n>\n"
	"       berth-supervise poison --dir <run-dir>/<execution id> --attempt <n>\n"
	"       berth-supervise attend   (jobs come on descriptor 0)\n"
	"       berth-supervise kill-all --run-dir <run-dir> [--id <execution id>] --until <CLOCK_BOOTTIME ns>\n"
	"Exit codes: 0 done, 2 usage, 10 started before, 11 poisoned, 12 spec, 13 storage, 14 resources,\n"
	"            15 processes left, 16 nothing found\n";

struct args {
	const char *dir;
	const char *run_dir;
	const char *id;
	uint64_t attempt;
	uint64_t until;
};

static int number(const char *text, uint64_t *ret_value)
{
	char *end;

	errno = 0;
	*ret_value = strtoull(text, &end, 10);
	return (*text < '0' || *text > '9' || *end || errno) ? -EINVAL : 0;
}

static int parse(int argc, char **argv, struct args *args)
{
	for (int i = 2; i < argc; i += 2) {
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;

		if (!value)
			return -EINVAL;
		if (strcmp(argv[i], "--dir") == 0)
			args->dir = value;
		else if (strcmp(argv[i], "--run-dir") == 0)
			args->run_dir = value;
		else if (strcmp(argv[i], "--id") == 0)
			args->id = value;
		else if (strcmp(argv[i], "--attempt") == 0 && number(value, &args->attempt) == 0)
			continue;
		else if (strcmp(argv[i], "--until") == 0 && number(value, &args->until) == 0)
			continue;
		else
			return -EINVAL;
	}
	return 0;
}

static int poison_run(const char *dir, uint32_t attempt)
{
	struct sup_started started;
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc;

	if (fd < 0)
		return SUP_EXIT_STORAGE;
	rc = sup_poison(fd, attempt, &started);
	close(fd);
	if (rc < 0)
		return SUP_EXIT_STORAGE;
	return rc == 1 ? SUP_EXIT_ALREADY : 0;
}

int main(int argc, char **argv)
{
	struct args args = {0};
	bool attempt_ok;

	if (argc < 2 || parse(argc, argv, &args) < 0)
		goto usage;
	attempt_ok = args.dir && args.dir[0] == '/' && args.attempt >= 1 && args.attempt <= UINT32_MAX;
	if (strcmp(argv[1], "run") == 0 && attempt_ok)
		return start_run(args.dir, (uint32_t)args.attempt);
	if (strcmp(argv[1], "poison") == 0 && attempt_ok)
		return poison_run(args.dir, (uint32_t)args.attempt);
	if (strcmp(argv[1], "attend") == 0 && argc == 2)
		return attend_run();
	if (strcmp(argv[1], "kill-all") == 0 && args.run_dir && args.until && args.until <= INT64_MAX)
		return killall_run(args.run_dir, args.id, (int64_t)args.until);
usage:
	if (write(STDERR_FILENO, usage, sizeof(usage) - 1) < 0)
		return SUP_EXIT_USAGE;
	return SUP_EXIT_USAGE;
}
