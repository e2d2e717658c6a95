#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fuzzes the parsers of outside bytes, one target at a time, and prints for each one line: executions, coverage (edges), new inputs,
# findings. Builds them first; needs clang (sh packaging/install-deps.sh fuzz).
#   sh tests/fuzz/run.sh [--minutes N] [--keep FOLDER] [target…]   default 5 minutes each, all targets
#   sh tests/fuzz/run.sh --planted [target…]                       each must find its planted defect within 5 minutes
#   sh tests/fuzz/run.sh --minimize --keep FOLDER [target…]        adds to the corpus what of FOLDER brings coverage
# Exits 1 when something was found (with --planted: when it was not). FOLDER/<target> holds what fuzzing found worth keeping,
# FOLDER/findings/<target> the inputs that failed; without --keep both go away unless there is a finding.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
corpus=$root/tests/fuzz/corpus
minutes=5
mode=fuzz
keep=
targets=
while [ $# -gt 0 ]; do
	case "$1" in
	--minutes) minutes=$2; shift ;;
	--keep) mkdir -p "$2"; keep=$(cd "$2" && pwd); shift ;;
	--planted) mode=planted ;;
	--minimize) mode=minimize ;;
	-h | --help) sed -n '3,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
	-*) echo "run.sh: no option '$1'" >&2; exit 2 ;;
	*) targets="$targets $1" ;;
	esac
	shift
done
[ -n "$targets" ] || targets=$(ls "$corpus")
[ "$mode" != minimize ] || [ -n "$keep" ] || { echo "run.sh: --minimize needs --keep FOLDER" >&2; exit 2; }
for target in $targets; do
	[ -f "$root/tests/fuzz/$target.c" ] || { echo "run.sh: no target '$target'" >&2; exit 2; }
done

build=${BERTH_FUZZ_BUILD:-$root/build/fuzz}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
{ cmake -S "$root" --preset fuzz -B "$build" && cmake --build "$build" --target fuzz -- -j2; } >"$work/build" 2>&1 || {
	tail -40 "$work/build" >&2
	exit 1
}
export TMPDIR="$work/tmp" # what a crashed target left goes away with it
[ -d /dev/shm ] && [ -w /dev/shm ] && TMPDIR=$(mktemp -d /dev/shm/berth-fuzz-run-XXXXXX) && trap 'rm -rf "$work" "$TMPDIR"' EXIT
mkdir -p "$TMPDIR"
export ASAN_OPTIONS="detect_leaks=1:allocator_may_return_null=1"
export LSAN_OPTIONS="suppressions=$root/tests/sanitizers/lsan.supp:print_suppressions=0"
export UBSAN_OPTIONS="print_stacktrace=1"

# libFuzzer's own words: "cov:" of the last line, and the final statistics.
figure() { sed -n "s/^stat::$1: *//p" "$2" | tail -1; }
coverage() { grep -a 'cov:' "$1" | tail -1 | sed 's/.*cov: *\([0-9]*\).*/\1/'; }

# What a target needs beside the rest. conf: libconfig's known leaks would start a search for leaks after nearly every input; at the
# end of the process they are looked for as everywhere.
extra() { [ "$1" != conf ] || echo "-detect_leaks=0"; }

# fuzz_one PROGRAM TARGET SECONDS FOUND: libFuzzer's exit code, its text in $work/log
fuzz_one() {
	mkdir -p "$work/new/$2" "$4"
	"$build/tests/fuzz/$1_$2" -max_total_time="$3" -max_len=8192 -timeout=25 -rss_limit_mb=1024 -print_final_stats=1 \
		-artifact_prefix="$4/" $(extra "$2") "${keep:-$work/new}/$2" "$corpus/$2" >"$work/log" 2>&1
}

bad=0
for target in $targets; do
	[ -z "$keep" ] || mkdir -p "$keep/$target"
	start=$(date +%s)
	code=0
	case "$mode" in
	fuzz)
		found=${keep:-$work}/findings/$target
		fuzz_one fuzz "$target" $((minutes * 60)) "$found" || code=$?
		findings=$(ls "$found" | wc -l)
		echo "$target: $(figure number_of_executed_units "$work/log") executions in $(($(date +%s) - start)) s," \
			"coverage $(coverage "$work/log") edges, $(figure new_units_added "$work/log") new inputs, $findings findings"
		if [ "$code" != 0 ]; then
			bad=1
			grep -aE 'does not hold|runtime error|ERROR:|SUMMARY:|Assertion' "$work/log" | head -5
			for file in "$found"/*; do
				[ -f "$file" ] && echo "input $file:" && base64 "$file"
			done
		fi
		;;
	planted)
		save=$keep
		keep=
		fuzz_one planted "$target" 300 "$work/planted/$target" || code=$?
		keep=$save
		# The same input without the planted defect must do no harm: else something else was found.
		input=$(ls "$work/planted/$target"/* 2>/dev/null | head -1)
		if [ "$code" != 0 ] && [ -n "$input" ] && "$build/tests/fuzz/fuzz_$target" "$input" >/dev/null 2>&1; then
			echo "$target: found after $(($(date +%s) - start)) s," \
				"$(figure number_of_executed_units "$work/log") executions"
		else
			bad=1
			echo "$target: NOT found in $(($(date +%s) - start)) s, exit code $code"
			grep -aE 'does not hold|runtime error|ERROR:|SUMMARY:' "$work/log" | head -5
		fi
		;;
	minimize)
		before=$(ls "$corpus/$target" | wc -l)
		"$build/tests/fuzz/fuzz_$target" -merge=1 -max_len=8192 "$corpus/$target" "$keep/$target" >"$work/log" 2>&1 || bad=1
		echo "$target: $before -> $(ls "$corpus/$target" | wc -l) inputs"
		;;
	esac
done
exit $bad
