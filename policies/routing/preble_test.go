package routing

import (
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

type prebleWorld struct {
	*world
	r *preble
	n policies.AttemptID
}

// newPrebleWorld has a prefill of 1000 tokens a second and decodes of 45 x 0.1 s.
func newPrebleWorld(t *testing.T, replicas int, p policies.Params) *prebleWorld {
	all := policies.Params{"prefill_per_s": number(1000), "tpot_s": number(.1), "kv_tokens": number(100000)}
	for k, v := range p {
		all[k] = v
	}
	r := build(Preble(), all, policies.Capability{}).(*preble)
	return &prebleWorld{world: newWorld(t, replicas, r), r: r}
}

func (w *prebleWorld) route(s prefix.StreamID, tokens int32, to policies.ReplicaID, why policies.Reason) {
	w.t.Helper()
	w.n++
	u := &policies.Turn{Attempt: w.n, Prompt: prefix.Prefix{Stream: s, Tokens: tokens}}
	peeked := w.peek(w.r, u)
	got, reason := w.r.Route(w.now, w.view(), u)
	if got != to || reason != why || peeked != to {
		w.t.Errorf("turn %d: %d (%v, peek %d), want %d (%v)", w.n, got, reason, peeked, to, why)
	}
}

func (w *prebleWorld) work(want ...float64) {
	w.t.Helper()
	for i, s := range want {
		if got := float64(w.r.sums[i].work) / float64(policies.Second); got != s {
			w.t.Errorf("turn %d: %v s of work on %d, want %v", w.n, got, i, s)
		}
	}
}

func TestPrebleExploitsAndExplores(t *testing.T) {
	for _, c := range []struct {
		hit, prompt int32
		want        bool
	}{{500, 1000, false}, {501, 1000, true}, {0, 1, false}, {1, 1, true}} {
		if got := exploits(c.hit, c.prompt); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	w := newPrebleWorld(t, 3, nil)
	a := prefix.StreamID(0)
	w.route(a, 1000, 0, policies.BestScore) // 1 s + 4.5 s
	w.work(5.5, 0, 0)
	b, c := w.tree.Root(), w.tree.Root()
	w.route(b, 3000, 1, policies.BestScore)
	w.route(c, 500, 2, policies.BestScore)
	w.work(5.5, 7.5, 5)
	w.route(a, 1999, 0, policies.HomeHit) // 1000 > 999
	w.work(5.5+.999+4.5, 7.5, 5)
	// 1999 of 4000 do not decide: 11 + 2.001 on 0, 7.5 + 4 on 1, 5 + 4 on 2.
	w.route(a, 4000, 2, policies.BestScore)
	w.work(5.5+.999+4.5, 7.5, 5+4+4.5)
	// Both 0 and 2 were sent the first 1999: the one with less work.
	w.route(a, 1500, 0, policies.HomeHit)
}

func TestPrebleWindow(t *testing.T) {
	w := newPrebleWorld(t, 2, nil)
	w.route(0, 1000, 0, policies.BestScore)
	w.now = 100 * policies.Second
	w.route(w.tree.Root(), 8000, 1, policies.BestScore)
	w.work(5.5, 12.5)
	w.now = 179 * policies.Second
	w.peek(w.r, &policies.Turn{Prompt: prefix.Prefix{Tokens: 1}})
	w.work(5.5, 12.5)
	w.now = 180 * policies.Second
	w.peek(w.r, &policies.Turn{Prompt: prefix.Prefix{Tokens: 1}})
	w.work(0, 12.5)
	w.now = 280 * policies.Second
	w.peek(w.r, &policies.Turn{Prompt: prefix.Prefix{Tokens: 1}})
	w.work(0, 0)
	if len(w.r.sent) != 0 {
		t.Errorf("%d turns are kept", len(w.r.sent))
	}
}

func TestPrebleMovesFromTheMostLoaded(t *testing.T) {
	for _, c := range []struct {
		warmUp, imbalance float64
		to                policies.ReplicaID
		why               policies.Reason
	}{
		{0, 1.5, 1, policies.Imbalanced}, // 14.5 > 1.5 x 9.5
		{1, 1.5, 1, policies.Imbalanced}, // after 2 turns on 2 replicas
		{2, 1.5, 0, policies.HomeHit},
		{0, 1.6, 0, policies.HomeHit},
	} {
		w := newPrebleWorld(t, 2, policies.Params{"warm_up_turns": number(c.warmUp), "imbalance": number(1e9)})
		w.route(0, 10000, 0, policies.BestScore) // 14.5 s; with nothing anywhere nobody is the most loaded by much
		w.route(w.tree.Root(), 5000, 1, policies.BestScore)
		w.r.imbalance = c.imbalance
		w.route(0, 10000, c.to, c.why)
	}
}

func TestPrebleCosts(t *testing.T) {
	for _, c := range []struct {
		again       policies.Time
		hit, prompt int64
		want        policies.Time
	}{{1000, 0, 0, 0}, {1000, 0, 10, 0}, {1000, 5, 10, 500}, {0, 5, 10, 0}} {
		if got := evictionCost(c.again, c.hit, c.prompt); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	// A replica that is full of what is asked for again costs its eviction.
	w := newPrebleWorld(t, 2, policies.Params{"kv_tokens": number(10000)})
	w.r.resident.sent.Insert(0, w.view(), prefix.Prefix{Stream: 0, Tokens: 10000}, 0)
	w.r.sums = []windowSums{{work: 0, prompt: 100, hit: 50}, {work: policies.Second}}
	up, hits := w.view().Up(), []int32{0, 0}
	if got := w.r.explore(up, hits, 1999); got != 0 {
		t.Errorf("went to %d: 1.999/2 s of eviction is less than 1 s of work", got)
	}
	if got := w.r.explore(up, hits, 2001); got != 1 {
		t.Errorf("went to %d: 2.001/2 s of eviction is more than 1 s of work", got)
	}
	w.r.sums = make([]windowSums, 2)
	if got := w.r.explore(up, []int32{0, 1}, 2000); got != 1 {
		t.Errorf("went to %d, want 1, which has a token less to compute", got)
	}
	// The mean output replaces the default once there is one.
	a := w.lease(0, 10)
	w.step(policies.Fact{Kind: policies.Finished, Attempt: a, OutputTokens: 200})
	if got := w.r.decode(); got != 20*policies.Second {
		t.Errorf("a decode of 200 tokens at 0.1 s costs %d", got)
	}
}

// What a replica holds is the knob, else its own capacity, else 198,516 tokens.
func TestPrebleCapacity(t *testing.T) {
	own := policies.Capability{KVTokens: 5000}
	for _, c := range []struct {
		p          policies.Params
		capability policies.Capability
		want       int32
	}{{nil, policies.Capability{}, 198516}, {nil, own, 5000}, {policies.Params{"kv_tokens": number(700)}, own, 700}, {policies.Params{"kv_tokens": number(700)}, policies.Capability{}, 700}} {
		m := build(Preble(), c.p, c.capability).(*preble)
		w := newWorld(t, 2, m)
		hold := func(tokens int32) int64 {
			m.resident.sent.Insert(0, w.view(), prefix.Prefix{Stream: w.tree.Root(), Tokens: tokens}, 0)
			return m.resident.sent.Tokens(0)
		}
		if got := hold(c.want - 1); got != int64(c.want-1) {
			t.Errorf("%v %v: holds %d of %d tokens", c.p, c.capability, got, c.want-1)
		}
		if got := hold(1); got != int64(c.want) {
			t.Errorf("%v %v: holds %d tokens, want %d", c.p, c.capability, got, c.want)
		}
		if got := hold(1); got > int64(c.want) {
			t.Errorf("%v %v: holds %d tokens, expected at most %d", c.p, c.capability, got, c.want)
		}
		// The last token evicts one that is asked for again each time.
		m.sums = []windowSums{{prompt: 10, hit: 10}, {}}
		held := int32(m.resident.sent.Tokens(0))
		fits, beyond := m.cost(0, c.want-held), m.cost(0, c.want-held+1)
		if fits != m.prefill(int64(c.want-held)) || beyond != m.prefill(int64(c.want-held+1))+m.prefill(1) {
			t.Errorf("%v %v: %d where it fits, %d where a token does not", c.p, c.capability, fits, beyond)
		}
	}
}
