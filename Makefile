# Every target creates the environment it needs: a machine with Python >= 3.11 and make is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# CONSTRAINTS= installs the newest versions that pyproject.toml allows.
CONSTRAINTS ?= constraints.txt
# A test process that crashes ends the run: without it, another would start and wait for ever.
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0

.PHONY: demo test quick coverage lint bench docs clean

demo: $(READY)
	$(BIN)/marginax reproduce --quick --out out

# Twice: everything in float64 with strict dtype promotion, then what must hold in float32 without x64.
test: $(READY)
	$(BIN)/pytest $(PARALLEL)
	JAX_ENABLE_X64=0 $(BIN)/pytest $(PARALLEL) -m float32

# What takes seconds; the rest of the tests is for `make test`.
quick: $(READY)
	$(BIN)/pytest $(PARALLEL) -m "not slow"

# Lines of the package that the float64 tests run, without the processes that tests start; and by which
# test, in how long, for tests/support/mutants.py.
coverage: $(READY)
	$(BIN)/pytest $(PARALLEL) --cov --cov-context=test --cov-report=term:skip-covered --junitxml=.pytest_cache/times.xml

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# BASELINE=write makes what is measured the new baseline.
bench: $(READY)
	$(BIN)/python -m benchmarks $(if $(filter write,$(BASELINE)),--write-baseline)

# A warning is an error, and so is a link within the site that leads nowhere. The examples in docstrings
# are tests: `make test` runs them.
docs: $(READY)
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html
	@echo "Open docs/_build/html/index.html"

clean:
	rm -rf $(VENV) out build dist docs/_build docs/gallery .pytest_cache .ruff_cache .mypy_cache

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "marginax needs Python 3.11 or newer, but $(PYTHON) is older. Try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(CONSTRAINTS),-c $(CONSTRAINTS)) -e ".[dev]"
	@touch $(READY)
