# calgrid. `make` lists the targets; nothing is installed outside the folder $(VENV).
# Other interpreter: make demo PYTHON=/path/to/python3.11        Fewer cores: make demo CORES=2

PYTHON ?= python3
CORES ?= all
VENV ?= .venv
STUDY := results/digits
# processes that run the tests; each uses one thread, so that their numbers do not depend on the machine
TEST_PROCESSES ?= 2
PYTEST_ARGS ?=
BENCH_ARGS ?=
OLD ?=

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

BIN := $(VENV)/bin
PYTEST = OMP_NUM_THREADS=1 "$(BIN)/python" -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder
REST := workflow or slow or slurm
LOCK := envs/requirements.lock
READY := $(VENV)/.calgrid-ready
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

.PHONY: help setup venv demo test test-rest test-all lint docs mutation same-numbers same-plans bench lock clean clean-results

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' Makefile

setup: $(READY) ## install the pinned release into .venv (once; again when the pins change)

demo: $(READY) ## run the default grid and write its report
	"$(BIN)/calgrid" run config/config.yaml --cores $(CORES)

test: $(READY) ## run the tests of every unit and one small workflow (some minutes)
	$(PYTEST) -m "not ($(REST))" $(PYTEST_ARGS)

test-rest: $(READY) ## run the tests that `make test` leaves out: other workflows, faults, SLURM, long matrices
	$(PYTEST) -m "$(REST)" $(PYTEST_ARGS)

test-all: $(READY) ## run all tests
	$(PYTEST) $(PYTEST_ARGS)

lint: $(READY) ## check style, formatting, layers, types and the workflow
	"$(BIN)/ruff" check
	"$(BIN)/ruff" format --check
	"$(BIN)/lint-imports"
	"$(BIN)/mypy"
	"$(BIN)/snakefmt" --check Snakefile workflow
	"$(BIN)/snakemake" --lint

docs: $(READY) ## build the documentation into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 "$(BIN)/python" -m mkdocs build --quiet --strict

mutation: $(READY) ## break lines of the core one by one, and count how often the tests notice
	"$(BIN)/python" benchmarks/mutation.py $(BENCH_ARGS)

same-numbers: $(READY) ## compare results/digits with those of another checkout, bit for bit: OLD=../other/results/digits
	@test -n "$(OLD)" || { echo "Name the results to compare with: make same-numbers OLD=../other/results/digits" >&2; exit 2; }
	"$(BIN)/python" benchmarks/same_numbers.py "$(OLD)" "$(STUDY)"

same-plans: $(READY) ## compare the jobs of all shipped configurations with those of another checkout: OLD=../other
	@test -n "$(OLD)" || { echo "Name the checkout to compare with: make same-plans OLD=../other" >&2; exit 2; }
	"$(BIN)/python" benchmarks/same_plans.py "$(OLD)"

bench: $(READY) ## measure set-up, default grid, planning and imports (see benchmarks/speed.md)
	"$(BIN)/python" benchmarks/speed.py --cores $(CORES) $(BENCH_ARGS)

lock: ## write the versions that are installed in .venv into envs/requirements.lock and the conda files
	@pins="$$("$(BIN)/pip" freeze --all --exclude-editable --exclude pip --exclude wheel --exclude calgrid)"; \
	{ sed -n '/^#/p' $(LOCK); sed -E '/^#/d; s/\+[a-z0-9.]+$$//' <<< "$$pins"; } > $(LOCK).new
	@mv $(LOCK).new $(LOCK)
	@"$(BIN)/python" envs/pin.py

clean: ## remove .venv and caches; results stay
	[ ! -f "$(VENV)/pyvenv.cfg" ] || rm -rf "$(VENV)"
	rm -rf site .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis build dist src/calgrid.egg-info
	find .ci benchmarks src tests workflow -name __pycache__ -type d -prune -exec rm -rf {} +

clean-results: ## remove ALL results, trained models included, and what Snakemake knows about them
	@echo "Removing results/ and .snakemake/ in $(CURDIR): all trained models, logits, tables and reports."
	find results -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +
	rm -rf .snakemake

$(READY): $(LOCK) pyproject.toml
	@"$(BIN)/python" -c 'import pip; $(NEW_ENOUGH)' 2> /dev/null || $(MAKE) venv
	@echo "Installing $$(grep -c == $(LOCK)) pinned packages into $(VENV): some minutes, about 6 GB; the large ones are:"
	@"$(BIN)/python" -m pip install --disable-pip-version-check --progress-bar off --no-compile -r $(LOCK) \
	  | sed -unE 's/^ *(Downloading|Using cached) (.*\([0-9.]+ [MG]B\)).*/  \2/p'
	@"$(BIN)/python" -m compileall -qq -j 0 "$(VENV)/lib" || true  # pip would do it on one core
	@"$(BIN)/python" -m pip install --disable-pip-version-check --quiet --no-build-isolation --no-deps -e .
	@touch "$(READY)"
	@echo "Installed."

venv:
	@"$(PYTHON)" -c '$(NEW_ENOUGH)' 2> /dev/null || { \
	  echo "calgrid needs Python 3.11 or newer, which '$(PYTHON)' is not: name another, make demo PYTHON=/path/to/python3.11" >&2; \
	  exit 1; }
	@"$(PYTHON)" -m venv $$([ ! -f "$(VENV)/pyvenv.cfg" ] || echo --clear) "$(VENV)"
