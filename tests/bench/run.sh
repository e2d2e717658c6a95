#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what the benches need, builds, runs them: one JSON line per figure, exit code 1 when one misses its goal.
#   sh tests/bench/run.sh [--list] [--rounds N] [--seconds N] [--dir DIR] [name…]
# BERTH_BUILD=DIR measures what is built there instead.
set -eu
cd "$(dirname "$0")/../.."

sh packaging/install-deps.sh bench
if [ -z "${BERTH_BUILD:-}" ]; then
	log=$(mktemp)
	if ! { cmake --preset release && cmake --build --preset release --target bench; } >"$log" 2>&1; then
		cat "$log" >&2
		rm -f "$log"
		exit 1
	fi
	rm -f "$log"
fi
exec python3 tests/bench/bench.py "$@"
