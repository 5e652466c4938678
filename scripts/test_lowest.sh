#!/bin/sh
# Tests with the oldest version of each direct dependency that pyproject.toml allows, in an
# environment of its own. Ends with pytest's exit code.
# usage: scripts/test_lowest.sh [ARGUMENT...]      pytest's arguments; without any, the tests that
#                                                  need no pressure and no long computing
set -eu
cd "$(dirname "$0")/.."

# What dependencies require in turn is as new as on this day, so that no release of a stranger
# fails a change that has nothing to do with it. Move it on when a bound in pyproject.toml moves.
LAST_DAY=2026-11-24

scripts/setup.sh
uv="$(command -v uv || echo build/uv/bin/uv)"
lowest=build/lowest
[ -x $lowest/bin/python ] || "$uv" venv --quiet --python .venv/bin/python $lowest
# Only wheels: where an old version has none for this Python, the oldest that has one is taken.
"$uv" pip compile --quiet --upgrade --python $lowest/bin/python --resolution lowest-direct \
  --exclude-newer $LAST_DAY --only-binary :all: --all-extras --group test \
  --no-header --no-annotate pyproject.toml --output-file $lowest/requirements.txt
"$uv" pip sync --quiet --python $lowest/bin/python $lowest/requirements.txt
"$uv" pip install --quiet --python $lowest/bin/python --no-deps --editable .

[ $# -gt 0 ] || set -- -n logical --dist worksteal -m "not live and not vm and not slow" \
  tests/agent tests/actuator tests/models tests/env tests/training tests/evaluation
exec $lowest/bin/python -m pytest -q -p no:cacheprovider "$@"
