package sim

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/traces"
)

// TestOneSessionByHand works two turns of one session out from the law. The replica schedules asynchronously, but a
// request that finds it idle starts at once.
func TestOneSessionByHand(t *testing.T) {
	c := world(t, chain([]call{{prompt: 1000, output: 3}, {prompt: 1100, output: 1, gapS: 2}}), "none", "round-robin")
	out, totals := simulate(t, c)
	law := newLaw(t)
	prefill := law.Picoseconds(&latency.Batch{Prefill: []latency.Chunk{{Tokens: 1000}}, Sampled: 1})
	a, b, _ := law.DecodeCoefficients(1)
	first := out.find(t, 0, 0, 1)
	end := prefill + 2*a + b*(1001+1002)
	if first.ArrivalPS != 0 || first.FirstTokenPS != prefill || first.DonePS != end || first.ITLMaxPS != a+b*1002 {
		t.Errorf("first turn: %+v, expected the first token at %d and the end at %d", first, prefill, end)
	}
	// 1000 prompt tokens and the first two of three outputs are computed: 62 full blocks.
	second := out.find(t, 0, 0, 2)
	again := law.Picoseconds(&latency.Batch{Prefill: []latency.Chunk{{Tokens: 1100 - 62*16, Past: 62 * 16}}, Sampled: 1})
	if second.ArrivalPS != end+2e12 || second.HitGPU != 62*16 || second.DonePS != end+2e12+again || second.CeilingTokens != 62*16 {
		t.Errorf("second turn: %+v, expected arrival at %d, %d hit tokens and the end at %d", second, end+int64(2e12), 62*16, end+2e12+again)
	}
	if second.ToolGapPS != 2e12 || first.ToolGapPS != results.Missing || second.ITLMaxPS != results.Missing {
		t.Errorf("gaps: %d, %d; longest gap between tokens of one token: %d", first.ToolGapPS, second.ToolGapPS, second.ITLMaxPS)
	}
	if totals.Steps != 4 || totals.BusyPS[0] != end+again || totals.EndPS != second.DonePS || totals.LeasesFinished != 2 {
		t.Errorf("totals: %+v", totals)
	}
}

// TestArrivalDuringAStep holds an arrival to vLLM's order: synchronous scheduling takes it at the end of the step in
// progress, asynchronous scheduling one step later, since the next step is queued already.
func TestArrivalDuringAStep(t *testing.T) {
	law := newLaw(t)
	for _, async := range []bool{false, true} {
		c := world(t, chain([]call{{prompt: 1000, output: 50}}, []call{{prompt: 160, output: 1, gapS: 0.001}}), "none", "round-robin")
		c.Engine.Async = async
		out, _ := simulate(t, c)
		first := law.Picoseconds(&latency.Batch{Prefill: []latency.Chunk{{Tokens: 1000}}, Sampled: 1})
		a, b, _ := law.DecodeCoefficients(1)
		mixed := func(context int64) int64 {
			return law.Picoseconds(&latency.Batch{DecodeRows: 1, DecodeContext: context, DecodeWindowed: context, Prefill: []latency.Chunk{{Tokens: 160}}, Sampled: 2})
		}
		want := first + mixed(1001)
		if async {
			want = first + a + b*1001 + mixed(1002)
		}
		if got := out.find(t, 1, 0, 1).FirstTokenPS; got != want {
			t.Errorf("async %v: first token at %d ps, expected %d", async, got, want)
		}
	}
}

// forest makes a trace with subagents: turn 2 of the root waits for both threads that turn 1 spawned.
func forest() *traces.Trace {
	tr := chain([]call{{prompt: 400, output: 10}})
	s := &tr.Sessions[0]
	s.Threads = 3
	second := traces.Turn{Number: 2, Prompt: prefix.Prefix{Stream: 0, Tokens: 600}, OutputTokens: 5, DurationNS: traces.Unknown}
	for th := int32(1); th <= 2; th++ {
		sub := traces.Turn{Thread: th, Number: 1, Prompt: prefix.Prefix{Stream: tr.Tree.Root(), Tokens: 100 * th}, OutputTokens: 20 * th, DurationNS: traces.Unknown}
		sub.DepLo = int32(len(s.Deps))
		s.Deps = append(s.Deps, traces.Dep{Turn: 0, DelayNS: 1e8})
		sub.DepHi = int32(len(s.Deps))
		s.Turns = append(s.Turns, sub)
	}
	second.DepLo = int32(len(s.Deps))
	s.Deps = append(s.Deps, traces.Dep{Turn: 0}, traces.Dep{Turn: 1, DelayNS: 5e8}, traces.Dep{Turn: 2, DelayNS: 5e8})
	second.DepHi = int32(len(s.Deps))
	s.Turns = append(s.Turns, second)
	return tr
}

func TestSubagentsRunInParallel(t *testing.T) {
	out, _ := simulate(t, world(t, forest(), "none", "sticky"))
	root, one, two, next := out.find(t, 0, 0, 1), out.find(t, 0, 1, 1), out.find(t, 0, 2, 1), out.find(t, 0, 0, 2)
	if one.ArrivalPS != root.DonePS+1e11 || two.ArrivalPS != one.ArrivalPS {
		t.Errorf("subagents arrive at %d and %d, expected %d", one.ArrivalPS, two.ArrivalPS, root.DonePS+1e11)
	}
	if two.DonePS <= one.DonePS || next.ArrivalPS != two.DonePS+5e11 {
		t.Errorf("the parent goes on at %d, expected half a second after %d", next.ArrivalPS, two.DonePS)
	}
}

// TestExtentEqualsReference runs the same tight world on both pools and expects the same rows, bit for bit.
func TestExtentEqualsReference(t *testing.T) {
	tr := generated(t, "bailian-agentic", map[string]float64{"sessions": 150})
	tr = traces.DropOverContext(tr, 40_000)
	for _, router := range []string{"round-robin", "sticky", "lmetric"} {
		c := world(t, tr, "none", router)
		c.Replicas, c.KVBlocks = 3, 3000
		c.Arrivals = Arrivals{Process: Poisson, RatePerS: 2, Shuffle: true}
		fast, fastTotals := simulate(t, c)
		c.ReferencePool = true
		slow, slowTotals := simulate(t, c)
		if !reflect.DeepEqual(fast, slow) || !reflect.DeepEqual(fastTotals, slowTotals) {
			t.Errorf("%s: the extent pool and the reference pool give different rows", router)
		}
		waste := int64(0)
		for _, w := range fastTotals.WasteTokens {
			waste += w
		}
		if waste == 0 {
			t.Errorf("%s: nothing was ever computed again; the world is not tight enough to test anything", router)
		}
	}
}

func TestSameRowsWhateverGOMAXPROCS(t *testing.T) {
	tr := generated(t, "claude-code", map[string]float64{"sessions": 20})
	tr = traces.DropOverContext(tr, 100_000)
	var all []*rows
	for _, n := range []int{1, 2} {
		old := runtime.GOMAXPROCS(n)
		c := world(t, tr, "session", "lmetric")
		c.Replicas, c.KVBlocks = 2, 8000
		c.Arrivals = Arrivals{Process: Poisson, RatePerS: 1, Shuffle: true}
		out, _ := simulate(t, c)
		all = append(all, out)
		runtime.GOMAXPROCS(old)
	}
	if !reflect.DeepEqual(all[0], all[1]) {
		t.Error("rows differ between GOMAXPROCS 1 and 2")
	}
}

// TestConservation runs random worlds with impatient clients, gates and tight KV, with all invariants checked, and adds
// the rows up.
func TestConservation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := randomWorld(t, rt)
		if c == nil {
			return
		}
		if out, totals := simulate(rt, c); !out.forever {
			conserved(rt, c, out, totals)
		}
	})
}

// randomWorld draws a small cluster with impatient clients, a gate, a router and tight KV; nil when no turn is left.
func randomWorld(t *testing.T, rt *rapid.T) *Config {
	gates := []string{"none", "max-sessions", "session", "llm-d-saturation"}
	routers := []string{"round-robin", "least-requests", "sticky", "vllm-dp", "lmetric", "smetric", "oracle"}
	preset := rapid.SampledFrom([]string{"bailian-agentic", "claude-code", "steady"}).Draw(rt, "preset")
	tr, err := traces.Generate(preset, rapid.Uint64Range(0, 1<<40).Draw(rt, "seed"), traces.Params{"sessions": traces.Num(float64(rapid.IntRange(1, 20).Draw(rt, "sessions")))})
	if err != nil {
		rt.Fatal(err)
	}
	tr = traces.DropOverContext(tr, 25_000)
	if len(tr.Sessions) == 0 {
		return nil
	}
	c := world(t, tr, rapid.SampledFrom(gates).Draw(rt, "gate"), rapid.SampledFrom(routers).Draw(rt, "router"))
	c.Replicas = rapid.IntRange(1, 3).Draw(rt, "replicas")
	c.KVBlocks = int32(rapid.IntRange(1563, 5000).Draw(rt, "blocks"))
	c.Engine.Async = rapid.Bool().Draw(rt, "async")
	c.Engine.SkipBlocked = rapid.IntRange(0, 3).Draw(rt, "skip blocked") == 0
	c.Open = rapid.IntRange(0, 3).Draw(rt, "open") == 0
	c.Engine.MaxBatchedTokens = int32(rapid.SampledFrom([]int{512, 8192}).Draw(rt, "budget"))
	c.Engine.SlidingWindowTokens = int32(rapid.SampledFrom([]int{0, 4096}).Draw(rt, "window"))
	c.Arrivals = Arrivals{Process: Process(rapid.IntRange(0, 1).Draw(rt, "process")), RatePerS: rapid.Float64Range(0.1, 50).Draw(rt, "rate")}
	switch rapid.IntRange(0, 2).Draw(rt, "arrivals") {
	case 0:
		c.Arrivals = Arrivals{Process: Concurrent, Sessions: rapid.IntRange(1, 8).Draw(rt, "at once"), Shuffle: true}
	case 1:
		c.Arrivals = Arrivals{Process: Burst}
	}
	c.Clients = Clients{
		TimeoutPS: int64(rapid.SampledFrom([]float64{0, 3e11, 3e12, 6e13}).Draw(rt, "timeout")), Retries: int32(rapid.IntRange(0, 2).Draw(rt, "retries")),
		RetryDelayPS: int64(rapid.SampledFrom([]float64{0, 1e11}).Draw(rt, "retry delay")), CancelUpstream: rapid.Bool().Draw(rt, "cancel"),
	}
	if c.Gate.Name == "llm-d-saturation" && rapid.Bool().Draw(rt, "by count") {
		c.GateParams = c.Gate.Resolve(policies.Params{"detector": {Text: "concurrency"}, "max_requests": {Number: 2}, "ordering": {Text: "slo-deadline"}})
	}
	c.ClassShares = rapid.SampledFrom([][]float64{nil, {1}, {0.5, 0.5}, {0.2, 0, 0.8}}).Draw(rt, "class shares")
	randomFaults(rt, c)
	c.Signals.KVEventDelayPS = int64(rapid.SampledFrom([]float64{0, 2e11}).Draw(rt, "kv delay"))
	if rapid.IntRange(0, 2).Draw(rt, "pins") == 0 {
		kinds := []string{"ttl", "continuum", "belady"}
		if c.Gate.Signals(c.GateParams)&(policies.NeedsSamples|policies.NeedsProbes) != 0 {
			kinds = kinds[:2] // see TestPinsThatNeverEndHoldAGate
		}
		withRetention(t, c, rapid.SampledFrom(kinds).Draw(rt, "retention"), policies.Params{
			"ttl_s": {Number: rapid.SampledFrom([]float64{0.5, 5, 500}).Draw(rt, "ttl")},
		})
	}
	if rapid.Bool().Draw(rt, "cpu tier") {
		c.CPUTier = cpuTier(t, c, int32(rapid.IntRange(300, 20000).Draw(rt, "cpu blocks")))
		c.CPUTier.ARC = rapid.Bool().Draw(rt, "arc")
		c.CPUTier.BlocksPerChunk = int32(rapid.SampledFrom([]int{1, 1, 4}).Draw(rt, "blocks per chunk"))
		c.CPUTier.PromptOnly = rapid.Bool().Draw(rt, "prompt only")
		c.CPUTier.StoreThreshold = int32(rapid.SampledFrom([]int{0, 0, 2}).Draw(rt, "store threshold"))
		c.CPUTier.Overlap = latency.Overlap(rapid.IntRange(0, 2).Draw(rt, "overlap"))
	}
	return c
}

// conserved adds the rows of a run up.
func conserved(t *rapid.T, c *Config, out *rows, totals *results.Totals) {
	final := map[[3]int32]int{}
	var computed, hit, prompt int64
	for i := range out.turns {
		x := &out.turns[i]
		if x.Final {
			final[[3]int32{x.Session, x.Thread, x.Number}]++
		}
		computed += int64(x.ComputedTokens)
		if x.ScheduledPS != results.Missing {
			hit += int64(x.HitGPU) + int64(x.HitCPU)
			prompt += int64(x.PromptTokens)
		}
		if x.HitGPU+x.HitCPU > x.CeilingTokens {
			t.Fatalf("turn %+v hits more than its ceiling", x)
		}
		if x.Outcome == results.Finished {
			if x.FirstTokenPS > x.DonePS || x.ScheduledPS > x.FirstTokenPS || x.SentPS > x.ScheduledPS || x.AdmittedPS > x.SentPS || x.ArrivalPS > x.AdmittedPS {
				t.Fatalf("times of %+v are out of order", x)
			}
			if x.Preemptions == 0 && x.ComputedTokens+x.HitGPU+x.HitCPU != x.PromptTokens {
				t.Fatalf("turn %+v: computed and hit tokens are not the prompt", x)
			}
		}
	}
	if len(final) != c.Trace.Turns() {
		t.Fatalf("%d of %d turns have a final row", len(final), c.Trace.Turns())
	}
	for k, n := range final {
		if n != 1 {
			t.Fatalf("turn %v has %d final rows", k, n)
		}
	}
	if len(out.sessions) != len(c.Trace.Sessions) {
		t.Fatalf("%d rows of %d sessions", len(out.sessions), len(c.Trace.Sessions))
	}
	var s results.Sample
	for _, x := range out.samples {
		s.ComputedTokens += x.ComputedTokens
		s.HitTokens += x.HitTokens
		s.PromptTokens += x.PromptTokens
		s.BusyPS += x.BusyPS
	}
	busy := int64(0)
	for _, b := range totals.BusyPS {
		busy += b
	}
	if s.ComputedTokens != computed || s.HitTokens != hit || s.PromptTokens != prompt || s.BusyPS != busy || totals.PrefillBusyPS+totals.DecodeBusyPS+totals.TransferBusyPS < busy {
		t.Fatalf("samples %+v do not add up to the rows (computed %d, hit %d, prompt %d) and totals (busy %d)", s, computed, hit, prompt, busy)
	}
	if totals.LeasesLive != totals.LeasesLost-totals.LeasesAbandoned {
		t.Fatalf("%d leases live, %d lost, %d abandoned", totals.LeasesLive, totals.LeasesLost, totals.LeasesAbandoned)
	}
}

// TestTurnsWaitForTheirDependencies holds arrivals in a busy world to what the trace says.
func TestTurnsWaitForTheirDependencies(t *testing.T) {
	tr := generated(t, "claude-code", map[string]float64{"sessions": 15, "subagents": 1})
	tr = traces.DropOverContext(tr, 100_000)
	c := world(t, tr, "none", "least-requests")
	c.Replicas, c.KVBlocks = 2, 7000
	out, _ := simulate(t, c)
	at := map[[2]int32]results.Turn{}
	index := map[[3]int32]int32{}
	for i := range tr.Sessions {
		for j := range tr.Sessions[i].Turns {
			u := &tr.Sessions[i].Turns[j]
			index[[3]int32{int32(i), u.Thread, u.Number}] = int32(j)
		}
	}
	for _, x := range out.turns {
		at[[2]int32{x.Session, index[[3]int32{x.Session, x.Thread, x.Number}]}] = x
	}
	threads := 0
	for i := range tr.Sessions {
		s := &tr.Sessions[i]
		threads += int(s.Threads) - 1
		for j := range s.Turns {
			u := &s.Turns[j]
			want := int64(0)
			for _, d := range s.Deps[u.DepLo:u.DepHi] {
				from := at[[2]int32{int32(i), d.Turn}]
				when := from.DonePS
				if d.On == traces.OnDispatch {
					when = from.SentPS
				}
				want = max(want, when+d.DelayNS*1000)
			}
			if got := at[[2]int32{int32(i), int32(j)}].ArrivalPS; u.DepHi > u.DepLo && got != want {
				t.Fatalf("session %d turn index %d arrives at %d, expected %d", i, j, got, want)
			}
		}
	}
	if threads == 0 {
		t.Error("the trace has no subagent; the test does not test joins")
	}
}

// TestTurnsThatOvertakeAtTheGate lets the turns of a session arrive at their recorded times, some while the one before waits
// at the gate: the gate keeps the newest of a thread, and every turn ends all the same.
func TestTurnsThatOvertakeAtTheGate(t *testing.T) {
	tr := generated(t, "bailian-agentic", map[string]float64{"sessions": 6, "single_turn_share": 0})
	c := world(t, traces.DropOverContext(tr, 25_000), "max-requests", "round-robin")
	c.GateParams = c.Gate.Resolve(policies.Params{"max_requests": {Number: 1}})
	c.KVBlocks, c.Open = 1700, true
	out, _ := simulate(t, c)
	lost := 0
	for i := range out.turns {
		if x := &out.turns[i]; x.Outcome == results.Superseded && x.Final {
			lost++
		}
	}
	incomplete := 0
	for i := range out.sessions {
		if !out.sessions[i].Complete {
			incomplete++
		}
	}
	if lost == 0 || incomplete == 0 {
		t.Errorf("%d turns were overtaken, in %d sessions", lost, incomplete)
	}
}

func TestInputErrors(t *testing.T) {
	long := world(t, chain([]call{{prompt: 5000, output: 10}}), "none", "round-robin")
	long.KVBlocks = 300
	empty := world(t, chain([]call{{prompt: 10, output: 1}}), "none", "round-robin")
	empty.Trace = &traces.Trace{Tree: &prefix.Tree{}}
	recorded := world(t, chain([]call{{prompt: 10, output: 1}}), "none", "round-robin")
	recorded.Arrivals = Arrivals{Process: Recorded, Speedup: 1}
	for want, c := range map[string]*Config{"do not fit": long, "no session": empty, "recorded": recorded} {
		_, err := Run(context.Background(), c, nothing{})
		var in *InputError
		if !errors.As(err, &in) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}

func TestCancelledRun(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := world(t, chain([]call{{prompt: 100, output: 100}}), "none", "round-robin")
	if _, err := Run(ctx, c, nothing{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, expected the context's", err)
	}
}
