#!/bin/sh
# Runs tests with the oldest version of each direct dependency that pyproject.toml allows, in a
# virtual environment of its own. The exit code is that of pytest.
# usage: scripts/test_lowest.sh [ARGUMENT...]      arguments of pytest; without any, the tests that
#                                                  need no pressure and take little time
set -eu
cd "$(dirname "$0")/.."

# Indirect dependencies are taken in the versions of this day, so that a new release of one of them
# cannot fail a change that has nothing to do with it. Advance it when a bound in pyproject.toml
# changes.
LAST_DAY=2026-11-24

scripts/setup.sh
uv="$(command -v uv || echo build/uv/bin/uv)"
lowest=build/lowest
[ -x $lowest/bin/python ] || "$uv" venv --quiet --python .venv/bin/python $lowest
# Only wheels: where an old version has no wheel for this Python, the oldest one with a wheel is
# taken.
"$uv" pip compile --quiet --upgrade --python $lowest/bin/python --resolution lowest-direct \
  --exclude-newer $LAST_DAY --only-binary :all: --all-extras --group test \
  --no-header --no-annotate pyproject.toml --output-file $lowest/requirements.txt
"$uv" pip sync --quiet --python $lowest/bin/python $lowest/requirements.txt
# Built apart from this environment, which is to keep its old versions. Without the configuration,
# by which the project is built with the environment's own hatchling.
"$uv" pip install --no-config --quiet --python $lowest/bin/python --no-deps \
  --build-constraints scripts/hatchling.txt --editable .

# Old versions differ in what there is to call, which few drawn inputs show as well as many.
[ $# -gt 0 ] || set -- -n logical --dist worksteal -m "not live and not vm and not slow" \
  --hypothesis-profile quick \
  tests/agent tests/actuator tests/models tests/env tests/training tests/evaluation
exec $lowest/bin/python -m pytest -q -p no:cacheprovider "$@"
