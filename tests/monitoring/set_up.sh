#!/usr/bin/env bash
# set_up.sh FOLDER: unpacks Debian's Prometheus into FOLDER. It is not installed: that would start it as a service. What is
# done already is not done again. What fails is said in one line.
set -euo pipefail
folder=$(realpath -m "$1")

give_up() { printf 'Prometheus could not be unpacked: %s; the tests that need it skip\n' "$1" >&2; exit 1; }

[ -x "$folder/usr/bin/prometheus" ] && [ -x "$folder/usr/bin/promtool" ] && exit 0
command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null || give_up "this is no Debian system"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'unpacking Prometheus into %s\n' "$folder"
(cd "$work" && apt-get download -q prometheus > log 2>&1) || give_up "$(tail -n 1 "$work/log")"
mkdir -p "$folder"
dpkg-deb -x "$work"/prometheus_*.deb "$folder" || give_up "its package is broken"
