#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what the tests need, builds, runs the suites, ends with "N passed, N failed".
#   sh tests/run.sh [--list] [--preset release|debug|asan|tsan] [--store sqlite|redis] [--target mock|kubernetes] [--full] [-j N] [suite…]
set -eu
cd "$(dirname "$0")/.."

preset=release
for argument in "$@"; do
	case "${previous:-}" in
	--preset) preset=$argument ;;
	-j | --store | --target) ;;
	*) case "$argument" in -*) ;; *) suites="${suites:-} $argument" ;; esac ;;
	esac
	case "$argument" in --preset=*) preset=${argument#--preset=} ;; --list | --help | -h) listing=1 ;; esac
	previous=$argument
done

if [ -z "${listing:-}" ]; then
	sh packaging/install-deps.sh tests
	case "$preset" in
	release | debug | asan | tsan) ;;
	*) echo "run.sh: no preset '$preset'; there are release, debug, asan, tsan" >&2; exit 2 ;;
	esac
	cmake --preset "$preset" -DBERTH_WERROR=ON -DBERTH_TESTS=ON >"/tmp/berth-configure.$$" 2>&1 || { cat "/tmp/berth-configure.$$" >&2; exit 1; }
	rm -f "/tmp/berth-configure.$$"
	cmake --build --preset "$preset"
	# Without it the tests that need it fail and say so; the others run.
	case "${suites:- e2e}" in *" e2e"*) sh tests/fixtures.sh || : ;; esac
elif ! command -v python3 >/dev/null 2>&1; then
	sh packaging/install-deps.sh tests
fi
exec python3 tests/suites.py "$@"
