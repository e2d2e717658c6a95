/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The version of the provider ABI, and its journal. This is the number's only home.
 *
 * Rules of growth: a new operation, field, capability, host service, code, value of an enumeration or flag bit is
 * appended and raises the minor number; anything else (a changed meaning, type, owner or thread rule) raises the major
 * number. The host hands a plugin what the plugin may not know, and then:
 *   a signal, flag or level that the plugin does not know is UNSUPPORTED, and nothing is done;
 *   a field that must not be ignored comes with a capability, and is set only for plugins that declare it.
 * A plugin of a later minor runs in an older host (abi_minor is the lowest it needs), and then:
 *   it says only values that berth_host.abi_minor has; others are a violation, as unknown codes are;
 *   the host ignores capabilities that it does not know.
 *
 * Journal
 *   1.0  2026-11-30  frozen, after the Kubernetes provider had passed the conformance kit on a real API server. It taught:
 *                    forget and send_signal name the attempt, options are pointers, unknown values have rules.
 */
#ifndef BERTH_ABI_H
#define BERTH_ABI_H

#define BERTH_ABI_MAJOR 1
#define BERTH_ABI_MINOR 0

/* First word of every provider descriptor: "BRTH" read as a big-endian number. */
#define BERTH_PROVIDER_MAGIC 0x42525448u

/* The one symbol a plugin exports. */
#define BERTH_PROVIDER_ENTRY "berth_provider_entry_v1"

#endif
