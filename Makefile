# One command for each thing one does here; `make` alone lists them.
#
# Set-up needs a Python of 3.11 or later with its venv module, and the network once. Everything is
# installed under .venv and .venv-tools (node_modules for the CDK); nothing outside this folder changes. All tests need
# Java 17 and Node.js as well, the pipeline on Spark Java, and what deploys Node.js.
#
# Three loops, each of which holds the one before: `make unit` while one writes, `make check` before a commit, `make test`
# for everything.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

UV_VERSION := 0.13.8
SECONDS ?= 60
SEED ?=
ENV ?= dev
# Many tests wait: one process more than a small machine has cores.
JOBS ?= 3
ARGS ?=
TESTS := tests/unit

# The first Python that is new enough. `make PYTHON=/path/to/python …` overrides the choice.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)

UV := .venv-tools/bin/uv
RUN := .venv/bin/python
CODE := hatch_build.py layers functions cdk infra pipeline simulation bench demo docs tests

# As Spark looks for it.
JAVA := $(if $(JAVA_HOME),"$(JAVA_HOME)/bin/java",java)

CDK := node_modules/.bin/cdk
PAGE := dashboard/node_modules/.ready
AZURITE := tests/azurite/node_modules/.ready

export UV_PYTHON_DOWNLOADS := never
export UV_PROJECT_ENVIRONMENT := .venv

# Containers often set it. Without bytecode each of the hundreds of processes that tests start compiles the library
# again, and pytest rewrites every test: 4 s of each process of `make unit`.
unexport PYTHONDONTWRITEBYTECODE

# check-node says it once, in one line, where jsii and the SDK of AWS put up a banner with each command.
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION := 20
export AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED := true

.PHONY: help setup check-tools check-node check-java docs dashboard demo unit pythons check test lint types format soak bench emulator lock release layers synth diff bootstrap deploy smoke clean

help: ## Show this list
	@echo "osqueue: make <target>"
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 16

setup: .venv/.ready ## Create .venv with everything from uv.lock (at once when nothing changed)
	@:

check-tools: ## Say what this machine has and what is missing
	@if [ -z "$(PYTHON)" ]; then \
	  echo "missing: Python 3.11 or later. No python3 … python3.14 on PATH is new enough." >&2; \
	  echo "         Install one (Debian: apt install python3 python3-venv; macOS: brew install python)" >&2; \
	  echo "         or name it: make PYTHON=/path/to/python3.11 setup" >&2; exit 1; fi
	@if ! "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	  echo "missing: $(PYTHON) does not run, or is older than Python 3.11" >&2; exit 1; fi
	@if ! "$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null; then \
	  echo "missing: $(PYTHON) has no venv module (Debian: apt install python3-venv)" >&2; exit 1; fi
	@echo "found:   $$("$(PYTHON)" -c 'import sys; print(sys.executable, sys.version.split()[0])') with venv"
	@$(MAKE) --no-print-directory check-node || echo "         (everything but test, synth and deploy works without it)" >&2
	@$(MAKE) --no-print-directory check-java || echo "         (everything but test and the pipeline on Spark works without it)" >&2

check-node:
	@if ! command -v node >/dev/null || ! command -v npm >/dev/null; then \
	  echo "missing: Node.js 22 or 24 with npm: the CDK runs on it (Debian: apt install nodejs npm; macOS: brew install node)" >&2; \
	  exit 1; fi
	@if ! node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)'; then \
	  echo "missing: $$(command -v node) is Node.js $$(node --version), older than 20" >&2; exit 1; fi
	@if ! node -e 'process.exit(parseInt(process.versions.node) < 22 ? 1 : 0)'; then \
	  echo "note:    Node.js 20 has no support any more: install 22 or 24. What needs it here still works" >&2; fi
	@echo "found:   Node.js $$(node --version), npm $$(npm --version 2>/dev/null)"

check-java:
	@if ! $(JAVA) -version >/dev/null 2>&1; then \
	  echo "missing: Java 17 or later, on which Spark runs (Debian: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17)" >&2; \
	  exit 1; fi
	@if ! $(JAVA) -version 2>&1 | awk -F'"' '/version/ { split($$2, at, "."); exit (at[1] + 0 < 17) }'; then \
	  echo "missing: $(JAVA) is older than Java 17" >&2; exit 1; fi
	@echo "found:   $$($(JAVA) -version 2>&1 | head -1)"

$(UV): Makefile
	@$(MAKE) --no-print-directory check-tools
	@rm -rf .venv-tools
	@"$(PYTHON)" -m venv .venv-tools
	@.venv-tools/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION) || { \
	  rm -rf .venv-tools; \
	  echo "set-up stopped: pip could not install uv $(UV_VERSION). Is a package index reachable from here" >&2; \
	  echo "                (network, proxy, PIP_INDEX_URL)? Then run the same command again." >&2; exit 1; }
	@touch $(UV)

.venv/.ready: pyproject.toml uv.lock $(UV)
	@[ -x $(RUN) ] && $(RUN) -c '' 2>/dev/null || { rm -rf .venv; "$(PYTHON)" -m venv --without-pip .venv; }
	@$(UV) sync --quiet --frozen --extra all --extra pipeline || { \
	  echo "set-up stopped: uv could not install what uv.lock names. Is the network up? Then run it again." >&2; exit 1; }
	@touch .venv/.ready

demo: setup ## Replay a real log of 18,239 jobs over HTTP through the local stack; a worker is killed on the way, a report drawn at the end
	@$(RUN) -m demo $(ARGS)

# File by file in the order of their folders: the long ones are in the first, so the processes end together.
unit: setup ## Run the unit tests: about half a minute, no Java, no Node.js (ARGS="-k lease -x" goes to pytest; TESTS=tests/contract)
	@$(RUN) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(TESTS) $(ARGS)

# Left out are long random walks and what reads the source alone, over a third of the cost. The reducer, which they test, computes
# with integers, bytes and dictionaries, and the short tests of the same modules run.
PYTHONS_TESTS ?= tests/unit --ignore=tests/unit/test_architecture.py --ignore=tests/unit/maintenance/test_reaper_overlap.py \
	$(patsubst %,--ignore=tests/unit/core/test_%.py,backlog backlog_delayed dropping fairness groups key_directory lending \
	mixed reduce_totality spill tables)
PYTHONS := $(addprefix python-,3.11 3.12 3.13 3.14)

pythons: setup ## Run the unit tests on each other Python of the classifiers that is found here
	@$(MAKE) --no-print-directory -j $(JOBS) $(PYTHONS)

# Each is on PATH or in pyenv's folder (whose shims may not run), and has an environment of its own. It runs the tests in one
# process, since each process of a run imports all of them: the interpreters run side by side instead.
.PHONY: $(PYTHONS)
$(PYTHONS): python-%: setup
	@[ "$$($(RUN) -c 'import sys; print("%d.%d" % sys.version_info[:2])')" != $* ] || exit 0; \
	for python in python$* "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$*.*/bin/python; do \
	  "$$python" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$*')" 2>/dev/null || continue; \
	  echo "Python $*: $$python"; \
	  UV_PROJECT_ENVIRONMENT=.venv-$* $(UV) sync --quiet --frozen --extra all --python "$$python"; \
	  .venv-$*/bin/python -m pytest $(PYTHONS_TESTS) $(ARGS) > .venv-$*/tests.log 2>&1 || { cat .venv-$*/tests.log; exit 1; }; \
	  echo "Python $*: $$(tail -n 1 .venv-$*/tests.log)"; \
	  exit 0; \
	done; \
	echo "Python $*: not found here"

# To check the types keeps one core busy for a minute where nothing is cached: the tests begin meanwhile.
check: lint ## Run style, types, and the unit, contract and simulation tests: a few minutes, no Java, no Node.js
	@$(MAKE) --no-print-directory -j 2 types unit TESTS="tests/contract tests/simulation tests/unit"

test: check-node check-java $(CDK) $(PAGE) $(AZURITE) lint ## Run everything, as continuous integration does: style, types, all tests
	@$(MAKE) --no-print-directory -j 2 types unit TESTS=tests
	@$(MAKE) --no-print-directory pythons

lint: setup ## Check style, banned names and formatting
	@.venv/bin/ruff check $(CODE)
	@.venv/bin/ruff format --check $(CODE)

# pyright comes with a Node.js of its own, which is why it is basedpyright.
types: setup ## Check types, strictly: with mypy, and code that uses the library with pyright as well
	@.venv/bin/mypy
	@.venv/bin/basedpyright --level error

format: setup ## Format the code and repair what the linter can
	@.venv/bin/ruff check --fix-only --quiet $(CODE)
	@.venv/bin/ruff format $(CODE)

docs: setup ## Write openapi.json and the parts of docs/ anew that are made from tables of the code
	@$(RUN) -m osqueue.server.openapi > openapi.json
	@$(RUN) -m docs.generate

dashboard: check-node $(PAGE) ## Check the types of the dashboard's page and build it anew, into the library
	@cd dashboard && npm run --silent types && npm run --silent build

soak: setup ## Run the simulator on all cores for SECONDS (60), from SEED if given, and print what each profile came to
	@$(RUN) -m simulation soak --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

bench: setup ## Run the benchmarks against their goals (ARGS="writers --json" picks)
	@$(RUN) -m bench $(ARGS)

# LocalStack needs a Python of 3.12 or later, and packages that must not meet ours.
EMULATOR_PYTHON ?= $(shell for p in python3.13 python3.12 python3; do \
	"$$p" -c 'import sys; sys.exit(not (3, 12) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo "$$p" && break; done)

.venv-emulator/.ready: tests/emulator/requirements.txt $(UV)
	@[ -n "$(EMULATOR_PYTHON)" ] || { echo "missing: Python 3.12 or 3.13, on which the emulator runs: make EMULATOR_PYTHON=/path/to/python3.13 emulator" >&2; exit 1; }
	@rm -rf .venv-emulator
	@"$(EMULATOR_PYTHON)" -m venv .venv-emulator
	@.venv-emulator/bin/python -m pip install --quiet --disable-pip-version-check --requirement tests/emulator/requirements.txt
	@touch .venv-emulator/.ready

emulator: setup check-node $(CDK) .venv-emulator/.ready ## Deploy into LocalStack, on processes: smoke test, empty diff, upgrade, rollback; several minutes
	@$(RUN) -m pytest -m emulator tests/emulator $(ARGS)

lock: $(UV) ## Write uv.lock anew after a change of pyproject.toml
	@$(UV) lock

$(CDK): package.json package-lock.json
	@$(MAKE) --no-print-directory check-node
	@npm ci --silent --no-audit --no-fund
	@touch $(CDK)

$(PAGE): dashboard/package.json dashboard/package-lock.json
	@$(MAKE) --no-print-directory check-node
	@cd dashboard && npm ci --silent --no-audit --no-fund
	@touch $(PAGE)

$(AZURITE): tests/azurite/package.json tests/azurite/package-lock.json
	@$(MAKE) --no-print-directory check-node
	@cd tests/azurite && npm ci --silent --no-audit --no-fund
	@touch $(AZURITE)

release: setup check-node $(CDK) ## Build the sdist and the wheels, and try them in clean environments with each extra; uploads nothing
	@$(RUN) -m infra.release

layers: setup check-node $(CDK) ## Build the Lambda layer and say how large it is
	@$(RUN) -m infra.layers $(ARGS)

synth: setup check-node $(CDK) ## Write the CloudFormation templates of ENV (dev) to build/cdk.out
	@$(CDK) synth --quiet -c env=$(ENV) $(ARGS)

diff: setup check-node $(CDK) ## Show what a deployment of ENV (dev) would change on AWS
	@$(CDK) diff --no-color -c env=$(ENV) $(ARGS)

bootstrap: setup check-node $(CDK) ## Prepare an account and region of AWS for the CDK: once, with your credentials
	@$(CDK) bootstrap -c env=$(ENV) $(ARGS)

deploy: setup check-node $(CDK) ## Deploy ENV (dev) to AWS, with your credentials
	@$(CDK) deploy --all -c env=$(ENV) $(ARGS)

smoke: setup ## Run one job through the deployed API of ENV (dev): enqueue, claim, complete, reap
	@$(RUN) -m infra.smoke $(if $(ADDRESS),--address "$(ADDRESS)",--env $(ENV)) $(ARGS)

clean: ## Remove everything that set-up and the tools made
	@rm -rf .venv .venv-3.* .venv-tools .venv-peer .venv-emulator node_modules dashboard/node_modules tests/azurite/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
