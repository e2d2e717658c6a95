#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the kube-apiserver and kubectl of the tests and prints the folder they are in. What was built of the same sources before is
# used again. The first time takes about 19 minutes of CPU time. Exit 3: there is no Go toolchain.
set -eu
cd "$(dirname "$0")"

command -v go >/dev/null 2>&1 || { echo "kube-apiserver: no Go toolchain" >&2; exit 3; }
version=$(cat go.mod go.sum main.go kubectl/main.go | sha256sum | cut -c1-16)
dir="${XDG_CACHE_HOME:-$HOME/.cache}/berth/kube-apiserver-$version"
if [ ! -x "$dir/kubectl" ] || [ ! -x "$dir/kube-apiserver" ]; then
	mkdir -p "$dir.new.$$"
	trap 'rm -rf "$dir.new.$$"' EXIT
	echo "kube-apiserver: building; this takes minutes the first time" >&2
	GOFLAGS=-mod=readonly go list -deps . ./kubectl >/dev/null || exit 4
	CGO_ENABLED=0 GOFLAGS=-mod=readonly go build -buildvcs=false -trimpath -ldflags '-s -w' -o "$dir.new.$$/" . ./kubectl >&2
	rm -rf "$dir"
	mv "$dir.new.$$" "$dir"
fi
echo "$dir"
