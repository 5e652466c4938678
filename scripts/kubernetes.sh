#!/bin/sh
# Makes what `make test-kubernetes` starts, in build/kubernetes, once: Kubernetes from the sources
# of its Go module (10 to 20 minutes of a processor), and etcd, containerd, runc, the plug-ins of the
# network and busybox from Debian's packages, which are unpacked there and not installed.
# It exits with 0 also where something cannot be had; the tests are skipped then, and say what for.
set -eu
cd "$(dirname "$0")/.."

version=1.33.4
module="k8s.io/kubernetes@v$version"
packages="etcd-server containerd runc containernetworking-plugins busybox-static"
commands="kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl"
folder="$PWD/build/kubernetes"

say() { printf 'kubernetes: %s\n' "$*"; }

unpack() {
  [ ! -e "$folder/root/complete" ] || return 0
  command -v apt-get >/dev/null 2>&1 && command -v dpkg >/dev/null 2>&1 || return 1
  say "unpacking $packages"
  rm -rf "$folder/debs" "$folder/root"
  mkdir -p "$folder/debs" "$folder/root"
  # shellcheck disable=SC2086
  (cd "$folder/debs" && { apt-get download -qq $packages >/dev/null 2>&1 ||
    { apt-get update -qq >/dev/null && apt-get download -qq $packages >/dev/null; }; }) || return 1
  for package in "$folder"/debs/*.deb; do dpkg -x "$package" "$folder/root" || return 1; done
  rm -rf "$folder/debs"
  touch "$folder/root/complete"
}

# The module cannot be installed by its name: its staging modules are replaced by folders that it
# does not have. Each has a version of its own, to which they are pinned here. Go checks everything
# that it downloads against its checksum database.
build() {
  [ "$(cat "$folder/bin/version" 2>/dev/null)" != "$version" ] || return 0
  command -v go >/dev/null 2>&1 || return 1
  say "building Kubernetes $version (10 to 20 minutes of a processor, and some GB until it is done)"
  export GOMODCACHE="$folder/go/mod" GOCACHE="$folder/go/cache" CGO_ENABLED=0
  export GOFLAGS="-modcacherw -buildvcs=false -trimpath -mod=mod"
  mkdir -p "$folder/bin" "$folder/source"
  upstream="$(cd "$folder" && GOFLAGS=-modcacherw go mod download -json "$module" |
    sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')"
  [ -n "$upstream" ] || return 1
  {
    sed -e 's|^module .*|module stallward.invalid/kubernetes|' \
      -e "s|=> ./staging/src/\(k8s.io/[a-z0-9-]*\)|=> \1 v0.${version#1.}|" "$upstream/go.mod"
    echo "require k8s.io/kubernetes v$version"
  } >"$folder/source/go.mod"
  cp "$upstream/go.sum" "$folder/source/go.sum"
  chmod u+w "$folder/source/go.sum"
  stamp=k8s.io/component-base/version
  for command in $commands; do
    [ ! -x "$folder/bin/$command" ] || continue
    (cd "$folder/source" && go build -o "$folder/bin/$command" -ldflags \
      "-s -w -X $stamp.gitVersion=v$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=33" \
      "k8s.io/kubernetes/cmd/$command") || return 1
  done
  echo "$version" >"$folder/bin/version"
  rm -rf "$folder/go" "$folder/source"
}

unpack || say "not unpacked: $packages; that takes Debian's apt-get and dpkg. Tests are skipped."
build || say "not built: Kubernetes $version; that takes Go 1.24 or newer. Tests are skipped."
