# make build   the program, at build/release/muoncore
# make test    all tests
# make setup   only what they need: Debian packages and the Python environment
# make demo    the main job: post-train a small model with Muon and with AdamW, and compare
# make soak    what takes longer than a test may
# make asan    the C++ tests under AddressSanitizer and UBSan
# make tsan    ranks as threads (tests/comm, but for those that start processes) under ThreadSanitizer, one LibTorch thread each
# make parity GOLDEN=DIR   replay recorded outputs of the real Megatron-Core and Emerging-Optimizers
# Each sets up what it needs (tools/setup.sh) and does no work twice.
PRESET ?= release
PYTHON := $(or $(MUONCORE_PYTHON),$(CURDIR)/.venv/bin/python)
BUILD := build/$(PRESET)
GOLDEN ?= ../shared/golden

.PHONY: build test demo soak asan tsan parity format setup

setup:
	@tools/setup.sh test

# TARGET: what ninja is to make; the tests want all of it
TARGET ?= muoncore

build:
	@tools/setup.sh build
	@echo "build: $(TARGET) in $(BUILD) (from nothing on two cores: the program about 12 minutes, with the tests about 18; nothing is built twice)"
	@cmake --preset $(PRESET) -DMUONCORE_PYTHON=$(PYTHON) $(CMAKE_ARGS) > /dev/null
	@cmake --build --preset $(PRESET) --target $(TARGET)

test:
	@tools/setup.sh test
	@$(MAKE) --no-print-directory build TARGET=all
	@echo "test: the rooms, the program, the layers (about 4 minutes on two cores)"
	@ctest --test-dir $(BUILD) --output-on-failure --no-tests=error

demo:
	@tools/setup.sh build
	@$(MAKE) --no-print-directory build
	@tools/demo.sh $(BUILD)/muoncore

asan:
	@$(MAKE) --no-print-directory build PRESET=asan TARGET=all
	@ASAN_OPTIONS=detect_leaks=0 ctest --test-dir build/asan --output-on-failure --no-tests=error -E 'program|layers|install|format'

tsan:
	@$(MAKE) --no-print-directory build PRESET=tsan TARGET=test_comm
	@OMP_NUM_THREADS=1 TSAN_OPTIONS=suppressions=$(CURDIR)/tools/tsan.supp build/tsan/tests/test_comm --gtest_filter=-World.*:Spawn.*

soak: test
	@tools/soak.sh $(BUILD)/muoncore

parity: build
	@$(BUILD)/muoncore parity --golden $(GOLDEN)

format:
	@clang-format -i $$(git ls-files '*.h' '*.cpp')
