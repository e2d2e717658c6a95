/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last line of a process that dies by a fault: which signal, where, and which plugin. Plugins share the process, so
 * a crash of one is a crash of all; the line says whose it was.
 */
#ifndef PLUGIN_CRASH_H
#define PLUGIN_CRASH_H

/* Handlers for SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT. They write one line to standard error, then the default
 * action is taken, with the registers of the fault, so that core dumps work as without them. Once, on the main thread,
 * before plugins are loaded. Does nothing under sanitizers, which report crashes themselves. */
void crash_install(void);

/* Notes where the object behind a dlopen handle is mapped, under the plugin's name. Main thread. */
void crash_learn(void *handle, const char *name);

/* What this thread is in from now on, until crash_leave: texts stay the caller's and must live that long. target may be
 * NULL (init, fini). The first time on a thread it also gets a stack for the handler and the five signals unblocked: a
 * fault whose signal is blocked kills without a word. */
void crash_enter(const char *plugin, const char *operation, const char *target);
void crash_leave(void);

#endif
