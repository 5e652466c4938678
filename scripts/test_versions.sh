#!/bin/sh
# Runs tests with other versions of the dependencies than those of uv.lock, in a virtual environment
# of its own, build/lowest or build/newest. The exit code is that of pytest.
# usage: scripts/test_versions.sh lowest|newest [ARGUMENT...]
#   lowest: the oldest version of each direct dependency that pyproject.toml allows, on the oldest
#           Python of this machine
#   newest: the newest version of every dependency, on the newest Python
#   The arguments are pytest's; without any, the tests run that call a library, need no pressure and
#   take little time. WITHOUT="torch ray" in the environment leaves packages out, with what they alone require.
set -eu
cd "$(dirname "$0")/.."

# Indirect dependencies of the oldest ones are taken in the versions of this day, so that a new
# release of one of them cannot fail a change that has nothing to do with it. Advance it when a bound
# in pyproject.toml changes.
LAST_DAY=2026-11-24

which="${1-}"
case "$which" in
  lowest) resolution="--resolution lowest-direct --exclude-newer $LAST_DAY" python=oldest ;;
  newest) resolution="--resolution highest" python=newest ;;
  *) sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2 ;;
esac
shift

scripts/setup.sh
uv="$(command -v uv || echo build/uv/bin/uv)"
folder="build/$which"
[ -x "$folder/bin/python" ] ||
  "$uv" venv --quiet --python "${PYTHON:-$(scripts/python.sh $python)}" "$folder"
for package in ${WITHOUT-}; do echo "$package ; python_version < '0'"; done > "$folder/without.txt"
# Only wheels: where an old version has no wheel for this Python, the oldest one with a wheel is
# taken.
# shellcheck disable=SC2086
"$uv" pip compile --quiet --upgrade --python "$folder/bin/python" $resolution \
  --overrides "$folder/without.txt" --only-binary :all: --all-extras --group test \
  --no-emit-package stallward --no-emit-package stallward-lens \
  --no-emit-package stallward-benchmarks --no-emit-package stallward-fleet \
  --no-emit-package stallward-kubernetes --no-emit-package stallward-papers \
  --no-emit-package stallward-research \
  --no-header --no-annotate pyproject.toml --output-file "$folder/requirements.txt"
"$uv" pip sync --quiet --python "$folder/bin/python" "$folder/requirements.txt"
# Built apart from this environment, which is to keep its versions. Without the configuration, by
# which the project is built with the environment's own hatchling.
"$uv" pip install --no-config --quiet --python "$folder/bin/python" --no-deps \
  --build-constraints scripts/hatchling.txt --editable . \
  --editable packages/benchmarks --editable packages/fleet --editable packages/kubernetes \
  --editable packages/lens --editable packages/papers --editable packages/research

# What cannot be imported without torch.
without_torch=""
case " ${WITHOUT-} " in *" torch "*) for path in tests/env/gym tests/env/workloads/test_jobs.py \
  tests/evaluation/cli/test_policy_for_a_node.py tests/training/export tests/training/network \
  tests/training/parallel tests/training/pipeline/test_start.py tests/training/ppo \
  tests/research/search/test_trials.py tests/research/search/test_search.py \
  tests/research/search/test_space.py; do without_torch="$without_torch --ignore $path"; done ;;
esac
# Other versions differ in what there is to call, which few drawn inputs show as well as many.
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- -n logical --dist loadfile -m "not live and not vm and not slow" --libraries \
  --hypothesis-profile quick $without_torch \
  tests/agent tests/actuator tests/models tests/env tests/training tests/evaluation tests/lens \
  tests/benchmarks tests/fleet tests/papers tests/pods tests/research
exec "$folder/bin/python" -m pytest -q -p no:cacheprovider "$@"
