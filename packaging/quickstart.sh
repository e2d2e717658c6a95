#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From a fresh Debian 12 to a task that ran: installs what the build needs, builds, starts berthd with etc/berth.conf on loopback
# (mock provider, SQLite, objects in a folder) with its state under build/, plays one agent task through berthctl, stops, and
# leaves nothing behind but the build. Asks nothing and can be repeated.
#   sh packaging/quickstart.sh [--serve]     --serve: go on serving until Ctrl-C
set -eu
cd "$(dirname "$0")/.."

serve=
case "$*" in
'') ;;
--serve) serve=1 ;;
--help | -h)
	sed -n '3,6s/^# \{0,1\}//p' "$0"
	exit 0
	;;
*)
	printf 'quickstart: not known: %s\n' "$*" >&2
	sed -n '6s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac

say() {
	printf '\n== %s\n' "$*"
}

fail() {
	printf 'quickstart: %s\n' "$*" >&2
	[ ! -s "${state:-/nonexistent}/berthd.log" ] || tail -n 20 "$state/berthd.log" >&2
	exit 1
}

say "Installing what the build needs"
sh packaging/install-deps.sh
echo "all there"

say "Building into build/release: some minutes the first time; what it prints goes to build/quickstart.log"
mkdir -p build
{ cmake --preset release && cmake --build --preset release --target berthd berthctl berthctl_share berth-supervise plugin_mock; } >build/quickstart.log 2>&1 || {
	tail -n 40 build/quickstart.log >&2
	fail "the build failed; all of it is in build/quickstart.log"
}
bin=$PWD/build/release/bin
echo "$bin/berthd, berthctl, berth-supervise; the mock provider's plugin; man pages and completion in build/release/share"

state=$(mktemp -d "$PWD/build/quickstart.XXXXXX")
daemon=
stopped=
clean_up() {
	code=$?
	trap - EXIT
	# A second Ctrl-C must not end this half way, nor what it starts.
	trap '' INT TERM HUP
	if [ -n "$daemon" ]; then
		printf '\nstopping: commands that run get up to 10 s, then they are ended\n'
		kill "$daemon" 2>/dev/null || :
		wait "$daemon" 2>/dev/null || :
	fi
	# Commands outlive the daemon, by design; here they must not.
	until=$(awk '{ printf "%.0f", ($1 + 10) * 1e9 }' /proc/uptime)
	for run in "$state"/state/targets/*/sessions/*/run; do
		[ ! -d "$run" ] || "$bin/berth-supervise" kill-all --run-dir "$run" --until "$until" >/dev/null 2>&1 || :
	done
	rm -rf "$state"
	[ -z "$stopped" ] || printf '\nstopped, state removed\n'
	exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Every setting that differs from etc/berth.conf; the token is made here and lives as long as this script.
umask 077
BERTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
printf '%s\n' "$BERTH_TOKEN" >"$state/token"
export BERTH_TOKEN
export BERTH_STATE_DIR="$state/state" BERTH_PLUGIN_DIR="$PWD/build/release/lib/berth/plugins" BERTH_HELPER_DIR="$bin"
mkdir -p "$BERTH_STATE_DIR"

# Starts on the port and waits until it answers; fails when the daemon ends before.
start_on() {
	rm -f "$BERTH_STATE_DIR/port"
	# In a session of its own: a Ctrl-C is for this script and for berthctl, which cancels its command through the daemon.
	BERTH_PORT=$1 setsid "$bin/berthd" -c etc/berth.conf >"$state/berthd.log" 2>&1 </dev/null &
	daemon=$!
	tries=0
	while kill -0 "$daemon" 2>/dev/null; do
		if [ -s "$BERTH_STATE_DIR/port" ]; then
			BERTH_ADDRESS=http://127.0.0.1:$(cat "$BERTH_STATE_DIR/port")
			export BERTH_ADDRESS
			"$bin/berthctl" sessions >/dev/null 2>&1 && return 0
		fi
		tries=$((tries + 1))
		[ "$tries" -lt 300 ] || fail "berthd does not answer"
		sleep 0.1
	done
	wait "$daemon" 2>/dev/null || :
	daemon=
	return 1
}

say "Starting berthd with etc/berth.conf"
start_on 8000 || {
	echo "port 8000 cannot be had (is something else there?), taking a free one"
	start_on 0 || fail "berthd did not start"
}
echo "berthd serves on $BERTH_ADDRESS, state in $state"

task=quickstart
# Runs berthctl and shows the command line.
ctl() {
	printf '$ berthctl'
	for word in "$@"; do
		case "$word" in *[!A-Za-z0-9_./-]*) printf ' "%s"' "$word" ;; *) printf ' %s' "$word" ;; esac
	done
	echo
	"$bin/berthctl" "$@" || fail "that ended with exit code $?"
}

compile='cc -static -Os -D_GNU_SOURCE -Isdk/include -o supervise sdk/supervisor/*.c sdk/lib/supervised_files.c sdk/lib/localfs_beneath.c'

say "An agent's task: Berth's own supervisor is built, changed and built again. Each line is a command of its own in one sandbox."
tar cf "$state/source.tar" sdk
ctl put "$task" "$state/source.tar" source.tar
ctl exec "$task" 'tar xf source.tar && ls sdk && cat sdk/supervisor/*.c | wc -l'
ctl exec "$task" "$compile && ls -l supervise"
ctl exec "$task" './supervise 2>&1 | head -n 1'
echo "It works. Now its source is changed in the sandbox, and it is built again:"
ctl exec "$task" "sed -i 's/usage: berth-supervise/usage of the edited berth-supervise:/' sdk/supervisor/main.c && grep -n 'edited' sdk/supervisor/main.c"
ctl exec "$task" "$compile"
ctl get "$task" supervise "$state/supervise"
chmod u+x "$state/supervise"
first=$("$state/supervise" 2>&1 | head -n 1) || :
echo "The fetched program runs here and says: $first"
case "$first" in *'edited berth-supervise'*) ;; *) fail "the fetched program is not the edited one" ;; esac
echo "A command's own exit code comes through:"
printf '$ berthctl exec %s "exit 7"\n' "$task"
code=0
"$bin/berthctl" exec "$task" 'exit 7' || code=$?
[ "$code" = 7 ] || fail "exit code $code instead of 7"
echo "exit code 7"

say "What Berth knows about it: the task, its commands"
ctl task "$task"
ctl executions "$task"

say "The task is over: its session is torn down, and Berth compares its books with what the provider holds"
ctl retire "$task"
ctl verify

if [ -n "$serve" ]; then
	trap 'stopped=1; exit 0' INT
	trap 'stopped=1; exit 143' TERM HUP
	say "berthd goes on serving until Ctrl-C; its state goes with it"
	cat <<END
In another terminal, in this folder:

  export PATH=\$PWD/build/release/bin:\$PATH BERTH_ADDRESS=$BERTH_ADDRESS BERTH_TOKEN=$BERTH_TOKEN BERTH_WORKSPACE=team

and then what README.md has under "With curl" and "With berthctl", or

  berthctl exec mytask 'uname -a; pwd'
  man -l build/release/share/man/man1/berthctl.1

The mock provider runs commands as this user on this machine: it isolates nothing.
END
	wait "$daemon" || fail "berthd ended"
	daemon=
else
	say "Stopping"
	kill "$daemon"
	code=0
	wait "$daemon" || code=$?
	daemon=
	[ "$code" = 0 ] || fail "berthd ended with $code"
	echo "Done: one task, one sandbox, nothing left. --serve keeps the daemon running."
fi
