# The few commands; CMake does the work.
#
#   make             build ./build/cleave; fetch what reports are drawn with, if it is not there
#   make quickstart  install what is missing, build, look at a network and train it
#   make test        install what is missing, build and run everything that can fail; of large
#                    matrices of tests a seeded sample
#   make test-all    the same with the large matrices whole (hours); writes docs/test-all.md
#   make bench       install what is missing, build, compare with the others
#   make install     the program, the library, its headers (PREFIX=/usr/local, DESTDIR)
#   make uninstall   removes them again (the same PREFIX and DESTDIR)
#   make deb         Debian packages in build/deb: cleave, libcleave0.1, libcleave-dev
#   make golden      write anew what tests/golden and docs/mistakes.md say the program prints
#   make format      put the sources into the house format
#   make tsan        the tests under the thread sanitizer (build-tsan)
#   make clean
#
# DEPS=no installs and fetches nothing. JOBS=N builds and tests N things at a time.

PREFIX ?= /usr/local
DEPS ?= yes
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
export DEPS JOBS

.PHONY: all build deps quickstart test test-all bench tsan install uninstall deb golden format clean
.NOTPARALLEL:

all: build

build:
	@[ "$(DEPS)" = no ] || tools/fetch-web.sh
	@tools/build.sh build

deps:
	@tools/install-deps.sh build

quickstart:
	@tools/install-deps.sh build
	@tools/build.sh build -DCLEAVE_TESTS=OFF
	@tools/quickstart.sh

test:
	@tools/install-deps.sh build test
	@tools/test.sh

test-all:
	@tools/install-deps.sh build test
	@tools/test.sh all

bench:
	@tools/install-deps.sh build bench
	@tools/build.sh build
	@tools/bench.sh

tsan:
	@tools/install-deps.sh build test
	@tools/build.sh build-tsan -DCLEAVE_TESTS=ON -DCLEAVE_SANITIZE=thread
	@echo 'Some tests take many minutes under it; for parts see docs/testing.md.'
	@ctest --test-dir build-tsan -LE check --output-on-failure -j $(JOBS)

install: build
	DESTDIR=$(DESTDIR) cmake --install build --prefix $(PREFIX)
	@[ -n "$(DESTDIR)" ] || ldconfig 2>/dev/null || true

uninstall:
	@DESTDIR=$(DESTDIR) tools/uninstall.sh $(PREFIX)
	@[ -n "$(DESTDIR)" ] || ldconfig 2>/dev/null || true

deb:
	@tools/install-deps.sh build package
	@tools/build.sh build
	@rm -rf build/deb
	cpack -G DEB --config build/CPackConfig.cmake
	@rm -rf build/deb/_CPack_Packages
	@ls -l build/deb

golden: build
	@tools/golden.sh

format:
	@tools/sources.sh | xargs -d '\n' clang-format -i

clean:
	rm -rf build build-clang build-asan build-plain build-tsan
