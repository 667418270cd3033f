#!/bin/sh
# Run a command in a root file system of its own: enter.sh ROOT COMMAND…, as root, inside `unshare --mount --pid --fork`.
# pivot_root and not chroot: in a chroot the kernel refuses user namespaces.
set -e
root=$1
shift
mount --make-rprivate /
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mkdir -p "$root/old"
cd "$root"
pivot_root . old
mount -t proc proc /proc
umount -l /old
exec "$@"
