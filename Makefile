# The only set-up anybody needs. Every target makes its own environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.ready-docs
# pip also reads the constraints inside build environments this way
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help install demo test lint types imports unit soak bench docs clean

help:
	@echo "make install | demo | test | soak | lint | bench | docs | clean"

install: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("varjepa needs Python 3.11 or newer, not " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $(READY)

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	touch $(DOCS_READY)

demo: $(READY)
	$(BIN)/varjepa demo --out demo

test: lint types imports unit

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports

unit: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal

# the long forms of the reliability tests; their figures go to benchmarks/results/soak/
soak: $(READY)
	$(BIN)/python -m pytest -m soak -v

bench: $(READY)
	$(BIN)/python -m benchmarks.speed --shapes adult
	$(BIN)/python -m benchmarks.speed simulation

# the site, into site/; warnings are errors. Examples that did not change are not run again
docs: $(DOCS_READY)
	rm -rf site
	$(BIN)/python -m sphinx -W --keep-going -q -c docs -d build/docs . site
	$(BIN)/python docs/check_site.py site
	@echo "site/index.html"

clean:
	rm -rf $(VENV) demo site build docs/gallery .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
