#!/usr/bin/env bash
# Texts speak of the project alone, links inside docs/ lead somewhere, lines of folder READMEs stay short.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
wrong=0
complain() { printf '%s\n' "$*"; wrong=1; }

if git grep -nIE '\b(TODO|FIXME|XXX)\b' -- . ':!tests/checks/prose.sh'; then complain 'unfinished work is marked above'; fi

while IFS=: read -r readme line _; do
  complain "$readme:$line is longer than 100 characters; a folder's README has whole sentences in short lines"
done < <(git grep -nE '^.{101,}' -- 'base/README.md' 'shm/README.md' 'cuda/README.md' 'sim/*README.md' 'client/*README.md' \
                                    'deploy/*README.md')

while IFS=: read -r file link; do
  target=${link%%#*}
  [ -z "$target" ] || [ -e "$(dirname "$file")/$target" ] || complain "$file links to $target, which is not there"
done < <(git grep -oIE '\]\([^)]+\)' -- '*.md' | grep -vE '\]\(https?:' | sed -E 's/\]\(([^)]+)\)$/\1/')
[ "$wrong" = 0 ] && printf 'texts are good\n'
exit "$wrong"
