/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The version of the provider ABI, and its journal. This is the number's only home.
 *
 * Rules of growth: a new operation, field, capability, host service or code is appended and raises the
 * minor number; anything else (a changed meaning, type, owner or thread rule) raises the major number.
 *
 * Journal
 *   1.0  2026-11-29  open: may still change until it is frozen.
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
