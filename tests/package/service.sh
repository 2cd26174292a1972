#!/usr/bin/env bash
# service.sh BUILD|FOLDER_OF_PACKAGES: boots a systemd of its own, installs the packages of the folder, or those that it
# makes of the build, and uses, upgrades, removes and purges them while programs hold memory of a simulated GPU.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/package/service/machine.sh
. "$here/service/machine.sh"
given=$(realpath "$1")
debs=$root/opt/gpumem-debs

# Packages where the booted machine finds them: as they are, and as a later build.
provide_packages() {
  local folder=$given name version
  if [ -f "$given/CPackConfig.cmake" ]; then
    folder=$work/made
    cpack --config "$given/CPackConfig.cmake" -B "$folder" > "$work/said" 2>&1 || fail 'no packages'
  fi
  mkdir -p "$debs/first" "$debs/next"
  for name in gpumemd gpumem libgpumem0 libgpumem-dev python3-gpumem; do
    cp "$folder/$name"_*.deb "$debs/first/" || fail "there is no package $name"
    dpkg-deb -R "$folder/$name"_*.deb "$work/unpacked"
    version=$(sed -n 's/^Version: //p' "$work/unpacked/DEBIAN/control")
    sed -i "s/^Version: .*/Version: $version+later/; s/(= $version)/(= $version+later)/g" "$work/unpacked/DEBIAN/control"
    dpkg-deb -Zgzip -z1 -b "$work/unpacked" "$debs/next/${name}_next.deb" > /dev/null
    rm -rf "$work/unpacked"
  done
  cp "$here/service/"*.py "$here/../../client/examples/allocate.c" "$root/opt/"
}

# apt COMMAND...: what it says is in $work/said.
apt() { inside env DEBIAN_FRONTEND=noninteractive apt-get -qy "$@" > "$work/said" 2>&1; }
# install WHICH [NAME]: all packages, or those of a name.
install() {
  local files
  mapfile -t files < <(cd "$root" && printf '/%s\n' "opt/gpumem-debs/$1/${2:-}"*.deb)
  apt install "${files[@]}"
}
said() { grep -q -- "$1" "$work/said" || fail "apt did not say '$1'"; }

property() { inside systemctl show -P "$2" "$1"; }
broker_pid() { property gpumemd.service MainPID; }
is_serving() { inside systemctl --quiet is-active gpumemd.service && inside gpumem status > /dev/null; }
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
boot
provide_packages
for phase in installed configured shared compiled restarted reloaded escalated stuck disk_full upgraded_in_place upgraded misconfigured removed reinstalled purged; do
  step "$phase"
  "$phase"
done
printf 'the packages were installed, used, upgraded, removed, reinstalled and purged\n'
