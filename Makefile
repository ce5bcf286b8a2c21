# Thin: one line or two for each thing that one does here.

BINARY := target/release/cudatrace
CARGO  ?= cargo
SEEDS  ?= 0 5000
SECONDS ?= 600

PREFIX ?= /usr/local

.PHONY: install release demo test test-kernels test-bpftrace test-survival growth agree verify fuzz check deny portable bless bench site deps build examples clean

build: deps              ## the release binary
	$(CARGO) build --release

release: deps            ## all that is distributed, in target/packages: wheel, .deb, .rpm, tarball, checksums
	bash tools/release.sh

install:                 ## the binary, its manual page and completions, after `make build`: below PREFIX (/usr/local), or DESTDIR
	install -Dm755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/cudatrace
	$(BINARY) man | install -Dm644 /dev/stdin $(DESTDIR)$(PREFIX)/share/man/man1/cudatrace.1
	$(BINARY) completion bash | install -Dm644 /dev/stdin $(DESTDIR)$(PREFIX)/share/bash-completion/completions/cudatrace
	$(BINARY) completion fish | install -Dm644 /dev/stdin $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/cudatrace.fish

demo: build examples     ## trace the workload: on a GPU if there is one, else on the simulated CUDA
	bash examples/demo.sh $(BINARY)

test: deps examples      ## everything that can be tested on this machine; live tests need root
	$(CARGO) test --workspace --quiet
	CUDATRACE_LIVE_IN_PROCESS=1 $(CARGO) test --quiet --test live
	$(MAKE) --no-print-directory -C examples/cuda check

test-kernels: build examples  ## the live tests on other kernels, in qemu; KERNELS="6.1 6.12" CASES=memleak for some, KERNEL_DIR=DIR for others
	CASES='$(CASES)' KERNEL_DIR='$(KERNEL_DIR)' bash tools/test-kernels.sh $(KERNELS)

test-bpftrace:           ## bpftrace's own programs: BPFTRACE=FOLDER is its source tree, or a folder of .bt files
	python3 tools/test-bpftrace.py --cudatrace $(BINARY) $(BPFTRACE)

test-survival:           ## tests of CPython, OpenSSL, libstdc++ with their library traced in the process, as root: SUITES="python openssl" for some
	bash tools/test-survival.sh $(SUITES)

growth:                  ## how the time for scripts of a megabyte grows
	GROWTH_BYTES=1000000 $(CARGO) test --release -p cudatrace-lang --test growth

agree:                   ## generated scripts, interpreted and compiled: SEEDS="0 100000" is the first seed and how many
	AGREE_SEED=$(word 1,$(SEEDS)) AGREE_PROGRAMS=$(word 2,$(SEEDS)) $(CARGO) test --release --test agree generated

verify: examples         ## generated scripts through this kernel's verifier, as root: SEEDS as above
	VERIFY_SEED=$(word 1,$(SEEDS)) VERIFY_PROGRAMS=$(word 2,$(SEEDS)) $(CARGO) test --release --test verifier generated

fuzz: examples           ## traced processes that lie, and changed scripts, as root: SECONDS for each (600)
	CUDATRACE_FUZZ_SECONDS=$(SECONDS) $(CARGO) test --test hostile --test mutants

check:                   ## formatting and lints
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings

deny:                    ## licences and sources of dependencies; known vulnerabilities, if their database can be downloaded; needs cargo-deny
	$(CARGO) deny check licenses bans sources
	if $(CARGO) deny fetch db 2>/dev/null; then $(CARGO) deny check advisories; else echo "skipped: no database of vulnerabilities"; fi

portable:                ## the minimum Rust version, and the crates that compile for aarch64; needs rustup, gcc-aarch64-linux-gnu, libc6-dev-arm64-cross
	bash tools/check-portability.sh

bless:                   ## rewrite the golden files; read the diff
	BLESS=1 $(CARGO) test --workspace --quiet

bench: build examples    ## what a probe hit costs, as a ratio to an empty probe
	python3 examples/bench.py $(BINARY)

examples:                ## the simulated CUDA and the workloads
	$(MAKE) --no-print-directory -C examples/cuda

site:                    ## the pages of docs/ with a search, in target/site; needs mdBook; SOURCE=URL of the repository's files for links to them
	python3 tools/site.py $(SOURCE)

deps:                    ## what the build needs and this machine lacks
	@bash tools/deps.sh

clean:
	$(CARGO) clean
	$(MAKE) -C examples/cuda clean
