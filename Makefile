# Both commands of the README do all their own set-up; a second call finds it done.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
LOCK := pyproject.toml constraints.txt

.PHONY: demo test check gate clean

demo: $(VENV)/.demo
	$(BIN)/kamebench demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

# The embedded cascade, speaking reference answers, against its committed baseline.
gate: $(VENV)/.test
	mkdir -p build
	$(BIN)/kamebench run --backend reference --results build/gate --json > build/gate.json
	$(BIN)/kamebench gate --baseline embedded --rules examples/ci/embedded.toml \
	  "$$($(BIN)/python -c 'import json; print(json.load(open("build/gate.json"))["run"])')"

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip

$(VENV)/.demo: $(LOCK) | $(BIN)/python
	@echo "Setting up .venv for the demo (once, a few minutes)"
	$(PIP) install -c constraints.txt -e '.[local]'
	touch $@

# torch first: moshi's own dependencies would replace a CPU torch by a CUDA one.
$(VENV)/.test: $(LOCK) $(VENV)/.demo
	@echo "Setting up .venv for the tests (once, several minutes)"
	$(PIP) install -c constraints.txt torch==2.13.0
	$(PIP) install -c constraints.txt -e '.[local,openai,anthropic,google,google-speech,whisper,hub,remote,dev]'
	$(PIP) install -c constraints.txt einops sentencepiece sphn safetensors huggingface-hub aiohttp
	$(PIP) install --no-deps moshi==0.2.13
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium; } || echo "no chromium: the browser tests will be skipped"
	touch $@

clean:
	rm -rf $(VENV)
