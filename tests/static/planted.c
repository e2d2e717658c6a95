/* SPDX-License-Identifier: Apache-2.0 */
/* Part of no program: a defect that each static checker must report, to show that it looks at all. */
#include <stdlib.h>

void planted(int twice);

void planted(int twice)
{
	char *block = malloc(16);

	free(block);
	if (twice)
		free(block);
}
