#!/bin/sh
# Prints a Python that this project is tested with: the newest of this machine, which the images have
# too, or the oldest. pyenv keeps those that are not chosen off the path.
# usage: scripts/python.sh newest|oldest
case "$1" in
  newest) versions="3.13 3.12 3.11" ;;
  oldest) versions="3.11 3.12 3.13" ;;
  *)      echo "usage: $0 newest|oldest" >&2; exit 2 ;;
esac
for version in $versions; do
  for candidate in "python$version" "$(pyenv prefix "$version" 2>/dev/null)/bin/python$version"; do
    if "$candidate" -P -c 'import ensurepip' 2>/dev/null; then
      echo "$candidate"
      exit
    fi
  done
done
echo python3  # setup.sh says what it lacks
