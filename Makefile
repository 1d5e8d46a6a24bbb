GO ?= go
FUZZTIME ?= 20s
STATICCHECK = $(GO) tool -modfile=tools/go.mod staticcheck

# Packages that start goroutines.
RACE_PACKAGES = ./cmd/... ./figures/... ./gateway/... ./results/... ./traces/...

.PHONY: build demo test lint race soak vuln e2e fuzz bench accuracy routers parity determinism clean

# The program.
build:
	$(GO) build -o bin/sluice ./cmd/sluice

# The main job on the embedded scenario: five routers on the same generated sessions, no file needed.
demo: build
	./bin/sluice compare demo --vary policy.router=round-robin,least-requests,sticky,lmetric,smetric --bounds --force --out build/demo

# Optional data beside the repository. Tests read the variable, so that their cached results end when the folder comes or goes.
export SLUICE_SHARED = $(abspath $(wildcard ../shared))

# What a newcomer should run.
test: lint
	$(GO) test ./...

lint:
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "not formatted (run gofmt -w):"; echo "$$files"; exit 1; fi
	$(GO) vet ./...
	$(STATICCHECK) ./...

# Of a damaged file parquet-go makes slices of impossible lengths. Readers recover from the panic; the pointer checks that come
# with -race would end the process instead, so they are off in that module.
race:
	$(GO) test -race -gcflags='github.com/parquet-go/parquet-go/...=-d=checkptr=0' $(RACE_PACKAGES)

# Two minutes of gateways with clients that come and go and engines that die, hang and lie.
soak:
	$(GO) test ./gateway/load -run '^TestSoak$$' -count=1 -v -parallel 5 -args -soak 2m

# Known vulnerabilities that the program can reach, without a database on the network; see the script.
vuln:
	GO="$(GO)" ./scripts/vuln.sh

# The official npm clients against the fake engine and the gateway. Needs node 20 or later and, the first time, a package registry.
e2e:
	SLUICE_E2E=1 $(GO) test -count=1 -v ./e2e

# Every fuzz target for FUZZTIME.
fuzz:
	@set -e; for file in $$(grep -rlE '^func Fuzz' --include='*_test.go' .); do \
		for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]+).*/\1/p' "$$file"); do \
			$(GO) test "$$(dirname "$$file")" -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME); \
		done; \
	done

# The tables of docs/benchmarks.md, ratios included, in CPU time. `./scripts/bench.sh run load` prints some of them.
bench:
	GO="$(GO)" ./scripts/bench.sh

# Measured vLLM servers through the simulator; prints the tables of docs/accuracy.md and writes them there.
accuracy:
	$(GO) test ./sim -run '^TestAccuracy' -count=1 -v -accuracy

# Every router with the best of its grid on the scenario `routers`; prints the section of docs/policies.md and writes it there.
routers: build
	$(GO) test ./studies -run '^TestRouters$$' -count=1 -v -routers ../bin/sluice

# A gateway with fake engines, and the offline run of what its recorder wrote: every placement compared.
parity:
	$(GO) test ./gateway/parity -run '^TestParity$$' -count=1 -v -args -parity

# The same results on other processors, with more of them, walking and with the reference pool; see the script.
determinism:
	GO="$(GO)" ./scripts/determinism.sh

clean:
	rm -rf bin build
