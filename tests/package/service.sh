#!/usr/bin/env bash
# service.sh BUILD|FOLDER_OF_PACKAGES [GLIBC]: boots a systemd of its own, installs the packages of the folder, or those that
# it makes of the build, and uses, upgrades, removes and purges them while programs hold memory of a simulated GPU. Containers
# have the drop-in driver mounted from there: it needs no newer C library than GLIBC, such as 2.28.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/package/service/machine.sh
. "$here/service/machine.sh"
given=$(realpath "$1") glibc=${2:-}
# shellcheck source=tests/package/service/packages.sh
. "$here/service/packages.sh"

is_new_broker() { [ "$(broker_pid)" != "$1" ] && is_serving; }
sockets_since() { for unit in lane api; do property gpumemd-$unit.socket ActiveEnterTimestampMonotonic; done; }

# A program of USER that holds memory until its input ends.
start_keeper() {
  rm -f "$work/keeper.in"
  mkfifo "$work/keeper.in"
  as_user "$1" python3 /opt/keeper.py /run/gpumemd/driver < "$work/keeper.in" > "$work/keeper.out" 2>&1 & keeper=$!
  exec 7> "$work/keeper.in"
  await 'a program that holds memory' grep -q holds "$work/keeper.out"
}
expect_kept() {
  local lines
  lines=$(wc -l < "$work/keeper.out")
  echo >&7
  await "the program's memory, $1" sh -c "[ \$(wc -l < '$work/keeper.out') -gt $lines ]"
  [ "$(tail -n 1 "$work/keeper.out")" = kept ] || fail "memory was lost $1: $(cat "$work/keeper.out")"
}
end_keeper() { exec 7>&-; wait "$keeper" || fail "the program failed: $(cat "$work/keeper.out")"; }
# Another program gets memory of the broker, or of the next one, and returns it.
can_borrow() { as_user ann python3 /opt/borrow.py > "$work/said" 2>&1; }

. "$here/service/life.sh"
. "$here/service/administration.sh"
boot
provide_packages
for phase in busy installed lends_what_there_is driverless every_key serves_the_machine configured accounts shared recorded compiled restarted reloaded escalated stuck disk_full upgraded_in_place upgraded misconfigured removed reinstalled purged; do
  step "$phase"
  "$phase"
done
printf 'the packages were installed, used, upgraded, removed, reinstalled and purged\n'
