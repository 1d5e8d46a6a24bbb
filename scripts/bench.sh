#!/usr/bin/env bash
# Runs the benchmarks behind docs/benchmarks.md and prints its tables: scripts/bench.sh [GROUP...], all groups by default.
#
# On one processor (GOMAXPROCS=1) and in CPU time (user and system) of the process, since a shared machine's clock measures its
# neighbours too. What set-up and loading take is measured apart and taken off. Every number is the median of RUNS.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
RUNS=${RUNS:-3}
export GOMAXPROCS=1

work=$(mktemp -d "${TMPDIR:-/tmp}/bench.XXXXXX")
trap 'rm -rf "$work"' EXIT

# small TITLE PACKAGE PATTERN prints a table of the benchmarks that match.
small() {
	printf '\n## %s\n\n`go test %s -run %s -bench %s -cpu 1`\n\n' "$1" "$2" "'^\$'" "'$3'"
	echo '| benchmark | CPU ns | allocations |'
	echo '| --- | ---: | ---: |'
	$GO test -c -o "$work/test" "$2"
	local bench=("$work/test" -test.run '^$' -test.cpu 1 -test.benchmem) name
	"${bench[@]}" -test.bench "$3" -test.benchtime 1x >"$work/out" || { cat "$work/out" >&2; return 1; }
	awk '/^Benchmark/ { print $1 }' "$work/out" >"$work/names"
	: >"$work/table"
	while read -r name; do
		per_op "^${name//\//\$/^}\$" "${bench[@]}"
		echo "${name#Benchmark} $ns $allocations" >>"$work/table"
		echo "| ${name#Benchmark} | $ns | $allocations |"
	done <"$work/names"
	awk '
		{ name[NR] = $1; ns[$1] = $2 }
		END { for (i = 1; i <= NR; i++) {
			slow = name[i]; if (sub(/extent/, "reference", slow)) ratio(name[i], slow, "reference / extent pool")
			slow = name[i]; if (sub(/walk=false/, "walk=true", slow)) ratio(name[i], slow, "walking / jumping")
		} }
		function ratio(fast, slow, what) {
			if (!(slow in ns)) return
			if (!header++) print "\n| ratio | |\n| --- | ---: |"
			x = ns[slow] / ns[fast]
			printf x < 1000 ? "| %s, %s | %.3g |\n" : "| %s, %s | %.0f |\n", what, fast, x
		}' "$work/table"
}

# per_op PATTERN BENCH... sets ns and allocations of one operation of a benchmark. The number of operations grows until they
# take at least a sixth of a second and about as long as the set-up, so that what set-up varies by is little of it.
per_op() {
	local pattern=$1 n=10 base with more
	shift
	base=$(cpu "$@" -test.bench "$pattern" -test.benchtime 1x)
	while :; do
		with=$(RUNS=1 cpu "$@" -test.bench "$pattern" -test.benchtime "${n}x")
		more=$(awk -v a="$with" -v b="$base" -v n="$n" 'BEGIN {
			t = a - b; want = 0.17 + 0.7 * b
			if (t < want) printf "%.0f", n * (t < want / 10 ? 10 : 1.4 * want / t)
		}')
		[ -n "$more" ] || break
		n=$more
	done
	with=$(cpu "$@" -test.bench "$pattern" -test.benchtime "${n}x")
	ns=$(awk -v a="$with" -v b="$base" -v n="$n" 'BEGIN { x = (a - b) / (n - 1) * 1e9; printf x < 100 ? "%.3g" : "%.0f", x }')
	allocations=$(awk '/^Benchmark/ { for (i = 3; i < NF; i += 2) if ($(i+1) == "allocs/op") print $i }' "$work/stdout")
}

# cpu COMMAND... prints the CPU seconds of a command, the median of RUNS.
cpu() {
	local i
	for ((i = 0; i < RUNS; i++)); do
		{ TIMEFORMAT='%U %S'; time "$@" >"$work/stdout" 2>"$work/stderr" || { cat "$work/stderr" >&2; exit 1; }; } 2>&1 |
			awk '{ print $1 + $2 }'
	done | sort -n | sed -n "$(((RUNS + 1) / 2))p"
}

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3g", a / b }'; }

engine() {
	small 'Engine step: every running request decodes one token' ./model/engine '^BenchmarkDecodeStep$'
	small 'Law: the time of one step' ./model/latency '^Benchmark(DecodeStep|MixedStep)$'
}

router() {
	small 'Router: one decision, all replicas holding something of the prompt' ./policies/routing '^BenchmarkRoute$/^(least-requests|sticky|vllm-dp|smg-cache-aware|dynamo|lmetric|bailian|smetric)$'
	small 'Decision core: one turn, from arrival to the end of its session, gate and router included' ./policies '^BenchmarkTurn$'
}

pool() {
	small 'Block pool: one turn that finds its history, under eviction' ./model/kv '^BenchmarkTurn$'
	small 'Block pool: one turn that finds nothing, under eviction' ./model/kv '^BenchmarkColdTurn$'
}

# jump compares the ways to run one scenario, in one table.
jump() {
	small 'Jumping over decode steps: 2,000 output tokens of one request, run and set-up included' ./sim '^BenchmarkDecode$'
	$GO build -o "$work/sluice" ./cmd/sluice
	printf '\n## Jumping, walking and the reference pool: the scenario `demo`\n\n`GOMAXPROCS=1 sluice run demo --force [--walk] [--reference-pool]`, median of %s\n\n' "$RUNS"
	local run=("$work/sluice" run demo --force --out "$work/demo") fast walk slow
	fast=$(cpu "${run[@]}") walk=$(cpu "${run[@]}" --walk) slow=$(RUNS=1 cpu "${run[@]}" --reference-pool)
	echo '| way | CPU s | ratio |'
	echo '| --- | ---: | ---: |'
	echo "| jumping, extent pool | $fast | 1 |"
	echo "| walking, extent pool | $walk | $(ratio "$walk" "$fast") |"
	echo "| jumping, reference pool (one run) | $slow | $(ratio "$slow" "$fast") |"
}

# run measures whole runs on the recorded sessions beside the repository.
run() {
	[ -d ../shared/traces/kv-cache-tester ] || { echo "SKIPPED: the recorded sessions are not beside the repository" >&2; return; }
	printf '\n## Whole runs on the recorded sessions, results folder included\n\n`go test ./sim -run %s -bench RealTrace -cpu 1 -benchtime 3x -count 5`; medians, and the best of the five\n\n' "'^\$'"
	echo '| run | turns | steps | hit rate | CPU s a run | turns a CPU-second | best | steps a CPU-second |'
	echo '| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |'
	$GO test ./sim -run '^$' -bench RealTrace -cpu 1 -benchtime 3x -count 5 >"$work/out" || { cat "$work/out" >&2; return 1; }
	awk '/^Benchmark/ {
		name = substr($1, 20)
		if (!(name in n)) order[++names] = name
		for (i = 3; i < NF; i += 2) v[name, $(i+1)] = $i
		c = v[name, "cpu-ns/turn"]
		for (i = n[name]++; i > 0 && x[name, i] > c; i--) x[name, i+1] = x[name, i]
		x[name, i+1] = c
	}
	END { for (k = 1; k <= names; k++) {
		r = order[k]; c = x[r, int((n[r]+1)/2)]; turns = v[r, "turns"]; steps = v[r, "steps"]
		printf "| %s | %d | %d | %.2f | %.3g | %.0f | %.0f | %.0f |\n", r, turns, steps, v[r, "hit"], c * turns / 1e9, 1e9 / c, 1e9 / x[r, 1], 1e9 / c * steps / turns
	} }' "$work/out"
}

# load measures reading the recorded sessions.
load() {
	[ -d ../shared/traces/kv-cache-tester ] || { echo "SKIPPED: the recorded sessions are not beside the repository" >&2; return; }
	$GO test -c -o "$work/traces.test" ./traces
	local bench=("$work/traces.test" -test.run '^$' -test.cpu 1 -test.bench '^BenchmarkReadKVCacheTester$') one more
	one=$(cd traces && cpu "${bench[@]}" -test.benchtime 1x)
	more=$(cd traces && cpu "${bench[@]}" -test.benchtime 4x)
	printf '\n## Loading the recorded sessions\n\n`go test ./traces -run %s -bench ReadKVCacheTester -cpu 1`\n\n' "'^\$'"
	echo '| JSON, MB | CPU s | MB a CPU-second |'
	echo '| ---: | ---: | ---: |'
	awk -v one="$one" -v more="$more" '/^Benchmark/ {
		for (i = 3; i < NF; i += 2) v[$(i+1)] = $i
		mb = v["MB/s"] * v["ns/op"] / 1e9; c = (more - one) / 3
		printf "| %.0f | %.3g | %.0f |\n", mb, c, mb / c
	}' "$work/stdout"
}

# gateway measures the gateway: the driver alone, and many sessions through a process of it and beside it through a plain proxy.
# These processes use all processors, and run before others where that is allowed: latencies are times on the clock.
gateway() {
	small 'Gateway: one turn through the driver alone, brought by 64 goroutines' ./gateway/load '^BenchmarkDriver$'
	local procs first=(nice -n -10)
	procs=$(nproc)
	"${first[@]}" true 2>/dev/null || first=()
	"$work/test" -test.run '^$' -test.bench '^BenchmarkDriver$' -test.cpu "$procs" | awk -v procs="$procs" '
		BEGIN { print "\nThe same on the clock, on " procs " processors:\n\n| benchmark | decisions/s |\n| --- | ---: |" }
		/^Benchmark/ { sub(/^Benchmark/, "", $1); sub(/-[0-9]+$/, "", $1); for (i = 3; i < NF; i += 2) if ($(i+1) == "decisions/s") printf "| %s | %.0f |\n", $1, $i }'
	printf '\n## Gateway: what it adds to the turns of many sessions\n\n`go test ./gateway/load -run TestMeasure -v -args -measure`\n\n'
	(unset GOMAXPROCS; cd gateway/load; "${first[@]}" "$work/test" -test.run '^TestMeasure$' -measure) | grep -v '^PASS$'
}

# memory measures the largest memory of runs whose sessions are made as they start: their live sessions are the same, their
# turns are not. SESSIONS says how many they are.
memory() {
	$GO build -o "$work/sluice" ./cmd/sluice
	printf '\n## Memory of long runs, results folder included\n\n`sluice run benchmarks/memory.yaml --set workload.generate.sessions=N`, one run each\n\n'
	echo '| sessions | turns | peak memory, MiB | CPU s | CPU microseconds a turn |'
	echo '| ---: | ---: | ---: | ---: | ---: |'
	local sessions
	for sessions in ${SESSIONS:-15500 155000 1550000}; do
		RUNS=1 cpu peak "$work/sluice" run benchmarks/memory.yaml --set "workload.generate.sessions=$sessions" --force --out "$work/memory" >"$work/cpu"
		awk -v sessions="$sessions" -v kib="$(cat "$work/peak")" -v cpu="$(cat "$work/cpu")" '/"read_turns"/ { turns = $2 + 0 }
			END { printf "| %d | %d | %.0f | %.3g | %.3g |\n", sessions, turns, kib / 1024, cpu, cpu / turns * 1e6 }' "$work/memory/summary.json"
		rm -rf "$work/memory"
	done
}

# peak COMMAND... runs a command and leaves the KiB of its largest resident memory in the file of that name.
peak() {
	"$@" &
	local pid=$! key value most=0
	while kill -0 "$pid" 2>/dev/null; do
		while read -r key value _; do
			if [ "$key" = VmHWM: ]; then most=$value; fi
		done <"/proc/$pid/status"
		sleep 0.1
	done
	echo "$most" >"$work/peak"
	wait "$pid"
}

# fifty measures the scenario of other tools' reports.
fifty() {
	[ -d ../shared/traces/kv-cache-tester ] || { echo "SKIPPED: the recorded sessions are not beside the repository" >&2; return; }
	metrics ./sim '^BenchmarkFiftySessions$' 3x 'The first 50 recorded sessions without subagents, one every 10 s on 8 replicas, results folder included' \
		sessions turns load-cpu-s cpu-s/run peak-MiB
}

# scale measures what a turn costs with longer contexts and with more replicas.
scale() {
	metrics ./sim '^BenchmarkContext$' 20x 'Cost of a turn by its context' cpu-ns/turn steps/turn events/turn decisions/turn
	metrics ./sim '^BenchmarkReplicas$' 3s 'Cost of a turn by the number of replicas, smetric without its decode mask' cpu-ns/turn steps/turn events/turn decisions/turn
}

# metrics PACKAGE PATTERN TIME TITLE METRIC... prints a table of metrics that benchmarks report themselves, CPU time among them.
metrics() {
	local package=$1 pattern=$2 time=$3 title=$4
	shift 4
	printf '\n## %s\n\n`go test %s -run %s -bench %s -cpu 1 -benchtime %s`\n\n' "$title" "$package" "'^\$'" "'$pattern'" "$time"
	echo "| benchmark |$(printf ' %s |' "$@")"
	echo "| --- |$(printf ' ---: |%.0s' "$@")"
	$GO test "$package" -run '^$' -bench "$pattern" -cpu 1 -benchtime "$time" >"$work/out" || { cat "$work/out" >&2; return 1; }
	awk -v metrics="$*" '/^Benchmark/ {
		n = split(metrics, name, " ")
		for (i = 3; i < NF; i += 2) v[$(i+1)] = $i
		printf "| %s |", substr($1, 10)
		for (i = 1; i <= n; i++) printf " %s |", v[name[i]]
		print ""
	}' "$work/out"
}

# profile says where the time of three whole runs goes.
profile() {
	[ -d ../shared/traces/kv-cache-tester ] || { echo "SKIPPED: the recorded sessions are not beside the repository" >&2; return; }
	local runs=('replicas=8/rate=0.02/sticky' 'replicas=8/rate=0.1/round-robin' 'replicas=8/rate=0.05/lmetric') i part
	# Preemption of the running goroutine would take the blame for what the machine's other processes do.
	export GODEBUG=asyncpreemptoff=1
	$GO test -c -o "$work/sim.test" ./sim
	for i in 0 1 2; do
		(cd sim && "$work/sim.test" -test.run '^$' -test.cpu 1 -test.bench "RealTrace\$/^${runs[i]//\//\$/^}\$" -test.benchtime 8x -test.cpuprofile "$work/$i.prof") >/dev/null
	done
	printf '\n## Where the time goes\n\n`GODEBUG=asyncpreemptoff=1 go test ./sim -run %s -bench RealTrace/RUN -cpu 1 -benchtime 8x -cpuprofile FILE`; percent of the samples below the benchmark, callees included, so parts overlap\n\n' "'^\$'"
	echo "| part | ${runs[0]} | ${runs[1]} | ${runs[2]} |"
	echo '| --- | ---: | ---: | ---: |'
	while IFS=: read -r name part; do
		printf '| %s |' "$name"
		for i in 0 1 2; do
			awk -v all="$(sampled "$i" .)" -v x="$(sampled "$i" "$part")" 'BEGIN { printf " %.0f |", 100 * x / all }'
		done
		echo
	done <<-'END'
		engine, with its pool:sluice/model/engine\.
		block pool:sluice/model/kv\.
		law:sluice/model/latency\.
		decision core and policies:sluice/policies
		agenda:sim\.\(\*(agenda|ends)\)
		catching up with decode runs:sim\.\(\*run\)\.(catchUp|look)
		of these step by step, for KV events:sim\.\(\*run\)\.creep
		scrapes:sim\.\(\*run\)\.scrape
		results, with Parquet:sluice/results\.|zstd
		Parquet and zstd:results\.\(\*(parquetFile|column)\)|zstd
		summary:results\.\(\*Collector\)\.summary
	END
}

# sampled RUN PART prints the milliseconds of a profile below the benchmark that have PART on the stack.
sampled() {
	$GO tool pprof -traces -show_from 'BenchmarkRealTrace.func1' -focus "$2" "$work/sim.test" "$work/$1.prof" 2>/dev/null |
		awk '/^ +[0-9.]+m?s / { m = $1 ~ /ms$/ ? 1 : 1000; sub(/m?s$/, "", $1); s += $1 * m } END { print s + 0 }'
}

echo "$(date -u +%F), $($GO env GOVERSION) $($GO env GOOS)/$($GO env GOARCH), $(nproc) cores of $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n1), load $(cut -d' ' -f1 /proc/loadavg)"
for group in "${@:-engine router pool jump run fifty load scale memory profile gateway}"; do
	for g in $group; do $g; done
done
