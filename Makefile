# make up     install what the service needs, and watch this machine; a minute or two, then it runs
# make demo   the same install; a job hangs on a simulated cluster, and an event explains it
# make test   install everything and run every test; about twenty minutes
# make quick  the fast tests, about a minute           make lint   ruff, mypy, import contracts
# make docs   build the documentation site and a man page in site/
# make bench  the benchmarks that need no data and no quiet machine, with the peers in the same run
# make pins   deploy/requirements.txt anew: what the service needs, with the SHA-256 of every file
# make sbom   the packages of this environment as a CycloneDX document, sbom.cdx.json
# make duel   the twin against plain rules: real MPI jobs with known faults on a real Slurm; EPISODES=30
# make chaos  30 faults against a running service, one after the other; about fifteen minutes
# make soak   24 hours in compressed time: replay, nights, verdicts and page loads; about fifteen minutes
# make fuzz   100,000 damaged inputs for each parser of foreign bytes; FUZZ_CASES= for another number
SHELL   := /bin/bash
PYTHON  ?= python3
VENV    ?= .venv
BIN     := $(VENV)/bin
# Two installs in one environment: what `twin up` needs, and everything that the tests use.
RUN     := $(VENV)/.installed-to-run
STAMP   := $(VENV)/.installed
# uv does not read pip's find-links. Pass them on, so that a local wheel directory works for both.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
# Images often disable bytecode caching. The tests start hundreds of processes, and each would compile again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup servers up demo test quick lint format docs bench chaos duel fuzz soak pins sbom clean

help:
	@sed -n 's/^# //p' Makefile

setup: $(STAMP)

$(BIN)/uv:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed ($(PYTHON) not found)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv

INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt --compile-bytecode -e

$(RUN): pyproject.toml constraints.txt | $(BIN)/uv
	$(INSTALL) '.[service,plots]'
	@touch $@

$(STAMP): pyproject.toml constraints.txt | $(BIN)/uv
	$(INSTALL) '.[all,sdv,dev]'
	@touch $@ $(RUN)

servers: ## the servers that the tests use; where they cannot be installed, the tests say what they skip
	@deploy/install-test-servers

up: $(RUN)
	@$(BIN)/twin up

demo: $(RUN)
	@$(BIN)/twin demo

# Whole files go to a worker, so that what their tests share, such as a Slurm, is started once. conftest.py orders the
# files. Many tests wait for servers, so there are more workers than CPUs: on two CPUs, three leave a third of the CPU
# time unused. A worker takes about 1.4 GB. One that crashes is not replaced: xdist would wait for its tests for ever.
WORKERS := -n 4 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

test: setup servers lint
	$(BIN)/pytest $(WORKERS)

# Of the modules only those with examples in their docstrings: importing all the others takes each worker seconds.
quick: setup
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow and not medium and not real" --hypothesis-profile quick \
	  tests $$(grep -rlE '^ *>>> ' src --include='*.py')

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python docs/made/man_page.py site/twin.1

FUZZ_CASES ?= 100000
FUZZ_TESTS := $(shell find tests -name 'test_hostile_*.py')

fuzz: setup ## its last lines are the cases of each parser; FUZZ='-k swf' chooses some parsers
	FUZZ_CASES=$(FUZZ_CASES) $(BIN)/pytest -n 2 -p no:cacheprovider -o faulthandler_timeout=0 $(FUZZ_TESTS) $(FUZZ)

chaos: setup ## CHAOS='--only killed --fault-s 10' for some faults, or longer ones
	$(BIN)/python benchmarks/chaos.py $(CHAOS)

soak: setup ## SOAK='--hours 48 --speed 500' for other lengths and speeds
	$(BIN)/python benchmarks/soak.py $(SOAK)

# Without torch: its builds for CPUs and for CUDA have other files and other dependencies.
pins: setup
	$(BIN)/uv pip compile pyproject.toml --extra service --extra learn --extra notify --extra remote-write -c constraints.txt \
	  --generate-hashes --no-header --no-annotate --python-version 3.11 --python-platform linux \
	  --no-emit-package torch --quiet --output-file deploy/requirements.txt

sbom: setup
	$(BIN)/uv tool run --from cyclonedx-bom==7.5.0 cyclonedx-py environment $(VENV) --pyproject pyproject.toml \
	  --output-reproducible --output-file sbom.cdx.json

BENCHES := exporter parser recording metrics scoring training detection events handover service pages simulator

bench: setup servers ## LOG=log.swf and DATA=directory of labelled servers for the two that need real data
	@for b in $(BENCHES); do echo "== $$b"; $(BIN)/python benchmarks/$$b.py || exit 1; done
	@if test -n "$(LOG)"; then $(BIN)/python benchmarks/generators.py $(LOG); else echo "generators: skipped, needs LOG="; fi
	@if test -n "$(LOG)"; then $(BIN)/python benchmarks/privacy.py $(LOG); else echo "privacy: skipped, needs LOG="; fi
	@if test -n "$(DATA)"; then $(BIN)/python benchmarks/detection_real.py $(DATA); else echo "detection_real: skipped, needs DATA="; fi

EPISODES ?= 30

duel: setup servers ## both arms over the same seeded jobs; DUEL= for more options
	$(BIN)/python benchmarks/duel.py --episodes $(EPISODES) $(DUEL)

clean:
	rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
