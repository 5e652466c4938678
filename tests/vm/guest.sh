#!/bin/sh
# Inside the virtual machine: mount fast, make a disk and swap usable, run the tests.
# usage: guest.sh RESULTS TREE PYTHON_HOME
#
# The root is the host's, read-only under overlays in memory. RESULTS is the one folder whose
# changes reach the host: guest.log, pytest.log, junit.xml, and last of all the file `status`.
set -u
results=$1 tree=$2 python_home=$3
exec >"$results/guest.log" 2>&1
export PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

finish() {
  echo "$1" >"$results/status.part"
  mv "$results/status.part" "$results/status"
  sync
  exit "$1"
}

# vda is swap, vdb an ext4 disk: only a block device has a page cache, io.stat and io.max.
modprobe -a virtio_blk ext4 || finish 90
modprobe bfq && echo bfq >/sys/block/vdb/queue/scheduler
disk=/run/stallward/disk
mkdir -p "$disk" && mount /dev/vdb "$disk" || finish 91

# What does not change meanwhile may be cached: importing Python is three times as fast.
cached() {
  tag=$(awk -v at="$1" '$2 == at { print $1 }' /proc/mounts)
  umount "$1" && mkdir -p "$2" &&
    mount -t 9p -o version=9p2000.L,trans=virtio,msize=512000,cache=loose,ro "$tag" "$2"
}
cached /run/stallward/usr /usr || finish 92
cached /run/stallward/python "$python_home" || finish 93
cached /run/stallward/tree "$tree" || finish 94

mkdir -p "$disk/home" "$disk/tmp"
export HOME="$disk/home" TMPDIR="$disk/tmp" STALLWARD_VM=/dev/vda
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# Only the plugins that bound a test and repeat it: the others double the start.
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
cd "$tree" || finish 95
eval "set -- $(cat "$results/arguments")"
.venv/bin/python -m pytest -p pytest_timeout -p pytest_rerunfailures -p no:cacheprovider \
  --basetemp "$disk/pytest" --junitxml "$results/junit.xml" "$@" >"$results/pytest.log" 2>&1
finish $?
