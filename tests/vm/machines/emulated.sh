#!/bin/sh
# Inside the emulated machine: mount fast, make a disk and swap usable, run the command.
# usage: emulated.sh RESULTS TREE PYTHON_HOME
#
# The root is the host's, read-only under overlays in memory.
set -u
results=$1 tree=$2 python_home=$3
exec >"$results/guest.log" 2>&1
export PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

fail() {
  echo "$1" >"$results/status"
  exit "$1"
}

# vda is swap, vdb an ext4 disk: only a block device has a page cache, io.stat and io.max.
modprobe -a virtio_blk ext4 || fail 90
modprobe bfq && echo bfq >/sys/block/vdb/queue/scheduler
disk=/run/stallward/disk
mkdir -p "$disk" && mount /dev/vdb "$disk" || fail 91

# What does not change meanwhile may be cached: importing Python is three times as fast.
cached() {
  tag=$(awk -v at="$1" '$2 == at { print $1 }' /proc/mounts)
  umount "$1" && mkdir -p "$2" &&
    mount -t 9p -o version=9p2000.L,trans=virtio,msize=512000,cache=loose,ro "$tag" "$2"
}
cached /run/stallward/usr /usr || fail 92
cached /run/stallward/python "$python_home" || fail 93
cached /run/stallward/tree "$tree" || fail 94
exec sh "$results/run.sh" "$results" "$tree" /dev/vda "$disk"
