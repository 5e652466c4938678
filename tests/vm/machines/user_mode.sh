#!/bin/sh
# The first process of the User-mode Linux machine: mount what a machine has, run the command, end.
# usage: user_mode.sh RESULTS TREE PYTHON_HOME
#
# The root is the host's, read-only: what a test may write is in memory, on the disk or in RESULTS.
set -u
results=$1 tree=$2 python_home=$3
export PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
export LIBMOUNT_FORCE_MOUNT2=always # hostfs takes its folder only in the old call

power_off() {
  sync
  echo o >/proc/sysrq-trigger
  while :; do sleep 60; done
}
need() {
  "$@" || { echo "user_mode.sh failed: $*" && power_off; }
}

mount -t proc proc /proc
mount -t sysfs sysfs /sys
grep -q ' /dev devtmpfs ' /proc/mounts || need mount -t devtmpfs dev /dev
# A folder of the host below /tmp or /run would be hidden, so it is mounted again on top.
for folder in /tmp /var/tmp /run; do need mount -t tmpfs -o mode=1777 tmpfs "$folder"; done
for folder in "$tree" "$python_home"; do
  [ -e "$folder" ] || { mkdir -p "$folder" && need mount -t hostfs -o "ro,$folder" host "$folder"; }
done
need mount -t hostfs -o "$results" results "$results"
exec >"$results/guest.log" 2>&1
need mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/shm /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t devpts devpts /dev/pts
for fd in fd:/proc/self/fd stdin:/proc/self/fd/0 stdout:/proc/self/fd/1 stderr:/proc/self/fd/2; do
  [ -e "/dev/${fd%%:*}" ] || ln -s "${fd#*:}" "/dev/${fd%%:*}"
done
ip link set lo up 2>/dev/null || ifconfig lo up
hostname user-mode

# ubda is swap, ubdb an ext4 disk: only a block device has a page cache, io.stat and io.max.
echo bfq >/sys/block/ubdb/queue/scheduler
disk=/run/stallward/disk
mkdir -p "$disk"
need mount -t ext4 /dev/ubdb "$disk"
sh "$results/run.sh" "$results" "$tree" /dev/ubda "$disk"
power_off
