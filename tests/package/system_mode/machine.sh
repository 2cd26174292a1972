# shellcheck shell=bash
# To be sourced by a script of root's that has skip(). A machine of its own as far as /etc, the loader's cache, /run, and an
# installed gpumem go.

# own_namespace ARGUMENT...: starts the script again with them, in a namespace of its own. There it does nothing.
own_namespace() {
  [ -z "${GPUMEM_OWN_NAMESPACE:-}" ] || return 0
  [ "$(id -u)" = 0 ] || skip 'it takes root'
  unshare --mount true 2> /dev/null || skip 'this machine lets nobody make namespaces (unshare)'
  GPUMEM_OWN_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"
}

# own_machine BUILD FOLDER DRIVER: gpumem is in FOLDER/prefix and first in PATH, and the loader finds the driver in the folder
# DRIVER once there is one.
own_machine() {
  local build=$1 folder=$2 part
  chmod 755 "$folder"
  mkdir "$folder/etc"
  mount -t tmpfs -o size=4m tmpfs "$folder/etc"
  mkdir "$folder/etc/upper" "$folder/etc/scratch"
  mount -t overlay -o "lowerdir=/etc,upperdir=$folder/etc/upper,workdir=$folder/etc/scratch" overlay /etc || skip 'no overlay here'
  mkdir -p /var/cache/ldconfig
  mount -t tmpfs tmpfs /var/cache/ldconfig
  mount -t tmpfs -o mode=755 tmpfs /run
  rm -rf /etc/gpumem /etc/gpumemd
  [ ! -e /usr/lib/gpumem ] || mount -t tmpfs tmpfs /usr/lib/gpumem  # what postrm removes
  for part in cli shim; do
    cmake -DCMAKE_INSTALL_PREFIX="$folder/prefix" -DCMAKE_INSTALL_COMPONENT=gpumem -P "$build/client/$part/cmake_install.cmake" \
      > "$folder/installed" 2>&1 || { echo "$part cannot be installed: $(cat "$folder/installed")" >&2; return 1; }
  done
  PATH=$folder/prefix/bin:$PATH
  mkdir -p /etc/ld.so.conf.d
  echo "$3" > /etc/ld.so.conf.d/nvidia.conf
}

# leave_machine FOLDER: after own_machine, and where there was none.
leave_machine() {
  [ -z "${GPUMEM_OWN_NAMESPACE:-}" ] || umount -l "$1/etc" /etc /var/cache/ldconfig /run /usr/lib/gpumem 2> /dev/null || true
}
