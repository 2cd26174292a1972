#!/usr/bin/env bash
# The part of `docker run` that docs/run.md uses: namespaces, mounts, variables, groups. An image is a folder of
# /var/lib/images; its command /usr/bin/my-server. Its GPUs are the simulated ones.
set -euo pipefail
[ "$1" = run ] || exit 2
shift
variables=(PATH=/usr/bin STATE_DIRECTORY=/var/lib/my-server) binds=() groups=1234 user=1234:1234
while [ $# -gt 0 ]; do
  case $1 in
    --gpus)
      driver=$(dirname "$(readlink -f /run/gpumemd/driver/libcuda.so.1)")
      binds+=("$driver:$driver:ro" /dev/shm:/dev/shm) variables+=(GPUMEM_REAL_LIBCUDA=/run/gpumemd/driver)
      shift 2 ;;
    -v) binds+=("$2"); shift 2 ;;
    -e) variables+=("$2"); shift 2 ;;
    --user) user=$2; shift 2 ;;
    --group-add) groups+=,$2; shift 2 ;;
    -*) echo "docker: $1?" >&2; exit 2 ;;
    *) break ;;
  esac
done
image=/var/lib/images/$1
export image groups user
script='
mount -t proc proc "$image/proc"
while [ "$1" != -- ]; do
  IFS=: read -r from to how <<< "$1"
  mkdir -p "$image$to"
  mount --bind "$from" "$image$to"
  [ "$how" != ro ] || mount -o remount,bind,ro "$image$to"
  shift
done
shift
exec env -i "$@" /usr/sbin/chroot --userspec="$user" --groups="$groups" "$image" /usr/bin/python3 -S /usr/bin/my-server'
exec unshare --mount --pid --ipc --uts --net --fork bash -ec "$script" sh "${binds[@]}" -- "${variables[@]}"
