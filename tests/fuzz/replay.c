/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives a fuzz target without libFuzzer: every file of the folders named as arguments is fed to it once, whole and cut
 * short at a few places. One "ok" line per file; a defect ends the process.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

#define CUTS 8

static void feed(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	FUZZ_CHECK(copy != NULL);
	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

static void replay_file(const char *folder, const char *name)
{
	char path[4096];
	FILE *file;
	static uint8_t data[1 << 20];
	size_t size;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "rbe");
	FUZZ_CHECK(file != NULL);
	size = fread(data, 1, sizeof(data), file);
	FUZZ_CHECK(size < sizeof(data));
	fclose(file);
	fprintf(stderr, "replay %s\n", name);
	feed(data, size);
	for (size_t i = 1; i <= CUTS && size > i; i++)
		feed(data, i * size / (CUTS + 1));
	printf("ok %s\n", name);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	size_t count = 0;

	for (int i = 1; i < argc; i++) {
		DIR *folder = opendir(argv[i]);
		struct dirent *entry;

		FUZZ_CHECK(folder != NULL);
		while ((entry = readdir(folder))) {
			if (entry->d_name[0] == '.')
				continue;
			replay_file(argv[i], entry->d_name);
			count++;
		}
		closedir(folder);
	}
	if (count)
		return 0;
	fprintf(stderr, "there is nothing to replay\n");
	return 1;
}
