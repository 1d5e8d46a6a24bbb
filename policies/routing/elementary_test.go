package routing

import (
	"math"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// evenly checks that n draws over the cells of got lie within five standard deviations of their equal share.
func evenly(t *testing.T, what string, got []int, n int) {
	t.Helper()
	share := float64(n) / float64(len(got))
	for i, k := range got {
		if math.Abs(float64(k)-share) > 5*math.Sqrt(share) {
			t.Errorf("%s: %d of %d fell on %d, want about %.0f", what, k, n, i, share)
		}
	}
}

func TestRandomIsUniformOverThoseUp(t *testing.T) {
	w := newWorld(t, 5, nil)
	w.step(policies.Fact{Kind: policies.ReplicaDown, Replica: 2})
	r := build(Random(), nil, policies.Capability{})
	counts := make([]int, 5)
	const n = 20000
	for a := range policies.AttemptID(n) {
		u := &policies.Turn{Attempt: a, Prompt: prefix.Prefix{Tokens: 10}}
		p := w.peek(r, u)
		if to, why := r.Route(w.now, w.view(), u); to != p || why != policies.Sampled {
			t.Fatalf("attempt %d: %d %v, peek %d", a, to, why, p)
		}
		counts[p]++
	}
	if counts[2] != 0 {
		t.Errorf("%d turns to a replica that is down", counts[2])
	}
	evenly(t, "random", append(counts[:2:2], counts[3:]...), n)
}

func TestPowerOfTwo(t *testing.T) {
	const n, draws = 4, 24000
	pairs := make([]int, n*n)
	for a := range policies.AttemptID(draws) {
		i, j := twoOf(7, a, n)
		if i == j || i < 0 || j < 0 || i >= n || j >= n {
			t.Fatalf("drew %d and %d of %d", i, j, n)
		}
		pairs[i*n+j]++
	}
	var unequal []int
	for k, count := range pairs {
		if k/n != k%n {
			unequal = append(unequal, count)
		}
	}
	evenly(t, "ordered pairs", unequal, draws)

	// With loads 0, 1, 2, 3 a replica wins against those above it: 3, 2, 1 and 0 of the 6 pairs. Equal loads leave the
	// one that was drawn first.
	w := newWorld(t, n, nil)
	r := build(PowerOfTwo(), nil, policies.Capability{})
	for a := range policies.AttemptID(1000) {
		i, _ := twoOf(7, a, n)
		if got := w.peek(r, &policies.Turn{Attempt: a}); got != policies.ReplicaID(i) {
			t.Fatalf("all equal: %d, but %d was drawn first", got, i)
		}
	}
	for i := range policies.ReplicaID(n) {
		for range i {
			w.lease(i, 10)
		}
	}
	counts := make([]float64, n)
	for a := range policies.AttemptID(draws) {
		counts[w.peek(r, &policies.Turn{Attempt: a})]++
	}
	for i, want := range []float64{3. / 6, 2. / 6, 1. / 6, 0} {
		if got := counts[i] / draws; math.Abs(got-want) > .015 {
			t.Errorf("replica %d wins %.3f, want %.3f", i, got, want)
		}
	}
}

func TestLeastPendingTokens(t *testing.T) {
	w, u := golden(t, nil) // Q = 0, 4000, 12000, 0
	r := build(LeastPendingTokens(), nil, policies.Capability{})
	if got := w.peek(r, u); got != 0 {
		t.Errorf("went to %d, want 0, the lower of the two without pending tokens", got)
	}
	w.lease(0, 5000)
	w.lease(3, 4001)
	if got := w.peek(r, u); got != 1 {
		t.Errorf("went to %d, want 1 with 4000 pending", got)
	}
}

func TestLeastPendingTokensFade(t *testing.T) {
	r := build(LeastPendingTokens(), policies.Params{"half_life_s": number(10)}, policies.Capability{})
	w := newWorld(t, 2, r)
	for i, c := range []struct {
		at     policies.Time
		tokens int32
		want   policies.ReplicaID
	}{
		{0, 1000, 0},  // 1000, 0
		{0, 400, 1},   // 1000, 400
		{10, 1, 1},    // 500 against 200; then 201
		{30, 500, 1},  // 125 against 50.25; then 550.25
		{30, 1, 0},    // 125 against 550
		{1000, 10, 0}, // both have faded away, to amounts that still differ: 1 ever had more left
	} {
		w.now = c.at * policies.Second
		if to, _ := r.Route(w.now, w.view(), &policies.Turn{Prompt: prefix.Prefix{Tokens: c.tokens}}); to != c.want {
			t.Errorf("dispatch %d went to %d, want %d", i, to, c.want)
		}
	}
	w.now += policies.Second
	w.step(policies.Fact{Kind: policies.ReplicaDown, Replica: 0})
	w.step(policies.Fact{Kind: policies.ReplicaUp, Replica: 0})
	if got := w.peek(r, &policies.Turn{}); got != 0 {
		t.Errorf("went to %d: a replica that came back starts at nothing", got)
	}
	if got := (fading{1000, 5}).left(5+10*policies.Second, 10); got != 500 {
		t.Errorf("1000 after a half-life is %v, want 500", got)
	}
}

func TestLeastWork(t *testing.T) {
	// Q + n: 38000, 14000, 14000, 40000.
	for i, want := range []float64{38000, 14000, 14000, 40000} {
		if got := pendingWork(int64(goldenQ[i]), 0, goldenL-goldenC[i], goldenL, 0); got != want {
			t.Errorf("work of %d is %v, want %v", i, got, want)
		}
	}
	tokens := policies.Params{"attention": boolean(false)}
	w, u := golden(t, nil)
	if got := w.peek(build(LeastWork(), tokens, policies.Capability{AttentionDoubling: 6923}), u); got != 1 {
		t.Errorf("went to %d, want 1: the tie has 2 turns in flight on both", got)
	}
	w.lease(1, 1)
	w.lease(1, 1)
	w.lease(2, 2)
	if got := w.peek(build(LeastWork(), tokens, policies.Capability{}), u); got != 2 {
		t.Errorf("went to %d, want 2, which has as much work in fewer turns", got)
	}
	// With attention 10000 new tokens behind 30000 cost more than 2000 behind 38000, which 8000 more in the queue of 2 with
	// nothing before them do not make up for.
	w, u = golden(t, nil)
	for _, p := range []policies.Params{nil, {"attention_doubling_tokens": number(6923)}} {
		if got := w.peek(build(LeastWork(), p, policies.Capability{AttentionDoubling: 6923}), u); got != 2 {
			t.Errorf("%v: went to %d, want 2", p, got)
		}
	}
	if got := w.peek(build(LeastWork(), nil, policies.Capability{}), u); got != 1 {
		t.Errorf("without a known doubling it went to %d, want 1 as without attention", got)
	}
}

func TestBoundFits(t *testing.T) {
	for _, c := range []struct {
		inFlight, total int64
		n               int
		want            bool
	}{
		{0, 0, 4, true}, {1, 3, 4, true}, {2, 3, 4, false}, {2, 7, 4, true}, {3, 7, 4, false}, // 1.25 x 8/4 = 2.5
		{5, 15, 4, true}, {6, 15, 4, false}, // 1.25 x 16/4 = 5, inclusive
		{1, 0, 1, true},
	} {
		if got := boundFits(c.inFlight, c.total, c.n, 1.25); got != c.want {
			t.Errorf("%d of %d on %d replicas: %v, want %v", c.inFlight, c.total, c.n, got, c.want)
		}
	}
}

func TestCHWBLWalksTheOrderOfTheKey(t *testing.T) {
	const n = 5
	r := build(CHWBL(), policies.Params{"key": text("thread")}, policies.Capability{}).(*chwbl)
	w := newWorld(t, n, nil)
	u := &policies.Turn{Thread: 3, Prompt: prefix.Prefix{Tokens: 10}}
	// Every turn that is placed loads its replica, so that the walk goes on: at a mean m a replica takes turns up to 1.25 m.
	var order []policies.ReplicaID
	for range n {
		to, why := r.Route(w.now, w.view(), u)
		if want := policies.LoadBound; len(order) > 0 && why != want || len(order) == 0 && why != policies.Affinity {
			t.Errorf("placement %d: %v", len(order), why)
		}
		for _, before := range order {
			if before == to {
				t.Fatalf("went to %d again, after %v", to, order)
			}
		}
		order = append(order, to)
		for range 2 {
			w.lease(to, 1) // 2 > 1.25 (2k + 1)/5 for k < 4 is so for k <= 3
		}
		if len(order) == 4 {
			break
		}
	}
	// Without a bound it stays; when its owner goes down it moves to the second of the order, and comes back.
	plain := build(CHWBL(), policies.Params{"key": text("thread"), "load_factor": number(1e9)}, policies.Capability{})
	for _, c := range []struct {
		kind policies.FactKind
		want policies.ReplicaID
	}{{policies.ReplicaUp, order[0]}, {policies.ReplicaDown, order[1]}, {policies.ReplicaUp, order[0]}} {
		w.step(policies.Fact{Kind: c.kind, Replica: order[0]})
		if got, why := plain.Route(w.now, w.view(), u); got != c.want || why != policies.Affinity {
			t.Errorf("went to %d (%v), want %d", got, why, c.want)
		}
	}
}

// Nobody within the bound cannot happen with all turns counted, since the least is at most the mean; with one replica the
// bound is at least 1.25 (F + 1).
func TestCHWBLKeysSpreadEvenly(t *testing.T) {
	w := newWorld(t, 4, nil)
	const n = 20000
	for _, key := range []string{"thread", "session"} {
		r := build(CHWBL(), policies.Params{"key": text(key)}, policies.Capability{})
		counts := make([]int, 4)
		for i := range int32(n) {
			counts[w.peek(r, &policies.Turn{Thread: policies.ThreadID(i), Session: policies.SessionID(i), Prompt: prefix.Prefix{Tokens: 1}})]++
		}
		evenly(t, key, counts, n)
	}
}

// Prompts with the same first tokens have the same key, whatever stream names them; others do not.
func TestCHWBLPrefixKeyIsContent(t *testing.T) {
	w := newWorld(t, 2, nil)
	root := w.tree.Root()
	late, early := w.tree.Fork(prefix.Prefix{Stream: root, Tokens: 300}), w.tree.Fork(prefix.Prefix{Stream: root, Tokens: 200})
	m := build(CHWBL(), nil, policies.Capability{}).(*chwbl)
	key := func(s prefix.StreamID, tokens int32) uint64 {
		return m.keyOf(w.view(), &policies.Turn{Prompt: prefix.Prefix{Stream: s, Tokens: tokens}})
	}
	if key(root, 1000) != key(late, 5000) || key(root, 256) != key(late, 900) {
		t.Error("the same first 256 tokens have different keys")
	}
	if key(root, 1000) == key(early, 1000) || key(root, 255) == key(root, 256) {
		t.Error("different first tokens have the same key")
	}
}
