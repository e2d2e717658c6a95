/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading one plugin: the sequence of docs/plugins.md, each refusal one sentence naming path, expected and got. Main thread
 * only. A plugin whose init ran is never unloaded.
 */
#ifndef PLUGIN_LOADER_H
#define PLUGIN_LOADER_H

#include <berth/provider.h>

#include "conf/option.h"
#include "core/err.h"

struct plugin {
	unsigned magic;
	char *path;              /* real path */
	char name[64];
	struct berth_provider desc; /* a checked copy; fields past its struct_size are zero */
	struct berth_ops ops;       /* likewise; absent operations are NULL */
	struct option_row *options; /* built from desc.options, NULL key ends */
	size_t metric_count;
	void *handle;
	bool initialized;
	/* The descriptor it was loaded from stays open: the C library knows a mapped file by the name /proc/self/fd/N, so the
	 * number must not come to mean another file. */
	int fd;
};
#define PLUGIN_MAGIC 0x706c7567u

/* dir/name.so. Checks owner and mode of folder and file, opens once, probes that descriptor in a child (`probe` --probe fd,
 * 10 s, init and fini included; NULL = skip), maps it, checks the descriptor, calls init. */
int loader_load(const char *dir, const char *name, const char *probe, const struct berth_host *host,
		struct plugin **ret, struct err *err);
/* The child's side: loads from descriptor fd, runs init and fini, writes one line ("ok name version" or the sentence) to stdout;
 * returns the exit code. Each step it enters is a byte 0x01 before the line, so that the parent can say where a child died. */
int loader_probe_main(int fd, const char *path, const char *name);
/* fini, without unloading. */
void loader_fini(struct plugin *plugin);

/* Pure checks of a descriptor as found in memory; used by the loader and the fuzz target. */
int loader_validate(const struct berth_provider *found, const char *path, const char *name, struct plugin *ret,
		    struct err *err);
/* Frees what loader_validate made and everything else but the mapping, which stays. Not after loader_fini could not run. */
void loader_free(struct plugin *plugin);

#endif
