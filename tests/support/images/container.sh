#!/usr/bin/env bash
# container.sh TREE USER:GROUP [MOUNT…] -- COMMAND…  in new mount and process namespaces. MOUNT: "bind SOURCE AT ro|rw" or "tmpfs AT".
set -euo pipefail
tree=$1 user=$2
shift 2
mount --make-rprivate /
mount --bind "$tree" "$tree"
read_only=()
while [ "$1" != -- ]; do
  read -r kind first at how <<<"$1"
  if [ "$kind" = bind ]; then
    mkdir --parents "$tree$at"
    mount --bind "$first" "$tree$at"
    [ "$how" = rw ] || read_only+=("$tree$at")
  else
    mkdir --parents "$tree$first"
    mount -t tmpfs -o mode=1777 tmpfs "$tree$first"
  fi
  shift
done
shift
for name in hosts resolv.conf; do
  touch "$tree/etc/$name"
  mount --bind "/etc/$name" "$tree/etc/$name"
  read_only+=("$tree/etc/$name")
done
mount --rbind /dev "$tree/dev"
mount -t proc proc "$tree/proc"
for at in "${read_only[@]}" "$tree"; do mount -o remount,bind,ro "$at"; done
cd /
exec chroot "$tree" setpriv --reuid="${user%:*}" --regid="${user#*:}" --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs -- "$@"
