#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Static checks of host/, sdk/, executor/ and plugins/: cppcheck, and with --full also clang-tidy (.clang-tidy says which of its checks) and
# gcc -fanalyzer, which take long. Prints what is not excused in suppressions.txt; exits 1 when there is any, when an excuse is no
# longer needed, or when a tool does not see the defect in planted.c.
#   sh tests/static/run.sh [--full] [-j N] [cppcheck|clang-tidy|analyzer…]
set -eu
cd "$(dirname "$0")/../.."
sh packaging/install-deps.sh static
exec python3 tests/static/check.py "$@"
