#!/bin/sh
top=$(dirname "$(readlink -f "$0")")
exec "$top/python/bin/python3" -E -s -B -X utf8 "$top/share/gpumem/SCRIPT" --prefix "$top" "$@"
