# Begin with `make demo` and `make test`.
.PHONY: demo check test test-all test-live-busy test-lowest test-newest test-vm test-kubernetes \
  test-install deb docs diagrams fuzz setup proto recordings policy arms clean help

# Byte code is kept whatever the caller's environment says: without it every process compiles torch
# and scipy anew, and the tests take twice as long.
export PYTHONDONTWRITEBYTECODE :=

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

demo:  ## fit, train and compare on this machine; writes build/demo/report.html
	@scripts/setup.sh gcc
	@.venv/bin/stallward demo --out build/demo

# More processes than processors, because tests wait now and then. A file of tests stays in one
# process, which makes its fixtures once.
SIDE_BY_SIDE := -n $(shell cores=$$(nproc); echo $$((cores + (cores + 1) / 2))) --dist loadfile \
  --no-loadscope-reorder
QUICK := not live and not vm and not kubernetes and not install and not ray
KERNELS := .venv/bin/python -m stallward.lens.precompile

check:  ## for daily work: linters, types, and the quick tests that a change since the last one reaches
	@scripts/setup.sh
	@$(KERNELS)
	@STALLWARD_TEST_SLACK=3 .venv/bin/python -m pytest -q $(SIDE_BY_SIDE) --since-check \
	  --hypothesis-profile=quick -m "$(QUICK) and not slow"

# What runs beside the tests with real pressure leaves them the processors.
CALM := "calm:5=STALLWARD_TEST_SLACK=20 .venv/bin/python -m pytest -raR --durations=25 $(SIDE_BY_SIDE) -m '$(QUICK)'"
LIVE := "live=.venv/bin/python -m pytest -raR --durations=25 -m 'live or ray'"
test:  ## what this machine allows and a change can have broken; says which were skipped and why
	@scripts/setup.sh workloads peers valgrind proto checks helm crds
	@$(KERNELS)
	@.venv/bin/python scripts/lanes.py $(CALM) $(LIVE) $(BESIDE)

test-all:  ## everything, whatever has changed; notes the commit where all passed (an hour)
	@scripts/setup.sh workloads peers valgrind proto checks helm crds uml
	@ALL=1 $(MAKE) test BESIDE='"versions:10=$(MAKE) -k test-vm test-lowest test-newest"'
	@$(MAKE) test-install
	@$(MAKE) test-vm ARGS="tests/env/sandbox/peers/test_peers.py -k systemd-oomd"  # not beside others
	@.venv/bin/python tests/suite/full_run.py

test-live-busy:  ## tests with real pressure beside a busy core, N=20 times; counts the failures
	@scripts/setup.sh workloads peers
	@.venv/bin/python tests/project/live_busy.py $(or $(N),20)

test-lowest:  ## tests with the oldest dependencies allowed; ARGS="tests/agent" for some of them
	@scripts/test_versions.sh lowest $(ARGS)

test-newest:  ## tests with the newest version of every dependency
	@scripts/test_versions.sh newest $(ARGS)

test-vm:  ## tests that need cgroup v2, in a machine of their own; ARGS="-k psi", MACHINE=emulated
	@scripts/setup.sh $(if $(filter emulated,$(MACHINE)),vm,uml)
	@.venv/bin/python tests/vm/boot.py $(if $(MACHINE),--machine $(MACHINE)) $(ARGS)

test-kubernetes:  ## pods under a real kubelet, in a cluster of its own; ARGS="-k rollout"
	@scripts/setup.sh helm
	@scripts/kubernetes.sh
	@.venv/bin/python -m pytest -raR -m kubernetes tests/kubernetes $(ARGS)

test-install:  ## the Debian package, installed in Debian 12 and 13; ARGS="-k trixie"
	@scripts/setup.sh debootstrap help2man
	@.venv/bin/python -m pytest -raR -m install tests/install $(ARGS)

deb:  ## the Debian package for the Python of this machine, or for PY=3.13; writes build/deb
	@scripts/setup.sh help2man
	@scripts/deb.sh $(PY)

docs:  ## build the site of the documentation in build/site; warnings and broken links are errors
	@scripts/setup.sh
	@out=build/site/$$(cd docs && ../.venv/bin/python -Bc 'import conf; print(conf.release)') && \
	  .venv/bin/python -m sphinx -q -W --keep-going -b html docs $$out && echo $$out/index.html

diagrams:  ## draw the changed diagrams of the site (needs npm and Chromium)
	@.venv/bin/python scripts/diagrams.py

fuzz:  ## give every reader 100,000 bad inputs (about an hour; INPUTS=N, TARGETS="a b")
	@OMP_NUM_THREADS=1 nice -n 19 .venv/bin/python tests/fuzz/fuzz_run.py \
	  --inputs $(or $(INPUTS),100000) --seed $(or $(SEED),1) $(TARGETS)

setup:  ## only the set-up: .venv and system packages
	@scripts/setup.sh workloads valgrind

proto:  ## regenerate the wire code from proto/
	@scripts/setup.sh proto
	cd proto && ../build/proto/bin/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. \
	  --grpc_python_out=. stallward/proto/v1/stallward.proto

ARMS_SCENARIOS := detector-anon memcached-mix

recordings:  ## make the shipped recordings that are missing (all: 13 hours, as root)
	@scripts/setup.sh workloads-all
	@.venv/bin/stallward record --all --out recordings

policy: build/twins  ## fit, tune and train again from recordings/ (100 minutes; keeps finished parts)
	@for rule in rule pi; do [ -e build/$$rule.toml ] || .venv/bin/stallward tune $$rule \
	  --twin build/twins --judged-on build/twins --out build/$$rule.toml || exit 1; done
	@.venv/bin/stallward train --twin build/twins --judged-on build/twins --out build/run \
	  --thresholds build/rule.toml --thresholds build/pi.toml
	@.venv/bin/stallward export build/run --out build/policy.onnx
	@for arms in onnx:path=build/policy.onnx rule:path=build/rule.toml,pi:path=build/pi.toml; do \
	  .venv/bin/stallward ope recordings --arms $$arms \
	  || { [ $$? -eq 1 ] && echo "Refused by recordings of random actions; how often that is right:" \
	       "docs/explanation/off-policy.md"; } || exit 1; done

build/twins:
	@scripts/setup.sh
	@.venv/bin/stallward fit recordings --generations 340 --out build/twins.new
	@mv build/twins.new build/twins

arms:  ## compare every controller on two scenarios, live, and write docs/arms.md (an hour, as root)
	@scripts/setup.sh workloads peers
	@for scenario in $(ARMS_SCENARIOS); do .venv/bin/stallward compare $$scenario --live \
	  --arms all,peer:earlyoom,peer:nohang,peer:oomd --blocks 1 --block-seconds 24 \
	  --burn-in-seconds 8 --out build/arms/$$scenario || exit 1; done
	@.venv/bin/python scripts/arms_table.py $(addprefix build/arms/,$(ARMS_SCENARIOS))

clean:  ## remove build output
	rm -rf build dist
