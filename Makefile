# Thin front of CMake, ctest and pytest. Nothing is decided here but the order.
BUILD ?= build
PYTHON ?= /usr/bin/python3
AK_WERROR ?= OFF
JOBS ?= $(shell nproc)
# Tests in the lab wait for others about half of their time.
NET_JOBS ?= $(shell echo $$((2 * $(JOBS))))
export AK_BIN ?= $(CURDIR)/$(BUILD)/agentkernel
export AGENTKERNEL_DATA_DIR ?= $(CURDIR)

.PHONY: all demo test unit asan net soak bench lint style format fuzz corpus coverage install package dist lab clean deps test-deps

all: deps $(BUILD)/build.ninja
	@echo "== build: $(BUILD)"
	@ninja -C $(BUILD) -j $(JOBS) --quiet

# `make` and `make demo` install what they need and no more; the suite wants other languages, shells and backends too.
deps:
	@.ci/deps build

test-deps:
	@.ci/deps build test

$(BUILD)/build.ninja: CMakeLists.txt
	@cmake -G Ninja -B $(BUILD) -DAK_WERROR=$(AK_WERROR) $(CMAKE_FLAGS) >/dev/null

# The main job, in a private Internet: what codex may reach, what it may not, and the log.
demo: all
	@.ci/deps lab
	@$(PYTHON) tests/lab/lab.py demo

# Each stage says what it runs and how many; ctest and pytest then tell how far they are, and sum up.
test: test-deps all unit asan net

count = $$(cd $(1) && ctest -N $(2) | sed -n 's/^Total Tests: //p')

unit: test-deps all
	@echo "== unit: $(call count,$(BUILD)) unit tests and replays of fuzz corpora, $(JOBS) at a time"
	@cd $(BUILD) && ctest --output-on-failure -j $(JOBS)

# Everything that reads what others wrote, with its fuzz corpora, under AddressSanitizer and UndefinedBehaviorSanitizer.
asan: test-deps
	@echo "== asan: building the parsers and their tests with sanitizers"
	@cmake -G Ninja -B build-asan -DAK_SANITIZE=ON -DCMAKE_C_FLAGS_RELWITHDEBINFO="-O1 -g1" >/dev/null
	@ninja -C build-asan -j $(JOBS) --quiet parsers
	@echo "== asan: $(call count,build-asan,-L parser) tests of parsers, $(JOBS) at a time"
	@cd build-asan && ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 ctest -L parser --output-on-failure -j $(JOBS)

# What needs the lab, and the shape of the tree. Tests of one xdist group never run at the same time.
net: test-deps all
	@echo "== net: tests of invariants, front ends and attacks in private networks, as $$(id -un), $(NET_JOBS) at a time"
	@$(PYTHON) -m pytest -o cache_dir=$(CURDIR)/$(BUILD)/pytest --basetemp=$(CURDIR)/$(BUILD)/pytest-tmp -n $(NET_JOBS) --dist loadgroup tests

# Thousands of starts and stops while parts are killed at random; the suite itself runs a short one.
soak: test-deps all
	@AK_SOAK_CYCLES=$${AK_SOAK_CYCLES:-2000} $(PYTHON) -m pytest -q -s tests/net/test_soak.py

# A shell in the lab.
lab: test-deps all
	@$(PYTHON) tests/lab/lab.py shell

bench: all
	@.ci/deps bench
	@$(PYTHON) tests/bench/bench.py
	@$(PYTHON) tests/bench/mcp_bench.py

# The layout, the include rule and the format take a second; clang-tidy takes minutes.
style:
	@.ci/deps lint
	@clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h')

lint: all style
	@$(PYTHON) -m pytest -q tests/lint
	@git ls-files '*.c' | grep -v '^tests/' | xargs -P $(JOBS) -n 6 clang-tidy --quiet -p $(BUILD) 2>/dev/null

format:
	@.ci/deps lint
	@clang-format -i $$(git ls-files '*.c' '*.h')

# Each harness for a bounded time; crashes land in build-fuzz/.
FUZZ_SECONDS ?= 60
fuzz:
	@.ci/deps build test fuzz
	@CC=clang cmake -G Ninja -B build-fuzz -DAK_FUZZ=ON >/dev/null
	@ninja -C build-fuzz --quiet $$(basename -s .c tests/fuzz/fuzz_*.c)
	@cd build-fuzz && for f in ../tests/fuzz/fuzz_*.c; do name=$$(basename -s .c $$f); corpus=$${name#fuzz_}; \
		mkdir -p new/$$corpus && ./tests/$$name -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 new/$$corpus tests/corpus/$$corpus || exit 1; done

# Add to the seed corpora what `make fuzz` found and reaches new code. Single inputs: tests/fuzz/corpus.py add NAME FILE
corpus:
	@for new in build-fuzz/new/*/; do corpus=$$(basename $$new); seeds=build-fuzz/tests/corpus/$$corpus; \
		build-fuzz/tests/fuzz_$$corpus -merge=1 $$seeds $$new 2>/dev/null && $(PYTHON) tests/fuzz/corpus.py add $$corpus $$seeds || exit 1; done

# Lines and edges that each parser's corpus reaches, then those that all unit tests do.
coverage:
	@.ci/deps build test
	@cmake -G Ninja -B build-coverage -DAK_COVERAGE=ON -DCMAKE_BUILD_TYPE=Debug >/dev/null
	@ninja -C build-coverage -j $(JOBS) --quiet
	@$(PYTHON) tests/fuzz/coverage.py build-coverage

install: all
	@cmake --install $(BUILD)

# A Debian package and a tarball, in build-package/; the archive of the sources, in build-dist/. The same commit gives the same bytes.
export SOURCE_DATE_EPOCH ?= $(shell git -c safe.directory='*' log -1 --format=%ct 2>/dev/null || echo 0)
package:
	@.ci/deps build package
	@gateway/package/cjson build-package/archives || echo "package: no source of cJSON: the program in the tarball is not static" >&2
	@cmake -G Ninja -B build-package -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_BUILD_TYPE=Release -DAK_PACKAGE=ON -DAK_TESTS=OFF \
		-DAK_CJSON_ARCHIVE=$(CURDIR)/build-package/archives/libcjson.a >/dev/null
	@ninja -C build-package -j $(JOBS) --quiet all $$([ ! -e build-package/archives/libcjson.a ] || echo agentkernel-static)
	@cd build-package && rm -f *.deb && cpack -G DEB >/dev/null && ../gateway/package/tarball . agentkernel-$$(uname -m).tar.gz
	@ls build-package/*.deb build-package/*.tar.gz

dist:
	@mkdir -p build-dist
	@version=$$(sed -n 's/^project(agentkernel VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt) && git -c safe.directory='*' archive --format=tar --prefix=agentkernel-$$version/ HEAD \
		| gzip -n9 >build-dist/agentkernel-$$version.tar.gz && ls build-dist/agentkernel-$$version.tar.gz

clean:
	@rm -rf build build-asan build-fuzz build-coverage build-sabotage build-package build-dist
