#!/bin/bash
# Unpacks Debian's source of the installed redis-server into the folder $1, which must not exist:
# its tests are in no binary package. Neither apt's lists nor its sources are changed.
set -eu
version=$(dpkg-query -W -f '${source:Version}' redis-server)
mkdir -p "$(dirname "$1")"
target=$(realpath "$1")
own=$(mktemp -d)
trap 'rm -rf "$own"' EXIT
# apt fetches as a user of its own where it can.
chmod 755 "$own"
mkdir -p "$own/parts" "$own/lists/partial" "$own/cache/archives/partial"
for suite in debian:bookworm debian:bookworm-updates debian-security:bookworm-security; do
    printf 'Types: deb-src\nURIs: http://deb.debian.org/%s\nSuites: %s\nComponents: main\n' \
        "${suite%:*}" "${suite#*:}"
    printf 'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n'
done >"$own/parts/source.sources"
apt() {
    apt-get -q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$own/parts" \
        -o Dir::State::Lists="$own/lists" -o Dir::Cache="$own/cache" "$@" >"$own/said" 2>&1 ||
        { cat "$own/said" >&2; exit 1; }
}
apt update
cd "$own"
# An older release than the archive's has left it; the newest one's tests are as good.
(apt source --download-only "redis=$version") 2>/dev/null || apt source --download-only redis
dpkg-source --no-copy -x redis_*.dsc "$target" >"$own/said" 2>&1 || { cat "$own/said" >&2; exit 1; }
