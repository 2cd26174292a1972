#!/usr/bin/env bash
# grpcurl.sh FOLDER: builds FOLDER/grpcurl, a client for any gRPC server, from its Go module at one version. What is done
# already is not done again. What fails is said in one line.
set -euo pipefail
readonly module=github.com/fullstorydev/grpcurl/cmd/grpcurl version=v1.8.9
folder=$(realpath -m "$1")
log=$folder/set-up.txt

give_up() { printf '%s; the test that needs grpcurl skips that part\n' "$1" >&2; exit 1; }

[ "$(cat "$folder/version.txt" 2> /dev/null)" = "$version" ] && exit 0
command -v go > /dev/null || give_up "grpcurl could not be built: there is no go command"
printf 'building grpcurl %s into %s\n' "$version" "$folder"
mkdir -p "$folder"
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
GOBIN=$folder GOPATH=$work/path GOCACHE=$work/cache GOFLAGS=-modcacherw CGO_ENABLED=0 \
  go install "$module@$version" > "$log" 2>&1 ||
  give_up "grpcurl could not be built: reach a Go module proxy (see $log)"
printf '%s\n' "$version" > "$folder/version.txt"
