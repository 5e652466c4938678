#!/bin/sh
# Inside a machine whose devices are ready: run the command of the file RESULTS/command.
# usage: run.sh RESULTS TREE SWAP DISK      SWAP is a block device, DISK a mounted ext4 one
#
# RESULTS is the one folder whose changes reach the host: what the command printed (output.log),
# whatever it writes there itself, and last of all its exit status, in the file `status`.
set -u
results=$1 tree=$2 swap=$3 disk=$4
mkdir -p "$disk/home" "$disk/tmp"
export HOME="$disk/home" TMPDIR="$disk/tmp" RESULTS="$results" STALLWARD_VM="$swap"
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
status=95
if cd "$tree"; then
  sh "$results/command" >"$results/output.log" 2>&1
  status=$?
fi
echo "$status" >"$results/status.part"
mv "$results/status.part" "$results/status"
sync
