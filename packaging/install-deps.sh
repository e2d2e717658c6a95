#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the distribution's packages that Berth is built with, and with an argument also what its tests ("tests"), the
# fuzzers ("fuzz"), the static checks ("static") or the benches ("bench") need. Asks nothing; does nothing when all are there.
set -eu

build="gcc libc6-dev cmake ninja-build pkg-config libmicrohttpd-dev libgnutls28-dev libcurl4-openssl-dev libjson-c-dev libhiredis-dev
libconfig-dev libsqlite3-dev libssl-dev libcmocka-dev ca-certificates libsodium-dev libhttp-parser-dev libyaml-dev"
tests="python3 python3-jsonschema iproute2 openssl util-linux python3-yaml curl make g++ sqlite3 binutils libfaketime bzip2 xz-utils dpkg-dev procps
abigail-tools clang zsh groff-base python3-cryptography busybox-static redis-server redis-sentinel"

fuzz="clang-14 libclang-rt-14-dev llvm-14"
static="cppcheck clang-tidy-14 python3"
bench="python3 curl wrk nginx-light redis-server"

case "${1:-}" in
tests) packages="$build $tests" ;;
fuzz) packages="$build $fuzz" ;;
static) packages="$build $static" ;;
bench) packages="$build $bench" ;;
*) packages=$build ;;
esac

missing=
for package in $packages; do
	dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

if ! command -v apt-get >/dev/null 2>&1; then
	echo "install-deps: this is not a Debian system; install the counterparts of:$missing" >&2
	exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
	if ! command -v sudo >/dev/null 2>&1; then
		echo "install-deps: run as root, or install:$missing" >&2
		exit 1
	fi
	sudo=sudo
fi
echo "install-deps: installing$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { $sudo env DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; } >"$log" 2>&1
then
	cat "$log" >&2
	echo "install-deps: could not install the packages above" >&2
	exit 1
fi
