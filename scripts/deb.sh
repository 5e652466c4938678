#!/bin/sh
# Builds a Debian package of the daemon, with an environment of its own below /opt/stallward.
# usage: scripts/deb.sh [MINOR]      writes build/deb/stallward_VERSION+pyMINOR_ARCH.deb and prints
#                                   its name. MINOR is the Python of the Debian release: 3.11 on
#                                   Debian 12, 3.13 on Debian 13; that of this machine by default.
set -eu
cd "$(dirname "$0")/.."
minor="${1:-$(/usr/bin/python3 -c 'import sys; print("{}.{}".format(*sys.version_info))')}"
out=build/deb

say() { printf 'deb: %s\n' "$*" >&2; }

for tool in dpkg-deb help2man; do
  command -v "$tool" >/dev/null 2>&1 || { say "needs $tool: apt-get install dpkg help2man"; exit 2; }
done
uv="$(command -v uv || true)"
[ -n "$uv" ] || uv=build/uv/bin/uv
[ -x "$uv" ] || { say "needs uv: run \`make setup\` first"; exit 2; }

next="${minor%.*}.$((${minor#*.} + 1))"
version="$(.venv/bin/python -P -c 'from importlib.metadata import version; print(version("stallward"))')"
arch="$(dpkg --print-architecture)"
# Made anew each time: what an earlier version had must not be in this one.
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
root="$work/root"
opt="$root/opt/stallward"
mkdir -p "$root/usr/bin" "$root/DEBIAN" "$out"

say "installing what a node needs, for Python $minor"
packages="$opt/lib/python$minor/site-packages"
mkdir -p "$packages" "$opt/bin"
"$uv" export --quiet --locked --no-default-groups --extra node --extra fleet --no-emit-workspace \
  --output-file "$work/node.txt"
"$uv" pip sync --quiet --require-hashes --python .venv/bin/python --python-version "$minor" \
  --python-platform "$(uname -m)-manylinux_2_36" --target "$packages" "$work/node.txt"
"$uv" pip install --quiet --no-config --no-deps --build-constraints scripts/hatchling.txt \
  --python .venv/bin/python --target "$packages" . ./packages/lens ./packages/fleet \
  ./packages/kubernetes ./packages/papers
# A virtual environment is an interpreter beside a pyvenv.cfg. Byte code is made where it is
# installed, as Debian's own packages do.
sed '1s|.*|#!/opt/stallward/bin/python|' "$packages/bin/stallward" >"$opt/bin/stallward"
chmod 755 "$opt/bin/stallward"
ln -s "/usr/bin/python$minor" "$opt/bin/python"
printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = %s\n' "$minor" \
  >"$opt/pyvenv.cfg"
rm -rf "$packages/bin" "$packages/.lock"
find "$packages" \( -name direct_url.json -o -name __pycache__ \) -prune -exec rm -rf {} +
ln -s /opt/stallward/bin/stallward "$root/usr/bin/stallward"

say "pages, completions and examples"
doc="$root/usr/share/doc/stallward"
install -d "$doc" "$root/usr/share/man/man1" "$root/usr/share/bash-completion/completions" \
  "$root/usr/share/zsh/vendor-completions" "$root/usr/share/fish/vendor_completions.d"
install -m 644 LICENSE "$doc/copyright"
install -m 644 README.md "$doc"
gzip -9n <CHANGELOG.md >"$doc/changelog.gz"
cp -r docs/how-to docs/explanation docs/reference docs/glossary.md "$doc"
find "$doc" -name '*.md' -exec sed -i 's|](\(\.\./\)*docs/|](|g' {} +
# The commands, each as a program of its own, which is what help2man asks for its help.
run() {  # run NAME WORDS: writes a program
  printf '#!/bin/sh\nexec %s/.venv/bin/stallward %s "$@"\n' "$PWD" "$2" >"$work/$1"
  chmod +x "$work/$1"
}
for command in "" init serve doctor restore unit top ctl ab trace; do
  name="stallward${command:+-$command}"
  run "$name" "$command"
  COLUMNS=80 help2man --no-info --no-discard-stderr --version-string "$version" \
    --name "keep an application fast on a node whose memory other work wants" \
    "$work/$name" | gzip -9n >"$root/usr/share/man/man1/$name.1.gz"
done
complete() { _STALLWARD_COMPLETE="source_$1" "$work/stallward" >"$2"; }
complete bash "$root/usr/share/bash-completion/completions/stallward"
complete zsh "$root/usr/share/zsh/vendor-completions/_stallward"
complete fish "$root/usr/share/fish/vendor_completions.d/stallward.fish"

cat >"$root/DEBIAN/control" <<CONTROL
Package: stallward
Version: $version+py$minor
Architecture: $arch
Maintainer: The Stallward developers <stallward@example.org>
Section: admin
Priority: optional
Depends: python3 (>= $minor), python3 (<< $next), python$minor
Installed-Size: $(du -sk "$root" | cut -f1)
Description: keeps a latency-critical application fast where memory is short
 A daemon that pauses and limits background work while the application that must answer in time
 needs its memory, and puts everything back when it stops, even after kill -9. It changes nothing
 until it has a configuration: \`stallward init\` writes one.
CONTROL
install -m 755 deploy/deb/postinst deploy/deb/prerm deploy/deb/postrm "$root/DEBIAN"
(cd "$root" && find opt usr -type f -exec md5sum {} + >DEBIAN/md5sums)

file="$out/stallward_$version+py${minor}_$arch.deb"
say "packing"
dpkg-deb --root-owner-group -Zxz -z6 --build "$root" "$file" >/dev/null
say "$file: $(du -m "$file" | cut -f1) MiB, $(du -sm "$root" | cut -f1) MiB installed"
echo "$file"
