# The commands of this repository. `make demo` and `make test` are all that a fresh machine needs.
SHELL := /bin/bash
CARGO ?= cargo
export CARGO_TERM_COLOR ?= auto

# One profile, and always the whole workspace: cargo chooses the features of shared dependencies by what
# is built together, and another choice would compile RocksDB and DataFusion again.
PROFILE := --release --workspace
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
DORMOUSE := $(TARGET_DIR)/release/dormouse

# Property tests draw the same cases in every run; set another seed to look further.
export PROPTEST_RNG_SEED ?= 20
.PHONY: help deps build demo test test-rust test-drivers test-clients differential lint fmt check bench shows sim

help: ## Lists the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s $$'\t'

deps: ## Installs what the build and the tests need, where it is missing
	@scripts/install-deps

build: deps ## Builds the one binary
	$(CARGO) build $(PROFILE) --bins

demo: build ## Builds, starts the whole system and prints how to connect
	@$(DORMOUSE) demo

test: deps test-rust test-drivers test-clients ## Everything a change must pass

test-rust: ## Unit and integration tests, with real processes
	$(CARGO) test $(PROFILE) --bins --lib --tests

test-drivers: ## Real PostgreSQL drivers in four languages, and one hundred tenants
	@DORMOUSE=$(DORMOUSE) tests/drivers/run

test-clients: ## ORMs with their migrations, psql, pg_dump, catalog queries of administration tools
	@DORMOUSE=$(DORMOUSE) tests/clients/run

differential: deps ## Generated queries to Dormouse and PostgreSQL, compared: make differential SEEDS=0..5000
	DORMOUSE_DIFFERENTIAL=$(if $(filter command line environment,$(origin SEEDS)),$(SEEDS),0..5000) \
	  $(CARGO) test $(PROFILE) --test it differential -- --nocapture

lint: ## Format, lints, documentation links
	$(CARGO) fmt --check
	scripts/clippy
	scripts/check-architecture

fmt: ## Formats
	$(CARGO) fmt

check: lint ## Format, lints and the tests that link neither RocksDB nor DataFusion
	$(CARGO) test -p kv-api -p sql-types -p process -p kv-client --lib

bench: build ## Writes docs/benchmarks.md, side by side with PostgreSQL 15
	@DORMOUSE=$(DORMOUSE) scripts/bench/run

shows: build ## Kills, cuts off, adds and drains nodes under load (root, about fifteen minutes)
	@for show in kill-nodes join-drain split-merge partition; do DORMOUSE=$(DORMOUSE) scripts/shows/$$show || exit 1; done

SEEDS ?= 1..500
sim: build ## Simulated clusters with faults: make sim SEEDS=1..500, one again with TRACE=1; WORLD=transactions for real nodes
	@SEEDS=$(SEEDS) TRACE=$(TRACE) BUG=$(BUG) SCENARIO=$(SCENARIO) ALL=$(ALL) WHOLE=$(WHOLE) MERGES=$(MERGES) TRANSFERS=$(TRANSFERS) $(TARGET_DIR)/release/sim $(if $(WORLD),--world $(WORLD))
