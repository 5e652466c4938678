#!/bin/sh
# Sets up what a make target needs: system packages (by apt, as root), uv and .venv.
# usage: scripts/setup.sh PACKAGE...      Debian packages that the target needs. "workloads" stands
#                                        for the programs of the scenarios that the tests run,
#                                        "workloads-all" for those of all shipped scenarios (1.5 GB
#                                        more, some of it from PyPI), "peers" for the daemons that
#                                        arms named peer:NAME run, "vm" and "uml" for what
#                                        `make test-vm` needs to boot its machines, "proto" for the
#                                        generator of the wire code, "checks" for the group of that
#                                        name in pyproject.toml, "helm" for what renders the chart,
#                                        "crds" for the definitions of the resources of operators.
set -eu
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin"

say() { printf 'setup: %s\n' "$*"; }

missing=""
vm=""
proto=""
checks=""
helm=""
crds=""
workloads_all=""
packages=""
workloads="gcc git memcached nginx-light postgresql redis-server stress-ng xz-utils zstd"
for package in "$@"; do
  case "$package" in
    workloads)  packages="$packages $workloads" ;;
    workloads-all)
      workloads_all=yes
      packages="$packages $workloads etcd-server ffmpeg g++ default-jdk-headless make"
      packages="$packages mariadb-server nats-server nodejs bwa gawk groonga-bin imagemagick knot"
      packages="$packages lighttpd php-apcu php-fpm prometheus slapd"
      packages="$packages dovecot-imapd erlang-base minimap2 mosquitto octave pandoc r-base-core"
      packages="$packages ruby tarantool varnish yosys zpaq"
      packages="$packages beanstalkd bind9 glpk-utils graphviz influxdb jq maxima p7zip"
      packages="$packages pari-gp sbcl swi-prolog-nox" ;;
    peers)      packages="$packages earlyoom lxcfs nohang oomd systemd-oomd" ;;
    *)          packages="$packages $package" ;;
  esac
done
for package in $packages; do
  case "$package" in
    gcc)        command -v cc >/dev/null 2>&1 || missing="$missing gcc libc6-dev" ;;
    git)        command -v git >/dev/null 2>&1 || missing="$missing git" ;;
    memcached)  command -v memcached >/dev/null 2>&1 || missing="$missing memcached" ;;
    nginx-light) command -v nginx >/dev/null 2>&1 || missing="$missing nginx-light" ;;
    redis-server) command -v redis-server >/dev/null 2>&1 || missing="$missing redis-server" ;;
    stress-ng)  command -v stress-ng >/dev/null 2>&1 || missing="$missing stress-ng" ;;
    xz-utils)   command -v xz >/dev/null 2>&1 || missing="$missing xz-utils" ;;
    default-jdk-headless) command -v javac >/dev/null 2>&1 || missing="$missing default-jdk-headless" ;;
    etcd-server) command -v etcd >/dev/null 2>&1 || missing="$missing etcd-server" ;;
    mariadb-server) command -v mariadbd >/dev/null 2>&1 || missing="$missing mariadb-server" ;;
    nodejs)     command -v node >/dev/null 2>&1 || missing="$missing nodejs" ;;
    ffmpeg|g++|make|nats-server) command -v "$package" >/dev/null 2>&1 || missing="$missing $package" ;;
    imagemagick) command -v convert-im6.q16 >/dev/null 2>&1 || missing="$missing imagemagick" ;;
    groonga-bin) command -v groonga >/dev/null 2>&1 || missing="$missing groonga-bin" ;;
    knot)       command -v knotd >/dev/null 2>&1 || missing="$missing knot" ;;
    php-apcu)   ls /usr/lib/php/*/apcu.so >/dev/null 2>&1 || missing="$missing php-apcu" ;;
    php-fpm)    ls /usr/sbin/php-fpm[0-9]* >/dev/null 2>&1 || missing="$missing php-fpm" ;;
    dovecot-imapd) command -v dovecot >/dev/null 2>&1 || missing="$missing dovecot-imapd" ;;
    erlang-base) command -v escript >/dev/null 2>&1 || missing="$missing erlang-base" ;;
    octave)     command -v octave-cli >/dev/null 2>&1 || missing="$missing octave" ;;
    r-base-core) command -v Rscript >/dev/null 2>&1 || missing="$missing r-base-core" ;;
    bind9)      command -v named >/dev/null 2>&1 || missing="$missing bind9" ;;
    glpk-utils) command -v glpsol >/dev/null 2>&1 || missing="$missing glpk-utils" ;;
    graphviz)   command -v sfdp >/dev/null 2>&1 || missing="$missing graphviz" ;;
    influxdb)   command -v influxd >/dev/null 2>&1 || missing="$missing influxdb" ;;
    p7zip)      command -v 7zr >/dev/null 2>&1 || missing="$missing p7zip" ;;
    pari-gp)    command -v gp >/dev/null 2>&1 || missing="$missing pari-gp" ;;
    swi-prolog-nox) command -v swipl >/dev/null 2>&1 || missing="$missing swi-prolog-nox" ;;
    varnish)    command -v varnishd >/dev/null 2>&1 || missing="$missing varnish" ;;
    beanstalkd|bwa|debootstrap|gawk|help2man|jq|lighttpd|maxima|minimap2|mosquitto|pandoc|prometheus|ruby|sbcl|slapd|tarantool|yosys|zpaq)
      command -v "$package" >/dev/null 2>&1 || missing="$missing $package" ;;
    lxcfs)      command -v lxcfs >/dev/null 2>&1 || missing="$missing lxcfs" ;;
    earlyoom|nohang|oomd|systemd-oomd)
      # They would end programs of the whole machine, and systemd starts what is installed.
      if command -v "$package" >/dev/null 2>&1 || [ -x "/lib/systemd/$package" ]; then :
      elif [ -d /run/systemd/system ]; then
        say "not installed: $package, which would end programs of this whole machine; what needs it"
        say "is skipped. To have it, first: systemctl mask earlyoom nohang nohang-desktop oomd systemd-oomd"
      else missing="$missing $package"; fi ;;
    valgrind)   command -v valgrind >/dev/null 2>&1 || missing="$missing valgrind" ;;
    zstd)       command -v zstd >/dev/null 2>&1 || missing="$missing zstd" ;;
    postgresql) ls /usr/lib/postgresql/*/bin/pgbench >/dev/null 2>&1 || missing="$missing postgresql" ;;
    vm)
      vm=yes
      command -v qemu-system-x86_64 >/dev/null 2>&1 || missing="$missing qemu-system-x86"
      command -v depmod >/dev/null 2>&1 || missing="$missing kmod"
      command -v busybox >/dev/null 2>&1 || missing="$missing busybox-static"
      command -v file >/dev/null 2>&1 || missing="$missing file"
      command -v mkfs.ext4 >/dev/null 2>&1 || missing="$missing e2fsprogs" ;;
    uml)
      command -v cc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
      for tool in make flex bison bc; do
        command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
      done
      command -v xz >/dev/null 2>&1 || missing="$missing xz-utils"
      command -v mkfs.ext4 >/dev/null 2>&1 || missing="$missing e2fsprogs" ;;
    proto)      proto=yes ;;
    checks)     checks="--group checks" ;;
    helm)       helm=yes ;;
    crds)       crds=yes ;;
    *)          say "unknown package $package"; exit 2 ;;
  esac
done

python="${PYTHON:-$(scripts/python.sh newest)}"
if ! "$python" -P -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  say "Python 3.11 or newer is needed; '$python' is not. Set PYTHON=/path/to/python3."
  exit 2
fi
uv="$(command -v uv || true)"
[ -n "$uv" ] || [ ! -x build/uv/bin/uv ] || uv=build/uv/bin/uv
if [ -z "$uv" ] && ! "$python" -P -c 'import ensurepip' 2>/dev/null; then
  missing="$missing python3-venv"
fi

# stallward starts servers itself, in its sandbox. A policy keeps packages from starting them now,
# and what must never run for the whole machine is not started by a systemd of later either.
policy=/usr/sbin/policy-rc.d
install_missing() {
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q >/dev/null || return 1
  if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy" || return 1
  fi
  for package in $missing; do
    case "$package" in
      nohang) units="nohang nohang-desktop" ;;
      earlyoom|oomd|systemd-oomd) units="$package" ;;
      *) continue ;;
    esac
    mkdir -p /etc/systemd/system || return 1
    for unit in $units; do
      ln -sf /dev/null "/etc/systemd/system/$unit.service" || return 1
    done
  done
  # shellcheck disable=SC2086
  apt-get install -q -y --no-install-recommends $missing >/dev/null
}

if [ -n "$missing" ]; then
  installed=""
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "installing$missing"
    if (install_missing); then installed=yes; fi
  fi
  if [ -z "$installed" ]; then
    say "not installed:$missing"
    say "install them (as root: apt-get install$missing); whatever needs them is skipped until then."
    case "$missing" in *python3-venv*) exit 2 ;; esac
  fi
fi

if [ -z "$uv" ]; then
  say "installing uv into build/uv"
  "$python" -P -m venv build/uv
  build/uv/bin/pip install --quiet --require-hashes --only-binary :all: -r scripts/uv.txt
  uv=build/uv/bin/uv
fi
# What "workloads-all" has installed is not in the lock, and stays.
exact=""
[ ! -e .venv/workloads-all.txt ] || exact=--inexact
[ ! -x .venv/bin/hadolint ] || checks="--group checks"  # it stays, too
# shellcheck disable=SC2086
UV_PYTHON_DOWNLOADS=never "$uv" sync --quiet --locked --all-extras $checks $exact --python "$python"
if [ -n "$workloads_all" ] && ! cmp -s scripts/workloads-all.txt .venv/workloads-all.txt; then
  say "installing scripts/workloads-all.txt into .venv"
  if "$uv" pip install --quiet --python .venv/bin/python --no-deps --require-hashes \
    --build-constraints scripts/workloads-build.txt -r scripts/workloads-all.txt; then
    cp scripts/workloads-all.txt .venv/workloads-all.txt
  else
    say "not installed: scripts/workloads-all.txt; the scenarios that need it are skipped until then."
  fi
fi

# install_tools FOLDER REQUIREMENTS: makes a virtual environment for tools that are only run, never
# imported, and makes it again when the file of requirements changes. Only wheels whose hashes the
# file has: what is built from source would be built by whatever is the newest.
install_tools() {
  folder="$1" requirements="$2"
  if cmp -s "$requirements" "$folder/installed.txt"; then return 0; fi
  say "installing $requirements into $folder"
  rm -rf "$folder"
  "$uv" venv --quiet --python .venv/bin/python "$folder" &&
    "$uv" pip install --quiet --python "$folder/bin/python" --require-hashes \
      --only-binary :all: -r "$requirements" &&
    cp "$requirements" "$folder/installed.txt"
}
if [ -n "$vm" ] && ! install_tools build/vm/tools tests/vm/tools.txt; then
  say "virtme-ng cannot be installed; make test-vm has no emulated machine until then."
fi
if [ -n "$proto" ] && ! install_tools build/proto proto/generator.txt; then
  say "the generator cannot be installed; make proto fails and its test is skipped until then."
fi
# What Go makes is kept for all clones of a user.
cache="${XDG_CACHE_HOME:-${HOME:-$PWD/build}/.cache}/stallward"
# make_once FOLDER MAKER: makes a folder of the cache, unless it is there. MAKER gets an empty folder,
# which becomes that folder only when MAKER has succeeded. What an interrupted one left is removed.
make_once() {
  made="$cache/$1" maker="$2"
  if [ -d "$made" ]; then return 0; fi
  command -v go >/dev/null 2>&1 || return 1
  mkdir -p "${made%/*}" || return 1
  (
    flock 9
    if [ -d "$made" ]; then exit 0; fi  # another process has made it meanwhile
    rm -rf "$made.part" && mkdir "$made.part" || exit 1
    if "$maker" "$made.part"; then mv "$made.part" "$made"
    else rm -rf "$made.part"; exit 1; fi
  ) 9>"$made.lock"
}
# No package of Debian has it. Go takes it from its proxy, by the hash that its checksum database
# has for that version, and whatever it downloads and compiles for it is removed again.
helm_version=v3.22.0
build_helm() {
  say "building helm $helm_version, once (a minute)"
  GOBIN="$1" GOMODCACHE="$1/mod" GOCACHE="$1/cache" \
    GOFLAGS="-modcacherw -buildvcs=false -trimpath" \
    go install -ldflags "-s -w" "helm.sh/helm/v3/cmd/helm@$helm_version" >/dev/null 2>&1 &&
    rm -rf "$1/mod" "$1/cache"
}
install_helm() {
  if command -v helm >/dev/null 2>&1; then return 0; fi
  make_once "helm/$helm_version" build_helm && mkdir -p build/helm/bin &&
    ln -sf "$cache/helm/$helm_version/helm" build/helm/bin/helm
}
if [ -n "$helm" ] && ! install_helm; then
  say "not installed: helm, and no Go that builds it; the tests of the chart are skipped until then."
fi
# The definitions of RayJob and PodMonitor, which are too large to keep here. Go takes them from its
# proxy, too, by the hashes of its checksum database.
ray_operator=v1.6.2 prometheus_operator=v0.85.0
fetch_crds() {
  say "fetching the definitions of RayJob and PodMonitor, once"
  for one in \
    github.com/ray-project/kuberay/ray-operator@$ray_operator/config/crd/bases/ray.io_rayjobs.yaml \
    github.com/prometheus-operator/prometheus-operator@$prometheus_operator/example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml
  do
    module="${one%%@*}" rest="${one#*@}"
    GOMODCACHE="$1/mod" GOFLAGS=-modcacherw \
      go mod download "$module@${rest%%/*}" >/dev/null 2>&1 &&
      install -m 644 "$1/mod/$one" "$1" || return 1
  done
  rm -rf "$1/mod"
}
install_crds() {
  folder="crds/ray-$ray_operator-prometheus-$prometheus_operator"
  make_once "$folder" fetch_crds && mkdir -p build/crds && cp "$cache/$folder"/*.yaml build/crds/
}
if [ -n "$crds" ] && ! install_crds; then
  say "not installed: the definitions of RayJob and PodMonitor; their tests are skipped until then."
fi
say "ready ($(.venv/bin/python --version))"
