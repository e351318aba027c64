# Every target sets up what it needs in .venv; a second run installs nothing.
#   make demo PYTHON=python3.12       another interpreter (3.11 or newer)
#   make demo NPROC=4                 more ranks
#   make test PYTEST_FLAGS="-k halo"  some of the tests
#   make test PIP_FLAGS="..."         options for pip, for instance where to find torch's CPU build

PYTHON ?= python3
NPROC ?= 2
PYTEST_FLAGS ?=
PIP_FLAGS ?=

VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.installed

# Ranks share the cores; several threads each would fight over them.
OMP_NUM_THREADS ?= 1
export OMP_NUM_THREADS

.PHONY: help demo test lint docs notebook clean
.DELETE_ON_ERROR:

help:
	@echo "make demo      partition, assemble and solve the bracket on $(NPROC) ranks"
	@echo "make test      run the tests"
	@echo "make lint      check style, format and types"
	@echo "make docs      build the pages into docs/_build/html, notebooks executed"
	@echo "make notebook  execute the notebooks, write the results to notebooks/output"
	@echo "make clean     remove everything that is built, .venv included"

$(SETUP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "tensormesh needs Python 3.11 or newer. '$(PYTHON) --version' says:" \
	    "$$($(PYTHON) --version 2>&1 | head -n 1)" >&2; \
	    echo "Name another one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check $(PIP_FLAGS) \
	  --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(SETUP)
	$(BIN)/torchrun --standalone --nproc-per-node $(NPROC) examples/bracket.py

test: $(SETUP)
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

lint: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(SETUP)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going -q docs docs/_build/html

notebook: $(SETUP)
	@mkdir -p notebooks/output
	$(BIN)/jupyter-execute --output output/{notebook_name} notebooks/*.ipynb

clean:
	rm -rf $(VENV) build dist *.egg-info docs/_build docs/generated notebooks/output
	rm -rf .pytest_cache .hypothesis .mypy_cache .ruff_cache
