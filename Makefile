# Each target does all it needs on a fresh machine with Python 3.11+ and make. Python compiles what it imports; compiling all
# that is installed would take nearly as long as installing it.
PYTHON ?= $(or $(shell command -v python3.11),$(shell command -v python3.12),$(shell command -v python3.13),python3.11)
# Without its bytecode caches Python compiles every module again at every start, which doubles the time of the tests.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS := $(VENV)/.docs

.PHONY: demo test lint slow docs wheel clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   all four jobs on real pictures, in minutes: report in demo/evaluation/report.html"
	@echo "make test   the tests"
	@echo "make slow   the slow tests as well"
	@echo "make lint   ruff, mypy, the layers"
	@echo "make docs   the documentation site: build/site/index.html"
	@echo "make wheel  sdist and wheel in dist/, the wheel tried in a fresh environment outside of the repository"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --no-compile --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

$(DOCS): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --no-compile --disable-pip-version-check -c constraints.txt -e ".[docs]"
	@touch $@

demo: $(STAMP)
	$(BIN)/codecnn demo -o demo

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal

slow: $(STAMP)
	$(BIN)/python -m pytest -m "slow and not gpu"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# A link or an anchor that leads nowhere is an error.
docs: $(DOCS)
	$(BIN)/sphinx-build -q -W --keep-going -c docs/site . build/site

wheel: $(STAMP)
	$(BIN)/python tools/wheel.py -o dist

clean:
	rm -rf $(VENV) demo build dist
