# The packages of gpumem in the booted machine. $given: a build, or a folder of packages.
# shellcheck shell=bash
debs=$root/opt/gpumem-debs

# Packages where the booted machine finds them: as they are, and as a later build.
provide_packages() {
  local folder=$given name version
  if [ -f "$given/CPackConfig.cmake" ]; then
    folder=$work/made
    cpack --config "$given/CPackConfig.cmake" -B "$folder" > "$work/said" 2>&1 || fail 'no packages'
  fi
  mkdir -p "$debs/first" "$debs/next"
  for name in gpumemd gpumem gpumem-history libgpumem0 libgpumem-dev python3-gpumem; do
    cp "$folder/$name"_*.deb "$debs/first/" || fail "there is no package $name"
    dpkg-deb -R "$folder/$name"_*.deb "$work/unpacked"
    version=$(sed -n 's/^Version: //p' "$work/unpacked/DEBIAN/control")
    sed -i "s/^Version: .*/Version: $version+later/; s/(= $version)/(= $version+later)/g" "$work/unpacked/DEBIAN/control"
    dpkg-deb -Zgzip -z1 -b "$work/unpacked" "$debs/next/${name}_next.deb" > /dev/null
    rm -rf "$work/unpacked"
  done
  cp "$here/service/"*.py "$here/system_mode/program.py" "$here/../../client/examples/allocate.c" "$root/opt/"
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

# A broker of simulated GPUs, as README.md has it for a machine without one: simulate SPEC.
simulate() {
  inside sed -i "s/^GPUMEMD_OPTIONS=.*/GPUMEMD_OPTIONS=\"--simulate $1\"/" /etc/default/gpumemd
  inside systemctl restart gpumemd.service || fail 'the broker does not start'
  is_serving || fail 'nobody serves'
}
