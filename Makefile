# SPDX-License-Identifier: Apache-2.0
# Short names for everything; CMake + Ninja do the work. Each target sets up what it needs.
BUILD ?= build
BENCH ?=
PAGE ?= docs/benchmarks.md
PREFIX ?= /usr/local

.PHONY: run build test test-gpu bench check install format setup clean python test-python wheel sdist

setup:
	@scripts/setup

build: setup
	@cmake -S . -B $(BUILD) -G Ninja >/dev/null
	@cmake --build $(BUILD)

run: build
	@scripts/run-demo $(BUILD)

test: build
	@scripts/run-tests $(BUILD)

# On a machine with a GPU: what CI can only compile.
test-gpu: build
	@scripts/test-gpu $(BUILD)

bench:
	@scripts/setup bench
	@$(MAKE) --no-print-directory build
	@scripts/run-bench $(BUILD) "$(BENCH)" "$(PAGE)"

check: build
	@scripts/run-check

python:
	@scripts/test-python setup

test-python: # TORCH=1: with torch, for the tests of tacit.from_torch
	@TORCH=$(TORCH) scripts/test-python test

wheel:
	@scripts/test-python wheel

sdist:
	@scripts/test-python sdist

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

format:
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs clang-format -i

clean:
	@rm -rf $(BUILD) build-*
