# Bentpipe: `make run` does the main job, `make test` runs linters and tests, `make help` lists the rest.
# Each step leaves a stamp in .venv, so a repeated call repeats only what has changed.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help wheel deb static image run live live-example live-programs live-packages unit-packages live-bench live-quic live-uploads live-terminals test test-often check check-rust check-python build-tests test-packages test-rust test-namespaces test-python test-recipes kernel coverage cluster cluster-costs run-costs bench fuzz fuzz-all fmt docs gallery choosing reproduction costs paper-figures papers-pages advice delay pfavqred backlog onboard gateway-models model-domain series site terminals quic evaluation published lab-figures lab-bench lock setup clean beam-bench deny sbom instructions check-instructions reproducible mutants faults soak soak-live miri loom speed profile

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := python/bentpipe/_core.abi3.so
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

# All cargo calls use the same Python, which avoids recompilation.
export PYO3_PYTHON := $(shell command -v $(PYTHON))
export PYO3_BUILD_EXTENSION_MODULE := 1
# Compiled modules are kept, whatever the environment says: the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE
# Chromium comes from Debian.
export PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD := 1

# Packages that are the same whatever folder and user build them: no path, and the time of the commit. Not by default, since
# cargo compiles everything again for other flags.
ifdef REPRODUCIBLE
CARGO_FOLDER := $(or $(CARGO_HOME),$(HOME)/.cargo)
export RUSTFLAGS := --remap-path-prefix=$(CURDIR)=. --remap-path-prefix=$(CARGO_FOLDER)=cargo
export CFLAGS := -ffile-prefix-map=$(CURDIR)=. -ffile-prefix-map=$(CARGO_FOLDER)=cargo
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
endif

PYTHON_SOURCES := python examples tools

LIVE := python/bentpipe/bin/bentpipe-gateway python/bentpipe/bin/bentpipe-testbed

RUST_SOURCES := $(shell find Cargo.toml Cargo.lock crates -type f -not -path '*/.*' 2>/dev/null)

# $(call debian,PACKAGE,REASON): install it as root, otherwise print the command.
define debian
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing $(1) ($(2))"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  apt-get install -y --no-install-recommends $(1) >/dev/null 2>&1 \
	    || { apt-get update >/dev/null && apt-get install -y --no-install-recommends $(1) >/dev/null; }; \
	else \
	  echo "$(2): the Debian package $(1) is missing. Install it with:" >&2; \
	  echo "    sudo apt-get update && sudo apt-get install -y --no-install-recommends $(1)" >&2; \
	  exit 1; \
	fi
endef

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(CORE) ## set up, compare RED 4, AVQ and AVQRED on the 2007 satellite gateway, write the report
	@$(BIN)/bentpipe compare scenarios/byun2007-gateway.toml

live: $(CORE) $(LIVE) live-packages ## run a scenario on real connections, as root, and show its simulation beside it: half a minute
	@$(BIN)/bentpipe live live-smoke --setting red --out results/live-smoke --force
	@$(BIN)/bentpipe compare live-smoke --settings red --runs 1 --out results/live-smoke-simulated --force >/dev/null
	@$(BIN)/bentpipe compare results/live-smoke-simulated results/live-smoke --metric throughput,queue_mean,drop_rate,goodput_mean

live-example: $(CORE) $(LIVE) live-packages ## run the README's live example, as root, and renew its output there: half a minute
	$(BIN)/python tools/live_example.py README.md

PACKAGES := target/package

# The core is compiled for the profile that belongs to this compiler, if there is one. A function that has changed since is compiled
# without it, and without a warning. Encoded, since folders may have spaces.
PROFILE = $(wildcard tools/profiles/llvm-$(shell rustc -vV | sed -n 's/LLVM version: //p').profdata)
PROFILED = $(if $(PROFILE),CARGO_ENCODED_RUSTFLAGS="$$(printf '%s\x1f' $(RUSTFLAGS) -Cllvm-args=-no-pgo-warn-mismatch)-Cprofile-use=$(CURDIR)/$(PROFILE)")

profile: $(CORE) ## renew the profile that the core is compiled for: ten minutes
	@[ -e "$$(rustc --print target-libdir)/../bin/llvm-profdata" ] || rustup component add llvm-tools
	$(BIN)/python tools/simulator_profile.py renew

sbom: | $(VENV)/.created ## renew the software bills of materials after a change of locked versions: deploy/sbom
	$(BIN)/python tools/sbom.py

wheel: $(CORE) $(LIVE) ## build the wheel, with the live programs and man pages, and the source distribution: target/package
	rm -f $(PACKAGES)/*.whl $(PACKAGES)/*.tar.gz
	$(PROFILED) PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/maturin build --release --locked --quiet --out $(PACKAGES) --compatibility pypi
	$(BIN)/maturin sdist --out $(PACKAGES)

deb: $(CORE) $(LIVE) ## build the Debian package of the live gateway (MAINTAINER="NAME <ADDRESS>"): target/package
	@$(BIN)/python tools/gateway_package.py deb python/bentpipe/bin/bentpipe-gateway $(PACKAGES) $(if $(MAINTAINER),"$(MAINTAINER)")

# BASE replaces the base image, IMAGE_OPTIONS are further options of `docker build`.
CONTAINER = $(firstword $(shell command -v docker podman) docker)
image: wheel ## build the container image for workers of a cluster with docker or podman (BASE=IMAGE): bentpipe
	cp requirements.txt $(PACKAGES)/
	$(CONTAINER) build $(if $(BASE),--build-arg BASE=$(BASE)) $(IMAGE_OPTIONS) --tag bentpipe --file deploy/Containerfile $(PACKAGES)

reproducible: $(CORE) ## build the wheel and the Debian package twice, in different folders, and compare them: ten minutes
	$(BIN)/python tools/reproducible.py

HOST = $(shell rustc -vV | sed -n 's/host: //p')
static: $(CORE) ## build the live gateway as one file without shared libraries: target/package, some minutes
	RUSTFLAGS="$(RUSTFLAGS) -C target-feature=+crt-static" cargo build --locked --release --quiet --target $(HOST) -p bentpipe-gatewayd
	@$(BIN)/python tools/gateway_package.py static target/$(HOST)/release/bentpipe-gateway $(PACKAGES)

live-programs: $(LIVE) ## build the live gateway and the testbed of live runs

live-bench: $(CORE) $(LIVE) live-packages ## benchmark the live gateway, as root, and renew docs/live-bench.md: half an hour (QUICK=1: five minutes, and only the terminal)
	$(BIN)/python python/tests/live/bench.py $(if $(QUICK),--quick)

live-quic: $(CORE) $(LIVE) live-packages ## compare QUIC live and simulated, as root, and renew that part of docs/quic.md: a quarter of an hour
	$(BIN)/python tools/live_quic_page.py docs results/live-quic

live-uploads: $(CORE) $(LIVE) live-packages ## compare uploads live and simulated, as root, and renew their table in docs/live.md: six minutes
	$(BIN)/python tools/live_uploads_page.py docs results/live-uploads

live-terminals: $(CORE) $(LIVE) live-packages ## compare eight terminals live and simulated, as root, and renew their tables in docs/gateway-terminals.md: half an hour
	$(BIN)/python tools/live_terminals_page.py docs results/live-terminals

soak-live: $(CORE) live-packages ## run a million connections through both ends in an hour, as root, and renew docs/performance.md
	mkdir -p results/soak-live
	cargo test --locked --quiet -p bentpipe-gatewayd --test namespaces -- --ignored --nocapture a_million >results/soak-live/output.txt
	$(BIN)/python tools/soak_live.py docs results/soak-live/output.txt

beam-bench: $(CORE) ## measure the live gateway with eight terminals and with a thousand, as root, and renew docs/gateway-terminals.md: five minutes
	rm -rf results/beam-bench && mkdir -p results/beam-bench
	BENTPIPE_FIGURES=$(CURDIR)/results/beam-bench/shares.jsonl cargo test --locked --quiet -p bentpipe-gatewayd --test namespaces -- \
		--test-threads=1 plans_share eight_terminals
	cargo bench --locked --quiet -p bentpipe-gatewayd --bench beam -- 1000 --json $(CURDIR)/results/beam-bench/size.json
	$(PYTHON) tools/beam_page.py docs results/beam-bench/shares.jsonl results/beam-bench/size.json

# A policy keeps nginx-light from starting a web server at its installation.
live-packages:
	@PATH="$$PATH:/usr/sbin:/sbin"; command -v ip >/dev/null || { $(call debian,iproute2,live runs make namespaces); }
	@PATH="$$PATH:/usr/sbin:/sbin"; command -v iptables-nft >/dev/null || { $(call debian,iptables,the live gateway taps packets); }
	@PATH="$$PATH:/usr/sbin:/sbin"; command -v nginx >/dev/null || { \
	  policy=/usr/sbin/policy-rc.d; \
	  if [ "$$(id -u)" = 0 ] && [ ! -e "$$policy" ]; then \
	    trap 'rm -f '"$$policy" EXIT; printf '#!/bin/sh\nexit 101\n' >"$$policy"; chmod 755 "$$policy"; \
	  fi; \
	  $(call debian,nginx-light,live runs have a real web server); }

# systemd is installed but not started: the tests start it in separate namespaces.
unit-packages:
	@command -v systemd-analyze >/dev/null || { $(call debian,systemd,the gateway's unit is tried under it); }

# Compilation comes first and alone, since cargo allows one build at a time. test-namespaces mostly waits for real time, so it runs
# in parallel with test-python.
test: $(CORE) $(LIVE) $(VENV)/.dev test-packages ## set up, run linters and tests, Rust and Python, and print the time of each part; LONG=1: the long tests and recipes, too; FUZZED=1: fuzz, too
	@$(BIN)/python tools/run_parts.py "check-rust build-tests wheel" "test-namespaces test-rust | test-python | check-python deny check-instructions$(if $(LONG), test-recipes)" $(if $(FUZZED),fuzz-all)

RUNS ?= 10
test-often: $(VENV)/.created ## run `make test` RUNS (10) times in fresh clones, every second one on a busy machine, and print the results: hours
	@$(BIN)/python tools/test_often.py $(RUNS) $(OFTEN)

check: $(VENV)/.dev ## run formatters, linters and type checks: under a minute once they have run
	@$(BIN)/python tools/run_parts.py "check-rust | check-python"

check-rust: | $(VENV)/.created
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet

check-python: $(VENV)/.dev
	$(BIN)/ruff check --quiet $(PYTHON_SOURCES)
	$(BIN)/ruff format --check --quiet $(PYTHON_SOURCES)
	$(BIN)/mypy
	$(BIN)/python tools/check_words.py

CARGO_DENY_VERSION := 0.20.2
CARGO_DENY := target/tools/cargo-deny-$(CARGO_DENY_VERSION)
deny: | $(CARGO_DENY)/bin/cargo-deny ## check licences, sources and known vulnerabilities of the crates (BENTPIPE_ADVISORIES=CLONE of their database)
	$(BIN)/python tools/deny.py $(CARGO_DENY)/bin/cargo-deny

$(CARGO_DENY)/bin/cargo-deny: | $(VENV)/.created
	@echo "Building cargo-deny $(CARGO_DENY_VERSION) (two minutes of processor time, once)"
	cargo install cargo-deny --version $(CARGO_DENY_VERSION) --locked --quiet --no-default-features --profile dev \
	  --target-dir target/tools/build --root $(CARGO_DENY)
	@rm -rf target/tools/build

CARGO_MUTANTS_VERSION := 27.1.0
CARGO_MUTANTS := target/tools/cargo-mutants-$(CARGO_MUTANTS_VERSION)
CRATE ?= link
mutants: | $(CARGO_MUTANTS)/bin/cargo-mutants ## run the tests of CRATE (link) on mutants of its code and renew docs/mutants.md (FILE=tcp/rto.rs, SHARD=0/10, AGAIN=1, IN_PLACE=1): 2 to 10 seconds for each mutant
	$(BIN)/python tools/mutants.py $(CARGO_MUTANTS)/bin/cargo-mutants $(CRATE) $(if $(FILE),--file $(FILE)) \
	  $(if $(SHARD),--shard $(SHARD)) $(if $(AGAIN),--again) $(if $(IN_PLACE),--in-place)

$(CARGO_MUTANTS)/bin/cargo-mutants: | $(VENV)/.created
	@echo "Building cargo-mutants $(CARGO_MUTANTS_VERSION) (a minute of processor time, once)"
	cargo install cargo-mutants --version $(CARGO_MUTANTS_VERSION) --locked --quiet --profile dev \
	  --target-dir target/tools/build --root $(CARGO_MUTANTS)
	@rm -rf target/tools/build

build-tests: | $(VENV)/.created
	cargo test --locked --workspace --quiet --no-run

# Programs are chosen by name and not by crate, or cargo compiles dependencies with other features.
test-rust: | $(VENV)/.created
	cargo test --locked --workspace --quiet --no-fail-fast --lib --bins --test '[!n]*'
	cargo test --locked --workspace --quiet --no-fail-fast --doc

# Tests in network namespaces, with real sockets and timers. Four at a time, since most of them wait.
test-namespaces: | $(VENV)/.created
	cargo test --locked --workspace --quiet --no-fail-fast --test namespaces -- --test-threads 4

test-packages:
	@[ "$$(id -u)" != 0 ] || { command -v iptables-nft && command -v ip; } >/dev/null || { $(call debian,iptables iproute2,the live gateway's tests need them); }
	@command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null || { $(call debian,chromium-headless-shell,pages are tested in a browser); }
	@command -v tshark >/dev/null || { $(call debian,tshark,the captures' test reads them with Wireshark); }
	@command -v valgrind >/dev/null || { $(call debian,valgrind,instructions are counted with it); }
	@[ "$$(id -u)" != 0 ] || $(MAKE) live-packages unit-packages

# More processes than processors, for live runs and commands wait.
test-python: $(CORE) $(LIVE) $(VENV)/.dev test-packages
	$(BIN)/pytest -n $$(( $$(nproc) * 2 )) --dist loadfile --no-loadscope-reorder --durations 20 --ignore python/tests/test_recipes.py

# What it builds stays in target/recipes, so that only the first run compiles the dependencies.
test-recipes: $(VENV)/.dev ## follow the recipes of CONTRIBUTING.md on a copy of the tree
	$(BIN)/pytest --quiet python/tests/test_recipes.py

site: $(VENV)/.dev ## build the documentation as a website that works from files: target/site
	$(BIN)/python tools/website.py

kernel: $(CORE) $(VENV)/.dev ## compare the simulated TCP with the kernel's, as root: four minutes
	$(BIN)/python python/tests/kernel/compare.py

coverage: $(CORE) $(VENV)/.dev ## count how often confidence intervals cover the true value of a known queue: a quarter of a minute
	$(BIN)/python python/tests/interval_coverage.py

CLUSTER_RUNS ?= 20000
cluster: $(CORE) $(VENV)/.dev ## measure the cost of Dask for CLUSTER_RUNS (20000) short runs, and the gain of a second thread: some minutes
	PYTHONPATH=tools $(BIN)/python python/tests/cluster_benchmark.py $(CLUSTER_RUNS) 3

cluster-costs: $(CORE) ## measure the cost of a run and renew the table of docs/cluster.md: a quarter of a minute
	PYTHONPATH=tools $(BIN)/python python/tests/cluster_benchmark.py docs/cluster.md

COSTS_RUNS ?= 10000
run-costs: $(CORE) ## measure the processor time of short commands, of a report, and of a sweep of COSTS_RUNS (10000) short runs, against targets: two minutes
	$(BIN)/python tools/run_costs.py $(COSTS_RUNS)

bench: $(CORE) ## measure the speed of each algorithm and of the simulator, beside ns-2: ten minutes
	@command -v ns >/dev/null || ( $(call debian,ns2,the simulator is compared with ns-2) ) || true
	cargo bench --locked --quiet -p bentpipe-queue
	$(BIN)/python tools/simulator_speed.py
	cargo bench --locked --quiet -p bentpipe-spacelink

speed: $(CORE) $(VENV)/.dev ## measure the simulator beside ns-2 on an idle machine, and renew the tables of docs/performance-simulator.md: ten minutes
	@command -v ns >/dev/null || { $(call debian,ns2,the simulator is compared with ns-2); }
	$(BIN)/python tools/simulator_speed.py docs=docs

miri: | $(VENV)/.created ## run the tests of two crates under Miri, which a nightly toolchain has: six minutes
	@cargo +nightly miri --version >/dev/null 2>&1 || rustup toolchain install nightly --profile minimal --component miri,rust-src
	cargo +nightly miri test --locked --quiet -p bentpipe-units -p bentpipe-packet --lib

loom: | $(VENV)/.created ## check the one value that two threads share, a context of an AQM in Python, under every order of events: a minute
	cd crates/python/loom && RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(CURDIR)/target/loom cargo test --locked --quiet --release

faults: $(CORE) $(VENV)/.dev ## let every step by which commands write files fail once, or lose power; kill workers, schedulers and both ends of the gateway a hundred times: half an hour
	FAULTS=1 $(BIN)/pytest -q -s python/tests/test_faults.py python/tests/test_killed_clusters.py
	cargo test --locked --quiet -p bentpipe-gatewayd --test namespaces -- --ignored killed_a_hundred_times

soak: $(CORE) ## simulate a day with ten million connections and renew docs/performance-simulator.md: two minutes
	$(BIN)/python tools/soak.py docs

# Callgrind counts the same on an idle and on a busy machine.
instructions: | $(VENV)/.created test-packages ## count the instructions of the engines and renew docs/performance.md: two minutes
	$(BIN)/python tools/instructions.py renew

check-instructions: | $(VENV)/.created
	@$(BIN)/python tools/instructions.py check

# libFuzzer with the installed compiler, as `cargo fuzz` does with a nightly one.
FUZZ ?= operations
FUZZ_FEATURES = $(if $(filter wire,$(FUZZ)),gatewayd) $(if $(filter scenario,$(FUZZ)),sim) $(filter tcp,$(FUZZ))
FUZZ_SECONDS ?= 60
FUZZ_SEED ?= 1
fuzz: ## fuzz the algorithms (FUZZ=operations), the live gateway's parsers (wire), TCP (tcp) or scenarios and their files (scenario) for FUZZ_SECONDS (60) from FUZZ_SEED (1)
	@command -v c++ >/dev/null || { $(call debian,g++,libFuzzer is written in C++); }
	mkdir -p target/fuzz/corpus/$(FUZZ)
	cd fuzz && CARGO_TARGET_DIR=../target/fuzz RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 \
	  $(addprefix -Cllvm-args=-sanitizer-coverage-,level=4 inline-8bit-counters pc-table trace-compares)" \
	  cargo run --locked --quiet --release --target "$$(rustc -vV | sed -n 's/host: //p')" \
	  --bin $(FUZZ) --features "$(FUZZ_FEATURES)" -- ../target/fuzz/corpus/$(FUZZ) $(addprefix ../,$(wildcard fuzz/seeds/$(FUZZ))) \
	  -artifact_prefix=../target/fuzz/ -max_len=4096 -seed=$(FUZZ_SEED) -max_total_time=$(FUZZ_SECONDS)

fuzz-all: ## fuzz all four for FUZZ_SECONDS (60) each
	@for target in operations wire tcp scenario; do $(MAKE) fuzz FUZZ=$$target || exit; done

fmt: $(VENV)/.dev ## format all code
	cargo fmt --all
	$(BIN)/ruff check --fix --quiet $(PYTHON_SOURCES)
	$(BIN)/ruff format $(PYTHON_SOURCES)

docs: $(CORE) ## renew the generated parts of the docs
	$(BIN)/python tools/reference.py docs
	$(BIN)/python tools/architecture_figure.py
	$(BIN)/python tools/man_pages.py
	$(BIN)/bentpipe schema scenario >scenarios/scenario.schema.json
	$(BIN)/bentpipe schema sweep >sweeps/sweep.schema.json

lab-figures: $(CORE) $(VENV)/.dev test-packages ## photograph the lab for docs/lab.md: half a minute
	$(BIN)/python tools/lab_figures.py docs

lab-bench: $(CORE) $(VENV)/.dev test-packages ## measure the lab's page in Chromium: half a minute
	$(BIN)/python tools/lab_bench.py

gallery: $(CORE) ## run the scenarios of the gallery and write docs/gallery.md with its pictures: a quarter of a minute
	$(BIN)/python tools/gallery.py docs

choosing: $(CORE) ## run every algorithm on the 2007 gateway and renew the table of docs/choosing.md: three minutes
	$(BIN)/bentpipe compare scenarios/byun2007-gateway.toml --settings all --out results/choosing --force
	$(BIN)/python tools/reference.py docs results/choosing

reproduction: $(CORE) ## reproduce all papers and renew docs/reproduction.md and its pages: one to three hours
	$(BIN)/bentpipe reproduce all
	$(BIN)/python tools/reproduction_page.py docs results/reproduce

costs: $(CORE) ## measure time per packet and memory per flow of every algorithm, for papers/byun2007 and evaluations: ten minutes
	$(BIN)/python tools/costs.py papers/byun2007/costs.csv python/bentpipe/evaluation/costs.csv

evaluation: $(CORE) ## evaluate every AQM by RFC 7928, congestion control by RFC 9743 and control of media by RFC 8867, and renew docs/evaluation-*.md: an hour
	$(BIN)/bentpipe evaluate aqm --settings all --out results/evaluation-aqm
	$(BIN)/bentpipe evaluate cc --out results/evaluation-cc
	$(BIN)/bentpipe evaluate media --out results/evaluation-media
	$(BIN)/python tools/evaluation_page.py docs results/evaluation-aqm results/evaluation-cc results/evaluation-media

published: $(CORE) ## run a published evaluation's cases, judge ours by its numbers and renew docs/evaluation-published.md: three minutes
	$(BIN)/bentpipe reproduce python/bentpipe/evaluation/published/l4s-tests --out results/published
	$(BIN)/python tools/published_page.py docs results/published

paper-figures: $(CORE) ## draw each named figure of the papers from the runs of `make reproduction` and renew docs/reproduction/figures.md: five minutes without them
	$(BIN)/python tools/paper_figures.py docs results/reproduce

papers-pages: $(CORE) ## rebuild docs/reproduction.md and its pages from the committed numbers, without runs
	$(BIN)/python tools/reproduction_page.py docs

advice: $(CORE) ## advise on the scenarios of six markets, check the answers on other seeds, and renew the table of docs/advise-results.md: ten minutes
	$(BIN)/python tools/advice_table.py docs results/advice

delay: $(CORE) ## sweep the delay between a gateway's two queues and renew docs/delay.md with its figures: five minutes
	$(BIN)/python tools/delay_page.py docs results/reproduce

pfavqred: $(CORE) ## scan the readings of PFAVQRED's weight and renew docs/reproduction/pfavqred.md with its figure: five minutes
	$(BIN)/python tools/pfavqred_page.py docs results/reproduce

backlog: $(CORE) live-programs live-packages ## as root: compare avqred_backlog with other AQMs and renew docs/avqred_backlog.md with its figures: ten minutes
	$(BIN)/python tools/backlog_page.py docs results/backlog

onboard: $(CORE) ## compare AQMs on the ground and on board and renew docs/onboard.md with its figures: three minutes
	$(BIN)/python tools/onboard_page.py docs results/onboard

terminals: $(CORE) ## compare queues of a carrier, of terminals and of subscribers, of terminals for uploads, and renew the tables of docs/terminals.md and docs/return-direction.md: a quarter of an hour
	$(BIN)/python tools/terminals_page.py docs

quic: $(CORE) ## compare QUIC and split TCP under queues, congestion controls and orbits and renew docs/quic.md: ten minutes
	$(BIN)/python tools/quic_page.py docs results/quic

gateway-models: $(CORE) ## compare the fluid equations with the simulator and renew docs/models-gateway.md: three minutes
	$(BIN)/python tools/gateway_models.py docs/models-gateway.md

model-domain: $(CORE) ## measure where the fluid equations agree with the simulator and renew docs/models-domain.md with its figure: five minutes
	$(BIN)/python tools/model_domain.py docs

series: $(CORE) ## measure the series that drive the fluid model of the 2007 gateway
	$(BIN)/bentpipe model capture scenarios/byun2007-gateway.toml --out scenarios/series/byun2007-gateway.json --force

setup: $(CORE) $(VENV)/.dev ## set up everything without running anything

LOCK := --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --no-header --no-annotate --upgrade pyproject.toml --group build

lock: | $(VENV)/.created ## pin the newest Python packages that pyproject.toml allows, and renew the bills of materials
	$(PIP) install --upgrade uv
	$(BIN)/uv pip compile $(LOCK) -o requirements.txt
	$(BIN)/uv pip compile $(LOCK) --group dev -c requirements.txt -o requirements-dev.txt
	@$(MAKE) sbom

clean: ## remove everything that was built; results/ stays
	rm -rf $(VENV) target .hypothesis .mypy_cache .pytest_cache .ruff_cache python/bentpipe/_core*.so python/bentpipe/bin \
	  python/bentpipe/report/templates/vega-lite-*.js
	find python -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null || { $(call debian,python3,Bentpipe needs Python); }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "$(PYTHON) is $$($(PYTHON) --version 2>&1), but Bentpipe needs Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { $(call debian,python3-venv,a virtual environment needs it); }
	@command -v cargo >/dev/null || { echo "Rust is missing (cargo was not found): install Rust 1.88 or newer with rustup" >&2; exit 1; }
	@command -v cc >/dev/null || { $(call debian,gcc libc6-dev,Rust needs a linker); }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.runtime: requirements.txt $(VENV)/.created
	$(PIP) install --require-hashes -r requirements.txt
	@touch $@

$(VENV)/.dev: requirements-dev.txt $(VENV)/.runtime
	$(PIP) install --require-hashes -r requirements-dev.txt
	@touch $@

# One call of cargo builds both; running programs are replaced, not overwritten.
$(LIVE) &: $(RUST_SOURCES) | $(VENV)/.created
	@echo "Building the live gateway (a minute or two the first time)"
	cargo build --locked --release --quiet -p bentpipe-gatewayd -p bentpipe-testbed
	@mkdir -p python/bentpipe/bin
	@for each in $(LIVE); do \
	  cp "target/release/$$(basename $$each)" "$$each.new"; strip "$$each.new" 2>/dev/null || true; mv -f "$$each.new" "$$each"; \
	done

$(CORE): $(VENV)/.runtime pyproject.toml $(RUST_SOURCES) $(wildcard tools/profiles/*)
	@echo "Building the Rust core (a minute or two the first time)"
	@$(PROFILED) PATH="$(CURDIR)/$(BIN):$$PATH" $(PIP) install --no-deps --no-build-isolation --editable .
	$(BIN)/python -m bentpipe.report.scripts
	@touch $@
