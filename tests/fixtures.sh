#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fetches what the tests need from outside into build/fixtures: one published source package, pinned by version and digest. It comes
# through apt itself, from the sources this machine already uses; only their source entries are asked for, with lists of their own,
# so that nothing of the system changes. Asks nothing; does nothing when the file is there.
#   sh tests/fixtures.sh [folder]
set -eu
cd "$(dirname "$0")/.."

package=zlib
version=1:1.2.13.dfsg-1
file=zlib_1.2.13.dfsg.orig.tar.bz2
sha256=71feb7947e3c00ef125f83b79a4e529bde31171e5babe48b391f06758d1ab0a1

folder=${1:-build/fixtures}

matches() {
	[ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$sha256" ]
}

fail() {
	echo "fixtures: $package $version could not be had: $*." >&2
	echo "fixtures: put $file (sha256 $sha256) into $folder by other means and run this again" >&2
	exit 1
}

matches "$folder/$file" && exit 0
command -v apt-get >/dev/null 2>&1 || fail "this machine has no apt"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
chmod 755 "$work" # apt reads it as its own user
mkdir -p "$work/sources.d" "$work/lists/partial" "$work/cache/archives/partial" "$work/out" "$folder"

# The entries of this machine's own release, turned into entries for sources. Others (third parties) are left alone.
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[ -n "$release" ] || fail "this machine does not name its release"
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
	[ -f "$list" ] || continue
	awk -v release="$release" '
		$1 == "deb" {
			at = 2
			if ($2 ~ /^\[/) { while ($at !~ /\]$/) at++; at++ }
			if ($(at + 1) == release || index($(at + 1), release "-") == 1) { sub(/^[ \t]*deb/, "deb-src"); print }
		}' "$list" >>"$work/sources.d/own.list"
done
for list in /etc/apt/sources.list.d/*.sources; do
	[ -f "$list" ] || continue
	awk -v release="$release" '
		function close_stanza() {
			if (wanted && text != "" && !off) printf "%s\n", text
			text = ""; wanted = 0; off = 0; skip = 0
		}
		/^[ \t]*$/ { close_stanza(); next }
		/^#/ { next }
		/^[Tt]ypes:/ { if ($0 ~ /(^|[ \t])deb([ \t]|$)/ || $0 ~ /deb-src/) text = text "Types: deb-src\n"; else off = 1; next }
		/^[Ss]uites:/ { for (i = 2; i <= NF; i++) if ($i == release || index($i, release "-") == 1) wanted = 1 }
		/^[Ee]nabled:[ \t]*no/ { off = 1 }
		{ text = text $0 "\n" }
		END { close_stanza() }' "$list" >>"$work/sources.d/own.sources"
done
cat "$work"/sources.d/* 2>/dev/null | grep -q deb-src || fail "no apt source of this machine serves release $release"

apt() {
	apt-get -q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$work/sources.d" \
		-o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" "$@" >>"$work/log" 2>&1
}
apt update || { cat "$work/log" >&2; fail "apt could not read the lists of sources"; }
(cd "$work/out" && apt source --download-only --only-source "$package=$version") || {
	cat "$work/log" >&2
	fail "apt could not fetch it (is the machine Debian 12?)"
}
[ -f "$work/out/$file" ] || fail "the package holds no $file"
matches "$work/out/$file" || fail "the digest of $file is $(sha256sum "$work/out/$file" | cut -d' ' -f1)"
cp "$work/out/$file" "$folder/.$file.new"
mv "$folder/.$file.new" "$folder/$file"
echo "fixtures: $folder/$file"
