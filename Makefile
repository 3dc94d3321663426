# Every target works alone on a fresh clone with nothing but Python 3.11 or newer.
#
#   make demo    the main job end to end on the simulated Vast, for $0 (ARGS="--fault NAME")
#   make test    all tests; ssh and e2e need system tools, which are named when they are missing
#   make lint    format, lints, types, import rules        make fmt    repair what can be repaired
#   make soak    20,000 drawn stories on all cores (ARGS="FIRST LAST")
#   make bench   benchmarks, side by side (ARGS=NAME)      make clean  remove what make made

PYTHON ?= python3
ARGS ?=
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
# Vast's own client, a witness for the simulated Vast; its pins clash with ours.
VASTAI := .venv-vastai
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -q
PYTEST := $(BIN)/python -m pytest -q
# Directories too: a deleted module makes nothing newer but the directory it was in.
SOURCES := $(shell find vastd vastctl protocol -name '*.egg-info' -prune -o -name __pycache__ -prune -o -print)

# What a user's shell may hold would lead pip or Python away from the environment made here.
unexport PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX VIRTUAL_ENV
# Without bytecode each worker compiles every test anew: a quarter of the fast tests' time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint fmt bench soak clean dev tools test-unit test-sim test-system official-client
.DELETE_ON_ERROR:

# An editable install is as good for the demo, so whoever develops does not install twice.
demo: $(if $(wildcard $(VENV)/dev.stamp),$(VENV)/dev.stamp,$(VENV)/wheel.stamp)
	@$(BIN)/vastctl demo $(ARGS)

test: test-unit test-sim test-system

test-unit: $(VENV)/dev.stamp
	$(PYTEST) -m "not sim and not ssh and not e2e and not editors" -n $(JOBS)

# pytest ends with 5 when no test has the mark.
test-sim: $(VENV)/dev.stamp | test-unit
	$(PYTEST) -m sim -n $(JOBS) || [ $$? -eq 5 ]

test-system: $(VENV)/dev.stamp $(VASTAI)/made.stamp tools | test-unit test-sim
	$(PYTEST) -m "ssh or e2e" -n $(JOBS) --dist loadfile || [ $$? -eq 5 ]

tools: | test-unit test-sim
	@missing=$$(.ci/tools) || { \
	  echo "make test: the tests of SSH and of the installed programs cannot run here, missing:" $$missing >&2; \
	  echo "  Debian or Ubuntu: sudo apt-get install" $$missing "(or run .ci/run, which does)" >&2; \
	  exit 1; }

lint: $(VENV)/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: $(VENV)/dev.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

soak: $(VENV)/dev.stamp
	@cd tests && ../$(BIN)/python -m support.soak $(ARGS)

bench: $(VENV)/dev.stamp $(VASTAI)/made.stamp
	@$(BIN)/python -m bench $(ARGS)

dev: $(VENV)/dev.stamp

clean:
	rm -rf $(VENV) $(VASTAI) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

# An environment that somebody made here before is completed, not thrown away.
$(VENV)/made.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: $(PYTHON) is missing or older than 3.11; say which to use: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "make: $(PYTHON) cannot make an environment (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@touch $@

official-client: $(VASTAI)/made.stamp

$(VASTAI)/made.stamp: tests/witness/requirements.txt
	@echo "installing the official client into $(VASTAI)"
	@$(PYTHON) -m venv --clear $(VASTAI)
	@$(VASTAI)/bin/python -m pip --disable-pip-version-check --no-input -q install -r $<
	@touch $@

# build/ would bring back modules that were deleted since the last wheel.
$(VENV)/wheel.stamp: $(VENV)/made.stamp pyproject.toml README.md LICENSE $(SOURCES)
	@echo "installing vastd into $(VENV)"
	@rm -rf build
	@$(PIP) install --upgrade .
	@rm -rf build
	@touch $@

$(VENV)/dev.stamp: $(VENV)/made.stamp pyproject.toml
	@echo "installing vastd and its development tools into $(VENV)"
	@$(PIP) install -e '.[dev]'
	@rm -f $(VENV)/wheel.stamp
	@touch $@
