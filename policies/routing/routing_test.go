package routing

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/admission"
	"github.com/sluice-sim/sluice/prefix"
)

// world drives a Controller whose leases go where the test says, so that routers can be asked about a known view.
type world struct {
	t       *testing.T
	c       *policies.Controller
	tree    *prefix.Tree
	next    policies.AttemptID
	to      policies.ReplicaID
	now     policies.Time
	watcher policies.Router // also observes
}

func (w *world) Observe(now policies.Time, v *policies.View, f *policies.Fact) {
	if w.watcher != nil {
		w.watcher.Observe(now, v, f)
	}
}
func (w *world) Route(policies.Time, *policies.View, *policies.Turn) (policies.ReplicaID, policies.Reason) {
	return w.to, policies.NoReason
}
func (w *world) Peek(policies.Time, *policies.View, *policies.Turn) policies.ReplicaID { return w.to }

func newWorld(t *testing.T, replicas int, watcher policies.Router, capabilities ...policies.Capability) *world {
	w := &world{t: t, tree: &prefix.Tree{}, watcher: watcher}
	w.tree.Root()
	w.c = policies.NewController(policies.ControllerConfig{
		Tree: w.tree, Replicas: replicas, Capabilities: capabilities, Gate: admission.None().NewGate(policies.Env{}, nil), Router: w,
	})
	for r := range replicas {
		w.step(policies.Fact{Kind: policies.ReplicaUp, Replica: policies.ReplicaID(r)})
	}
	return w
}

func (w *world) step(f policies.Fact) { w.c.Step(w.now, []policies.Fact{f}, nil) }

// lease dispatches a turn of a new stream and thread to r and returns its attempt.
func (w *world) lease(r policies.ReplicaID, prompt int32) policies.AttemptID {
	w.next++
	w.to = r
	w.step(policies.Fact{Kind: policies.TurnArrived, Turn: policies.Turn{
		Attempt: w.next, Thread: policies.ThreadID(w.next), Session: policies.SessionID(w.next), Number: 1,
		Prompt: prefix.Prefix{Stream: w.tree.Root(), Tokens: prompt},
	}})
	return w.next
}

func (w *world) decode(r policies.ReplicaID, tokens int32) policies.AttemptID {
	a := w.lease(r, tokens-1)
	w.step(policies.Fact{Kind: policies.FirstToken, Attempt: a})
	return a
}

func (w *world) sample(r policies.ReplicaID, running, waiting int32) {
	w.step(policies.Fact{Kind: policies.MetricsSampled, Replica: r, Sample: policies.Sample{
		At: w.now, Has: policies.HasRunning | policies.HasWaiting, Running: running, Waiting: waiting,
	}})
}

func (w *world) store(r policies.ReplicaID, hi int32) {
	w.step(policies.Fact{Kind: policies.BlocksStored, Replica: r, Stream: 0, Lo: 0, Hi: hi, BlockTokens: 16})
}

func build(d policies.Declaration, p policies.Params, capability policies.Capability) policies.Router {
	if err := d.Check(p); err != nil {
		panic(err)
	}
	return d.NewRouter(policies.Env{Seed: 7, Capability: capability}, d.Resolve(p))
}

func text(s string) policies.Value    { return policies.Value{Text: s} }
func number(x float64) policies.Value { return policies.Value{Number: x} }
func boolean(b bool) policies.Value   { return policies.Value{Bool: b} }
func (w *world) view() *policies.View { return w.c.View() }
func (w *world) peek(r policies.Router, t *policies.Turn) policies.ReplicaID {
	return r.Peek(w.now, w.view(), t)
}

// The four instances of the specification's golden vectors (spec: policies 6).
var (
	goldenQ      = []int32{0, 4000, 12000, 0}
	goldenC      = []int32{2000, 30000, 38000, 0}
	goldenR      = []int32{3, 4, 5, 0}
	goldenW      = []int32{0, 1, 4, 0}
	goldenBlocks = []int32{200, 2000, 5000, 0}
)

const goldenL = 40000

func golden(t *testing.T, watcher policies.Router, capabilities ...policies.Capability) (*world, *policies.Turn) {
	w := newWorld(t, 4, watcher, capabilities...)
	for i := range 4 {
		r := policies.ReplicaID(i)
		if goldenQ[i] > 0 {
			w.lease(r, goldenQ[i])
		}
		if goldenBlocks[i] > 0 {
			w.decode(r, 16*goldenBlocks[i])
		}
		w.sample(r, goldenR[i], goldenW[i])
		w.store(r, max(1, goldenC[i]/16))
	}
	w.step(policies.Fact{Kind: policies.BlocksEvicted, Replica: 3, Stream: 0, Lo: 0, Hi: 1, BlockTokens: 16})
	return w, &policies.Turn{Attempt: 1000, Thread: 0, Number: 2, Prompt: prefix.Prefix{Stream: 0, Tokens: goldenL}}
}

func TestGoldenView(t *testing.T) {
	w, u := golden(t, nil)
	hits := make([]int32, 4)
	w.view().AllHitTokens(u.Prompt, hits)
	if d := cmp.Diff(goldenC, hits); d != "" {
		t.Errorf("hits (-want +got):\n%s", d)
	}
	for i := range 4 {
		r := policies.ReplicaID(i)
		if q, d := w.view().QueuedTokens(r), w.view().DecodeTokens(r); q != int64(goldenQ[i]) || d != 16*int64(goldenBlocks[i]) {
			t.Errorf("replica %d: queued %d decode %d", i, q, d)
		}
		if h, ok := w.view().HitTokens(r, u.Prompt); !ok || h != goldenC[i] {
			t.Errorf("replica %d: hit %d %v, want %d", i, h, ok, goldenC[i])
		}
	}
}

func TestGoldenLMetric(t *testing.T) {
	for _, c := range []struct {
		queue, plusOne bool
		scores         [4]int64
		winner         policies.ReplicaID
	}{
		{true, true, [4]int64{152000, 84000, 140000, 40000}, 3},
		{true, false, [4]int64{114000, 70000, 126000, 0}, 3},
		{false, true, [4]int64{152000, 60000, 20000, 40000}, 2},
	} {
		for i, want := range c.scores {
			q, batch := int64(0), int64(goldenR[i]+goldenW[i])
			if c.queue {
				q = int64(goldenQ[i])
			}
			if c.plusOne {
				batch++
			}
			if got := lmetricScore(q, goldenL-goldenC[i], batch); got != want {
				t.Errorf("%v: score of %d is %d, want %d", c, i, got, want)
			}
		}
		w, u := golden(t, nil)
		r := build(LMetric(), policies.Params{"include_queue": boolean(c.queue), "bs_plus_one": boolean(c.plusOne)}, policies.Capability{})
		if got := w.peek(r, u); got != c.winner {
			t.Errorf("%v: winner %d, want %d", c, got, c.winner)
		}
	}
}

func TestGoldenBailian(t *testing.T) {
	want := []float64{5.278, 35.833, 36.944, 9.444}
	sum := 3 + 5 + 9 + 0
	var top []weighted
	for i := range 4 {
		below := float64(sum-4*int(goldenR[i]+goldenW[i])) / (4 * 9)
		got := bailianExponent(50, 20, goldenC[i], goldenL, below)
		if math.Abs(got-want[i]) > .0005 {
			t.Errorf("exponent %d is %.4f, want %.3f", i, got, want[i])
		}
		top = keepTop(top, 3, weighted{policies.ReplicaID(i), got})
	}
	counts := map[policies.ReplicaID]int{}
	const draws = 100000
	for i := range draws {
		counts[draw(top, (float64(i)+.5)/draws)]++
	}
	if counts[2] < 68350 || counts[2] > 68450 || counts[1] < 31550 || counts[1] > 31650 || counts[0] != 0 {
		t.Errorf("draws %v, want .684 of 2, .316 of 1", counts)
	}
	w, u := golden(t, nil)
	r := build(Bailian(), nil, policies.Capability{})
	counts = map[policies.ReplicaID]int{}
	for a := range policies.AttemptID(4000) {
		u.Attempt = a
		to := w.peek(r, u)
		if again, _ := r.Route(w.now, w.view(), u); again != to {
			t.Fatal("Route and Peek draw differently")
		}
		counts[to]++
	}
	if share := float64(counts[2]) / 4000; share < .66 || share > .71 || counts[1]+counts[2] != 4000 {
		t.Errorf("draws %v", counts)
	}
	if got := w.peek(build(Bailian(), policies.Params{"top_k": number(1)}, policies.Capability{}), u); got != 2 {
		t.Errorf("top 1 is %d, want 2", got)
	}
}

func TestBailianLinear(t *testing.T) {
	for _, c := range []struct {
		lambda float64
		sums   [4]float64 // hit ratios .05, .75, .95, 0; batches 3, 5, 9, 0 of 9
		winner policies.ReplicaID
	}{
		{.7, [4]float64{.765, .3417, .335, .7}, 2},
		{.55, [4]float64{.6725, .3875, .4775, .55}, 1},
		{0, [4]float64{.3333, .5556, 1, 0}, 3},
		{1, [4]float64{.95, .25, .05, 1}, 2},
	} {
		w, u := golden(t, nil)
		r := build(Bailian(), policies.Params{"form": text("linear"), "lambda": number(c.lambda)}, policies.Capability{})
		for i, s := range r.(policies.Scored).Scores(w.now, w.view(), u, nil) {
			if math.Abs(s.Score-c.sums[i]) > .0001 {
				t.Errorf("lambda %v: sum of %d is %.4f, want %.4f", c.lambda, i, s.Score, c.sums[i])
			}
		}
		p := w.peek(r, u)
		if to, why := r.Route(w.now, w.view(), u); to != c.winner || p != to || why != policies.BestScore {
			t.Errorf("lambda %v: %d (%v, peek %d), want %d", c.lambda, to, why, p, c.winner)
		}
	}
	w := newWorld(t, 3, nil) // all equal: the lowest
	if got := w.peek(build(Bailian(), policies.Params{"form": text("linear")}, policies.Capability{}), &policies.Turn{Prompt: prefix.Prefix{Tokens: 9}}); got != 0 {
		t.Errorf("all equal: went to %d", got)
	}
}

func TestGoldenVLLMDP(t *testing.T) {
	for i, want := range []int64{3, 8, 21, 0} {
		if got := rankScore(goldenW[i], goldenR[i]); got != want {
			t.Errorf("score of %d is %d, want %d", i, got, want)
		}
	}
	r := build(VLLMDP(), nil, policies.Capability{})
	w, u := golden(t, r)
	if to, why := r.Route(w.now, w.view(), u); to != 3 || why != policies.LeastLoaded {
		t.Errorf("went to %d (%v), want 3", to, why)
	}
	// The dispatch counts 4 on replica 3, so 0 with 3 is next, and then 3 with 4 before 0 with 7.
	for i, want := range []policies.ReplicaID{0, 3, 0, 1, 3} {
		if to, _ := r.Route(w.now, w.view(), u); to != want {
			t.Errorf("dispatch %d went to %d, want %d", i, to, want)
		}
	}
	w.sample(3, 0, 0)
	if to := w.peek(r, u); to != 3 {
		t.Errorf("a sample did not overwrite the local count: %d", to)
	}
}

func TestVLLMDPStartsAtTheClientsShare(t *testing.T) {
	for client, want := range []policies.ReplicaID{0, 2} {
		r := build(VLLMDP(), policies.Params{"client_count": number(2), "client_index": number(float64(client))}, policies.Capability{})
		w := newWorld(t, 4, r)
		if got := w.peek(r, &policies.Turn{Prompt: prefix.Prefix{Tokens: 10}}); got != want {
			t.Errorf("client %d starts at %d, want %d", client, got, want)
		}
	}
}

func TestGoldenSMetric(t *testing.T) {
	loads := []int64{200, 2250, 5750, 0}
	if overloadFits(loads[2], 8200, 4, 2) {
		t.Error("5750 <= 2 x 2050 must be false")
	}
	if got := float64(12000+2000) / 2300; math.Abs(got-6.09) > .005 || ttftBudget(goldenL) != 3.5 {
		t.Errorf("%.3f s against %.3f s", got, ttftBudget(goldenL))
	}
	for _, c := range []struct {
		n, l int32
		want float64
	}{{4096, 64000, 40750}, {4096, 4096, 5308}} {
		if got := prefillWork(c.n, c.l, 6923); math.Abs(got-c.want) > .5 {
			t.Errorf("w(%d, %d) = %.1f, want %.0f", c.n, c.l, got, c.want)
		}
	}
	for _, c := range []struct {
		name string
		d    policies.Declaration
		p    policies.Params
		to   policies.ReplicaID
		why  policies.Reason
	}{
		{"figure", SMetricFigure(), nil, 3, policies.Spilled},
		{"figure, lenient", SMetricFigure(), policies.Params{"overload": number(2.81)}, 2, policies.HomeHit},
		{"budget", SMetricFigure(), policies.Params{"gate": text("budget"), "drain_per_s": number(2300)}, 3, policies.Spilled},
		{"budget, faster", SMetricFigure(), policies.Params{"gate": text("budget"), "drain_per_s": number(4000)}, 2, policies.HomeHit},
		{"budget without a rate", SMetricFigure(), policies.Params{"gate": text("budget")}, 3, policies.Spilled},
		// The least work: (4000 + 10000) on 1, (12000 + 2000) on 2, 40000 on 3, 38000 on 0; the tie of 1 and 2 in turn.
		{"work", SMetric(), policies.Params{"drain_per_s": number(2300)}, 1, policies.Spilled},
		{"work without a rate", SMetric(), nil, 1, policies.Spilled},
		{"work without a rate, lenient", SMetric(), policies.Params{"overload": number(3)}, 2, policies.HomeHit},
		{"expected hit not reached", SMetric(), policies.Params{"drain_per_s": number(1e6), "hit": number(.96), "expected_hit": text("prompt")}, 1, policies.HomeLost},
		{"attention", SMetric(), policies.Params{"drain_per_s": number(2300), "attention_doubling_tokens": number(6923)}, 2, policies.Spilled},
		{"dynamo spill", SMetricFigure(), policies.Params{"spill": text("dynamo")}, 3, policies.Spilled}, // 40000 against 41200
		{"lmetric spill", SMetricFigure(), policies.Params{"spill": text("lmetric")}, 3, policies.Spilled},
		{"lmetric attention spill", SMetricFigure(), policies.Params{"spill": text("lmetric_attention"), "attention_doubling_tokens": number(6923)}, 3, policies.Spilled},
	} {
		w, u := golden(t, nil)
		if to, why := build(c.d, c.p, policies.Capability{}).Route(w.now, w.view(), u); to != c.to || why != c.why {
			t.Errorf("%s: %d %v, want %d %v", c.name, to, why, c.to, c.why)
		}
		u.Number = 1
		if _, why := build(c.d, c.p, policies.Capability{}).Route(w.now, w.view(), u); why != policies.FirstPlacement {
			t.Errorf("%s: first turn %v", c.name, why)
		}
	}
}

func TestSMetricTakesTheReplicasOwnRate(t *testing.T) {
	slow := policies.Capability{PrefillTokensPerSec: 2300}
	fast := policies.Capability{PrefillTokensPerSec: 4100}
	for _, c := range []struct {
		replica, env policies.Capability
		want         policies.Reason
	}{{slow, fast, policies.Spilled}, {fast, slow, policies.HomeHit}, {policies.Capability{}, slow, policies.Spilled}, {policies.Capability{}, fast, policies.HomeHit}} {
		w, u := golden(t, nil, c.replica, c.replica, c.replica, c.replica)
		if _, why := build(SMetric(), nil, c.env).Route(w.now, w.view(), u); why != c.want {
			t.Errorf("replica %v, otherwise %v: %v, want %v", c.replica.PrefillTokensPerSec, c.env.PrefillTokensPerSec, why, c.want)
		}
	}
	// A cold prompt of 8192 tokens at 8192 tokens a second takes a second, attention or not.
	m := &smetric{doubling: 5000}
	w := newWorld(t, 1, nil, policies.Capability{PrefillTokensPerSec: 8192})
	if got := prefillWork(8192, 8192, 5000) / m.drainOf(w.view(), 0, true); math.Abs(got-1) > 1e-12 {
		t.Errorf("takes %v s", got)
	}
}

func TestSMetricTakesTiesInTurn(t *testing.T) {
	w := newWorld(t, 4, nil)
	r := build(SMetricFigure(), nil, policies.Capability{})
	w.lease(1, 100)
	u := &policies.Turn{Number: 1, Prompt: prefix.Prefix{Tokens: 64}}
	for i, want := range []policies.ReplicaID{0, 2, 3, 0, 2} {
		if p := w.peek(r, u); p != want {
			t.Errorf("peek %d: %d, want %d", i, p, want)
		}
		if to, _ := r.Route(w.now, w.view(), u); to != want {
			t.Errorf("route %d: %d, want %d", i, to, want)
		}
	}
}

func TestSMetricDecodeMask(t *testing.T) {
	p := policies.Params{"decode_mask": boolean(true), "drain_per_s": number(1000)}
	w := newWorld(t, 2, nil)
	w.decode(0, 8001) // balance 1 + 1 + .03 s, less the time since
	u := &policies.Turn{Thread: 50, Number: 1, Prompt: prefix.Prefix{Tokens: 2000}}
	w.lease(1, 5000)
	for _, c := range []struct {
		at   policies.Time // ms
		want policies.ReplicaID
		why  string
	}{
		{0, 0, "2 s of prefill fit 2.03 s"},
		{40, 1, "2 s do not fit 1.99 s, though 1 has more work"},
		{2040, 0, "the decode is late already"},
	} {
		w.now = c.at * 1e6
		if got := w.peek(build(SMetric(), p, policies.Capability{}), u); got != c.want {
			t.Errorf("%s: went to %d, want %d", c.why, got, c.want)
		}
	}
	w2 := newWorld(t, 2, nil)
	for r := range policies.ReplicaID(2) {
		w2.decode(r, 100)
	}
	w2.now = 500e6
	if got := w2.peek(build(SMetric(), p, policies.Capability{}), u); got != 0 {
		t.Errorf("with no replica safe it went to %d, want 0", got)
	}
	w.now = 0
}

func TestStickyForgetsTheLeastRecentlyRouted(t *testing.T) {
	r := build(Sticky(), policies.Params{"capacity_threads": number(2)}, policies.Capability{})
	w := newWorld(t, 3, r)
	route := func(thread policies.ThreadID, to policies.ReplicaID, why policies.Reason) {
		t.Helper()
		u := &policies.Turn{Thread: thread, Prompt: prefix.Prefix{Tokens: 10}}
		peeked := w.peek(r, u)
		got, gotWhy := r.Route(w.now, w.view(), u)
		if got != to || gotWhy != why || peeked != to {
			t.Errorf("thread %d: %d %v (peek %d), want %d %v", thread, got, gotWhy, peeked, to, why)
		}
	}
	route(1, 0, policies.FirstPlacement)
	w.lease(0, 10)
	route(2, 1, policies.FirstPlacement)
	w.lease(1, 10)
	route(1, 0, policies.Affinity) // refreshes 1
	route(3, 2, policies.FirstPlacement)
	w.lease(2, 10)
	w.lease(0, 10)
	route(2, 1, policies.FirstPlacement) // was forgotten; now 1 is
	route(3, 2, policies.Affinity)
	w.step(policies.Fact{Kind: policies.ReplicaDown, Replica: 2})
	route(3, 1, policies.HomeLost)
	w.step(policies.Fact{Kind: policies.ReplicaUp, Replica: 2})
	route(3, 1, policies.Affinity)
	route(1, 1, policies.FirstPlacement)
}

// Homes against an obvious list, oldest first.
func TestHomesAgainstAList(t *testing.T) {
	for capacity := 1; capacity <= 4; capacity++ {
		h := newHomes(capacity)
		type pair struct {
			t policies.ThreadID
			r policies.ReplicaID
		}
		var list []pair
		x := uint32(capacity)
		for range 3000 {
			x = x*1664525 + 1013904223
			thread, r := policies.ThreadID(x>>20%7), policies.ReplicaID(x>>10%5)
			for i := range list {
				if list[i].t == thread {
					list = append(list[:i], list[i+1:]...)
					break
				}
			}
			list = append(list, pair{thread, r})
			if len(list) > capacity {
				list = list[1:]
			}
			h.put(thread, r)
			for q := range policies.ThreadID(7) {
				want, known := policies.NoReplica, false
				for _, p := range list {
					if p.t == q {
						want, known = p.r, true
					}
				}
				if got, ok := h.get(q); ok != known || got != want {
					t.Fatalf("capacity %d, thread %d: %d %v, want %d %v", capacity, q, got, ok, want, known)
				}
			}
		}
	}
}

type fixedOracle []policies.Time

func (o fixedOracle) Completion(_ policies.Time, r policies.ReplicaID, _ *policies.Turn) policies.Time {
	return o[r]
}

func TestOracle(t *testing.T) {
	c := policies.NewController(policies.ControllerConfig{
		Tree: &prefix.Tree{}, Replicas: 4, Gate: admission.None().NewGate(policies.Env{}, nil), Router: oracle{},
		Oracle: fixedOracle{5, 9, 2, 2},
	})
	u := &policies.Turn{Prompt: prefix.Prefix{Tokens: 10}}
	for r := range policies.ReplicaID(4) {
		c.Step(0, []policies.Fact{{Kind: policies.ReplicaUp, Replica: r}}, nil)
	}
	if to, why := (oracle{}).Route(0, c.View(), u); to != 2 || why != policies.Predicted {
		t.Errorf("went to %d %v, want 2", to, why)
	}
	c.Step(0, []policies.Fact{{Kind: policies.ReplicaDown, Replica: 2}}, nil)
	if to := (oracle{}).Peek(0, c.View(), u); to != 3 {
		t.Errorf("went to %d, want 3", to)
	}
}

// Without an oracle the fewest turns in flight decide, the lowest replica on a tie.
func TestOracleWithoutAnOracle(t *testing.T) {
	w := newWorld(t, 4, nil)
	for r, n := range []int{3, 2, 1, 1} {
		for range n {
			w.lease(policies.ReplicaID(r), 100)
		}
	}
	u := &policies.Turn{Prompt: prefix.Prefix{Tokens: 10}}
	r := build(Oracle(), nil, policies.Capability{})
	for _, want := range []policies.ReplicaID{2, 3, 1, 0, policies.NoReplica} {
		p := w.peek(r, u)
		if to, why := r.Route(w.now, w.view(), u); p != want || to != want || why != policies.LeastLoaded {
			t.Errorf("went to %d (%v, peek %d), want %d", to, why, p, want)
		}
		if want != policies.NoReplica {
			w.step(policies.Fact{Kind: policies.ReplicaDown, Replica: want})
		}
	}
}

func declarations() []policies.Declaration {
	return []policies.Declaration{
		RoundRobin(), Random(), PowerOfTwo(), LeastRequests(), LeastPendingTokens(), LeastWork(), CHWBL(), Sticky(), StickyBounded(), StickyLeastLoaded(),
		VLLMDP(), LLMD(), AIBrixPrefixCache(), SMGCacheAware(), Dynamo(), Preble(), LMetric(), Bailian(), SMetric(), SMetricFigure(), Oracle(),
	}
}

// With one replica, and with nobody else up, every router takes it, knowing nothing at all.
func TestOneReplica(t *testing.T) {
	for _, d := range declarations() {
		for _, only := range []policies.ReplicaID{0, 2} {
			r := build(d, nil, policies.Capability{})
			w := newWorld(t, int(only)+1, r)
			for down := range only {
				w.step(policies.Fact{Kind: policies.ReplicaDown, Replica: down})
			}
			for number := range int32(3) {
				u := &policies.Turn{Attempt: 5, Number: number, Prompt: prefix.Prefix{Tokens: 100}}
				if p := w.peek(r, u); p != only {
					t.Errorf("%s: peek %d, want %d", d.Name, p, only)
				}
				if to, _ := r.Route(w.now, w.view(), u); to != only {
					t.Errorf("%s: route %d, want %d", d.Name, to, only)
				}
			}
			w.step(policies.Fact{Kind: policies.ReplicaDown, Replica: only})
			if to, _ := r.Route(w.now, w.view(), &policies.Turn{Prompt: prefix.Prefix{Tokens: 100}}); to != policies.NoReplica {
				t.Errorf("%s: went to %d with nobody up", d.Name, to)
			}
		}
	}
}

// With all replicas equal the tie rule alone decides; and so it does when nothing was ever reported. Over many turns a router
// that draws takes each with the chance that its rule gives it, one that does not takes the first.
func TestAllEqual(t *testing.T) {
	const turns = 3000
	first, each := [4]float64{1}, [4]float64{.25, .25, .25, .25}
	shares := map[string][4]float64{
		"bailian": {1. / 3, 1. / 3, 1. / 3}, // the top 3
		"random":  each, "power-of-two": each, "dynamo": each, "llm-d": each, "aibrix-prefix-cache": each, "sticky-bounded": each, "sticky-least-loaded": each,
		"chwbl": each, // by the content of the prompt, not by the turn
	}
	for _, d := range declarations() {
		for _, reported := range []bool{false, true} {
			r := build(d, nil, policies.Capability{})
			w := newWorld(t, 4, r)
			for i := range policies.ReplicaID(4) {
				w.lease(i, 500)
				if reported {
					w.sample(i, 3, 2)
					w.store(i, 4)
				}
			}
			want, ok := shares[d.Name]
			if !ok {
				want = first
			}
			counts := [4]float64{}
			pairs := [4][4]float64{}
			last := policies.NoReplica
			for a := range policies.AttemptID(turns) {
				u := &policies.Turn{Attempt: 77 + a, Thread: 99, Number: 2, Prompt: prefix.Prefix{Tokens: 100}}
				if d.Name == "chwbl" {
					kept := w.peek(r, u)
					if u.Attempt++; w.peek(r, u) != kept {
						t.Fatalf("chwbl: another turn of the same prompt went elsewhere than to %d", kept)
					}
					u.Prompt.Stream = w.tree.Root()
				}
				got := w.peek(r, u)
				if w.peek(r, u) != got {
					t.Fatalf("%s: the same turn is drawn twice, differently", d.Name)
				}
				counts[got]++
				if last >= 0 {
					pairs[last][got]++
				}
				last = got
			}
			for i, n := range counts {
				if math.Abs(n-want[i]*turns) > 4*math.Sqrt(turns*want[i]*(1-want[i])) {
					t.Errorf("%s, reported %v: %v of %d turns, want shares %v", d.Name, reported, counts, turns, want)
					break
				}
				for k, n := range pairs[i] {
					if p := want[i] * want[k]; math.Abs(n-p*turns) > 4*math.Sqrt(turns*p)+1 {
						t.Errorf("%s, reported %v: %v times %d after %d, want about %.0f", d.Name, reported, n, k, i, p*turns)
					}
				}
			}
		}
	}
}

// A missing signal is not a zero: each case gives the router a view that would win if unknown were idle or empty.
func TestMissingSignals(t *testing.T) {
	for _, c := range []struct {
		d    policies.Declaration
		p    policies.Params
		want policies.ReplicaID
	}{
		{VLLMDP(), nil, 1},
		{LeastPendingTokens(), nil, 1},
		{LeastWork(), nil, 1},
		{LLMD(), nil, 1},
		{LLMD(), policies.Params{"preset": text("precise-prefix"), "running_requests_weight": number(1)}, 1},
		{SMGCacheAware(), nil, 1},
		{SMGCacheAware(), policies.Params{"index": text("events")}, 1},
		{AIBrixPrefixCache(), nil, 1},
		{Dynamo(), nil, 1},
		{StickyBounded(), nil, 1},
		{LMetric(), nil, 1},
		{LMetric(), policies.Params{"batch": text("sample")}, 1},
		{LMetric(), policies.Params{"batch": text("ledger")}, 1},
		{Bailian(), nil, 1},
		{Bailian(), policies.Params{"top_k": number(1)}, 1},
		{Bailian(), policies.Params{"top_k": number(1), "batch": text("sample")}, 1},
		{Bailian(), policies.Params{"form": text("linear")}, 1},
		{SMetric(), nil, 1},
		{SMetric(), policies.Params{"spill": text("lmetric"), "batch": text("sample")}, 1},
		{SMetricFigure(), nil, 1},
	} {
		r := build(c.d, c.p, policies.Capability{})
		w := newWorld(t, 2, r)
		for range 9 {
			w.lease(0, 100) // and replica 0 has never reported
		}
		w.lease(1, 100)
		w.sample(1, 1, 0)
		w.store(1, 1)
		u := &policies.Turn{Thread: 99, Number: 2, Prompt: prefix.Prefix{Stream: w.tree.Root(), Tokens: 100}}
		if got := w.peek(r, u); got != c.want {
			t.Errorf("%s %v: went to %d, want %d", c.d.Name, c.p, got, c.want)
		}
	}
}

// Without KV events a thread's last turn is expected where it went.
func TestHitsWithoutEvents(t *testing.T) {
	w := newWorld(t, 3, nil)
	a := w.lease(2, 4000)
	w.step(policies.Fact{Kind: policies.Finished, Attempt: a, OutputTokens: 100})
	u := &policies.Turn{Attempt: 50, Thread: policies.ThreadID(a), Number: 2, Prompt: prefix.Prefix{Stream: 1, Tokens: 4500}}
	hits := make([]int32, 3)
	w.view().EstimateHits(u, hits)
	if d := cmp.Diff([]int32{0, 0, 4100}, hits); d != "" {
		t.Error(d)
	}
	w.view().AllHitTokens(u.Prompt, hits)
	if d := cmp.Diff([]int32{-1, -1, -1}, hits); d != "" {
		t.Error(d)
	}
	for _, d := range []policies.Declaration{LMetric(), SMetric(), SMetricFigure(), Bailian()} {
		if got := w.peek(build(d, nil, policies.Capability{}), u); got != 2 {
			t.Errorf("%s: went to %d, want 2", d.Name, got)
		}
	}
}

func BenchmarkRoute(b *testing.B) {
	for _, d := range declarations() {
		for _, n := range []int{8, 64, 512} {
			b.Run(fmt.Sprintf("%s/%d", d.Name, n), func(b *testing.B) {
				r := build(d, nil, policies.Capability{PrefillTokensPerSec: 20000, AttentionDoubling: 7000})
				w := newWorld(nil, n, r)
				for i := range policies.ReplicaID(n) {
					w.lease(i, 500)
					w.sample(i, 3, 2)
					w.store(i, int32(100+i%50))
				}
				u := &policies.Turn{Attempt: 77, Thread: 99, Number: 2, Prompt: prefix.Prefix{Tokens: 4000}}
				b.ReportAllocs()
				for b.Loop() {
					r.Route(w.now, w.view(), u)
				}
			})
		}
	}
}
