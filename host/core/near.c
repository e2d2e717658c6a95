/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the distance of two words (Levenshtein's), one row of its table at a time. Pure, any thread; never allocates.
 */
#include "core/near.h"

#include <stdint.h>
#include <string.h>

size_t near_distance(const char *a, const char *b)
{
	size_t row[64], len = strlen(b);

	if (len >= sizeof(row) / sizeof(*row))
		return SIZE_MAX;
	for (size_t j = 0; j <= len; j++)
		row[j] = j;
	for (size_t i = 0; a[i]; i++) {
		size_t diagonal = row[0];

		row[0] = i + 1;
		for (size_t j = 0; j < len; j++) {
			size_t change = diagonal + (a[i] != b[j]), best = row[j] < row[j + 1] ? row[j] + 1 : row[j + 1] + 1;

			diagonal = row[j + 1];
			row[j + 1] = change < best ? change : best;
		}
	}
	return row[len];
}
