# One word, one thing to do: `make help` lists them. Needs Python 3.11 or newer, make and git.

VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -qq
MADE   := $(VENV)/.made
DEMO   := $(VENV)/.ready-demo
DEV    := $(VENV)/.ready-dev
# What decides and carries out a stop: every branch of it is tested.
STOP_PATHS := src/andon/runtime/bell.py,src/andon/runtime/ticket.py,src/andon/runtime/scope.py,src/andon/runtime/isolate.py,src/andon/runtime/ask.py,src/andon/runtime/round.py,src/andon/runtime/running.py,src/andon/runtime/carrier.py,src/andon/runtime/ending.py,src/andon/runtime/pause.py
INPUTS := pyproject.toml constraints.txt

# The first interpreter that runs, is new enough and can make environments. Override: make PYTHON=/path/to/python
CAN_BUILD := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3 python python3.14; do \
	if $$name -c '$(CAN_BUILD)' >/dev/null 2>&1; then echo $$name; break; fi; done)

.DEFAULT_GOAL := help
.PHONY: help setup browser demo test nightly crash test-live check format bench docs clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(DEV) ## Make .venv with everything for development
	@echo "setup: ready, in $(VENV)"

demo: $(DEMO) ## Serve an agent and its console on 127.0.0.1:8484 (no key needed)
	@$(BIN)/andon serve examples/demo.py:agent

browser: ## Install the Chromium that the tests of the console drive
	@sh tests/e2e/install.sh

test: $(DEV) browser ## Run all tests, with branch coverage
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest $(ARGS)
	@$(BIN)/coverage combine -q
	@$(BIN)/coverage report
	@$(BIN)/coverage report --include='src/andon/core/*,$(STOP_PATHS)' --fail-under=100
	@echo "test: passed"

nightly: $(DEV) ## Sweep and drive everything as far as it goes (an hour)
	@ANDON_NIGHTLY=1 ANDON_EXPLORE=full $(BIN)/python -m pytest tests/machine tests/explore tests/runtime/test_resume_tree.py tests/substrate/test_sqlite_machine.py $(ARGS)

crash: $(DEV) ## Kill servers at 200 random moments under load, check what is left (ten minutes)
	@$(BIN)/python -m tests.chaos --kills 200 $(ARGS)
	@$(BIN)/python -m tests.chaos --kills 50 --servers 2 --drains 0.3 $(ARGS)
	@$(BIN)/python -m tests.chaos --kills 50 --full $(ARGS)
	@echo "crash: passed"

test-live: $(DEV) ## Cancel real providers (keys and model ids from the environment)
	@$(BIN)/python -m pytest -m live tests/live $(ARGS)

check: $(DEV) ## Check format, lint, types and layers
	@echo "check: format" && $(BIN)/ruff format --check .
	@echo "check: lint" && $(BIN)/ruff check .
	@echo "check: types" && $(BIN)/basedpyright
	@echo "check: layers" && $(BIN)/lint-imports --no-logo
	@echo "check: passed"

format: $(DEV) ## Rewrite the code in the house format
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

bench: $(DEV) ## Measure against the bare floor, write bench/results.md
	@$(BIN)/python -m bench

docs: $(DEV) ## Write the generated parts of docs, run every code block of README and docs
	@$(BIN)/python -m docs.generate
	@$(BIN)/python -m pytest tests/test_docs_blocks.py tests/test_docs_generated.py README.md docs $(ARGS)

clean: ## Remove the environment and what the tools leave behind
	@rm -rf $(VENV) build dist htmlcov .coverage .coverage.* .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "clean: done"

$(MADE):
	@test -n "$(PYTHON)" && "$(PYTHON)" -c '$(CAN_BUILD)' 2>/dev/null || { \
		echo "andon needs Python 3.11 or newer with the venv module, and found none." >&2; \
		echo "Install it (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python)" >&2; \
		echo "or name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "setup: making $(VENV) with $$("$(PYTHON)" --version)"
	@rm -rf $(VENV) && "$(PYTHON)" -m venv $(VENV)
	@$(PIP) install --upgrade --constraint constraints.txt 'pip>=25.1'
	@touch $@

$(DEMO): $(INPUTS) | $(MADE)
	@echo "setup: installing andon"
	@$(PIP) install --constraint constraints.txt --editable '.[serve,anthropic,openai]'
	@touch $@

$(DEV): $(INPUTS) | $(MADE)
	@echo "setup: installing andon, its extras and the tools (a minute or two, once)"
	@$(PIP) install --constraint constraints.txt --editable '.[all]' --group test --group check --group docs
	@touch $@ $(DEMO)
