# The two commands of the README are `make run` and `make test`; `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: run test bench soak dist vuln lint fmt help

run: ## build, prepare a demo organization on the first start, start Caddy on Caddyfile.example
	@scripts/run.sh

test: ## everything CI runs: lint, race detector, PostgreSQL and Redis, the built binary, official clients
	@scripts/test.sh

bench: ## the figures: ratios to the reverse_proxy of stock Caddy, interleaved
	@scripts/bench.sh

soak: ## the long forms of the tests, the attacks on the real binary, every fuzz target (FUZZTIME=5m each)
	@scripts/soak.sh

dist: ## the packages of a release of the present commit, in dist/release: archives, .deb, image, SBOMs, checksums
	@scripts/dist.sh

vuln: ## known vulnerabilities in what we depend on (needs the internet)
	@scripts/vuln.sh

lint: ## formatting, vet and golangci-lint
	@scripts/lint.sh

fmt: ## format all Go files as lint wants them
	@scripts/fmt.sh

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
