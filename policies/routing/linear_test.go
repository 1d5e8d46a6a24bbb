package routing

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/admission"
	"github.com/sluice-sim/sluice/prefix"
)

// The routers that keep replicas in order against plain versions that look at every replica every time.

// plain is a router that looks at all replicas.
type plain interface {
	observe(f *policies.Fact)
	route(now policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID // and takes note of it
}

// argmin is the first of rs with the smallest score.
func argmin[S int32 | int64 | float64](rs []policies.ReplicaID, score func(policies.ReplicaID) S) policies.ReplicaID {
	best := policies.NoReplica
	var least S
	for _, r := range rs {
		if s := score(r); best == policies.NoReplica || s < least {
			best, least = r, s
		}
	}
	return best
}

type plainLeast struct{}

func (plainLeast) observe(*policies.Fact) {}
func (plainLeast) route(_ policies.Time, v *policies.View, _ *policies.Turn) policies.ReplicaID {
	return argmin(v.Up(), v.InFlight)
}

type plainVLLMDP struct {
	clients, client int
	waiting         map[policies.ReplicaID]int32
	running         map[policies.ReplicaID]int32
}

func (d *plainVLLMDP) observe(f *policies.Fact) {
	switch s := f.Sample; {
	case f.Kind == policies.ReplicaDown:
		delete(d.running, f.Replica)
		d.waiting[f.Replica] = 0
	case f.Kind == policies.MetricsSampled && s.Has&policies.HasRunning != 0 && s.Has&policies.HasWaiting != 0:
		d.waiting[f.Replica], d.running[f.Replica] = s.Waiting, s.Running
	}
}

func (d *plainVLLMDP) route(_ policies.Time, v *policies.View, _ *policies.Turn) policies.ReplicaID {
	up := v.Up()
	start := len(up) * d.client / d.clients
	rotated := append(append([]policies.ReplicaID{}, up[start:]...), up[:start]...)
	to := argmin(rotated, func(r policies.ReplicaID) int32 {
		if running, ok := d.running[r]; ok {
			return 4*d.waiting[r] + running
		}
		return v.InFlight(r)
	})
	d.waiting[to] += int32(d.clients)
	return to
}

func plainBatch(source string, v *policies.View, r policies.ReplicaID) int64 {
	s := v.Sample(r)
	sampled := s.Has&policies.HasRunning != 0 && s.Has&policies.HasWaiting != 0
	switch {
	case source == "ledger" || !sampled:
		return int64(v.InFlight(r))
	case source == "sample":
		return int64(s.Running + s.Waiting)
	}
	return max(int64(s.Running+s.Waiting), int64(v.InFlight(r)))
}

func plainHits(v *policies.View, t *policies.Turn) []int32 {
	hits := make([]int32, v.Replicas())
	v.EstimateHits(t, hits)
	return hits
}

type plainLMetric struct {
	queue, plusOne bool
	batch          string
}

func (plainLMetric) observe(*policies.Fact) {}
func (m plainLMetric) route(_ policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	hits := plainHits(v, t)
	return argmin(v.Up(), func(r policies.ReplicaID) int64 {
		tokens, batch := int64(max(1, t.Prompt.Tokens-hits[r])), plainBatch(m.batch, v, r)
		if m.queue {
			tokens += v.QueuedTokens(r)
		}
		if m.plusOne {
			batch++
		}
		return tokens * batch
	})
}

// plainSMetric takes its knobs from a smetric but none of its ways to find a replica.
type plainSMetric struct {
	*smetric
	source string
	ties   int
}

func (*plainSMetric) observe(*policies.Fact) {}

func (m *plainSMetric) route(now policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	up := v.Up()
	hits := plainHits(v, t)
	home := argmin(up, func(r policies.ReplicaID) int32 { return -hits[r] })
	if t.Number > 1 && float64(hits[home]) > m.hit*float64(m.expected(v, t)) && m.room(v, t, home, hits[home]) && (!m.mask || m.plainSafe(now, v, t, home, hits[home])) {
		return home
	}
	candidates := []policies.ReplicaID{}
	for _, r := range up {
		if m.mask && m.plainSafe(now, v, t, r, hits[r]) {
			candidates = append(candidates, r)
		}
	}
	if len(candidates) == 0 {
		candidates = up
	}
	score := func(r policies.ReplicaID) float64 {
		queued, moment, hit := v.QueuedTokens(r), v.QueuedMoment(r), hits[r]
		doubling := m.doublingOf(v, r)
		work := queuedWork(queued, moment, doubling) + prefillWork(t.Prompt.Tokens-hit, t.Prompt.Tokens, doubling)
		switch m.spill {
		case spillLMetric:
			return float64((queued + int64(max(1, t.Prompt.Tokens-hit))) * plainBatch(m.source, v, r))
		case spillLMetricAttention:
			return work * float64(plainBatch(m.source, v, r))
		case spillDynamo:
			return float64(v.QueuedTokens(r) + int64(t.Prompt.Tokens-hits[r]) + v.DecodeTokens(r))
		case spillPrefillWorkAttention:
			return work
		}
		return float64(queued + v.DecodeTokens(r))
	}
	least := score(argmin(candidates, score))
	var equal []policies.ReplicaID
	for _, r := range candidates {
		if score(r) == least {
			equal = append(equal, r)
		}
	}
	to := equal[m.ties%len(equal)]
	if len(equal) > 1 {
		m.ties++
	}
	return to
}

func (m *plainSMetric) room(v *policies.View, t *policies.Turn, home policies.ReplicaID, hit int32) bool {
	drain := m.drainOf(v, home, m.gate == gateBudgetAttention)
	doubling := m.doublingOf(v, home)
	n := t.Prompt.Tokens - hit
	switch {
	case m.gate == gateBudget && drain > 0:
		return float64(v.QueuedTokens(home)+int64(n))/drain <= m.gamma*ttftBudget(t.Prompt.Tokens)
	case m.gate == gateBudgetAttention && drain > 0:
		return (queuedWork(v.QueuedTokens(home), v.QueuedMoment(home), doubling)+prefillWork(n, t.Prompt.Tokens, doubling))/drain <= m.gamma*ttftBudget(t.Prompt.Tokens)
	}
	load := v.QueuedTokens
	if m.gate == gateOverload {
		load = func(r policies.ReplicaID) int64 { return v.QueuedTokens(r) + v.DecodeTokens(r) }
	}
	sum := int64(0)
	for _, r := range v.Up() {
		sum += load(r)
	}
	return overloadFits(load(home), sum, len(v.Up()), m.overload)
}

func (m *plainSMetric) plainSafe(now policies.Time, v *policies.View, t *policies.Turn, r policies.ReplicaID, hit int32) bool {
	drain := m.drainOf(v, r, true)
	took := prefillWork(t.Prompt.Tokens-hit, t.Prompt.Tokens, m.doublingOf(v, r)) / drain
	for le := v.FirstLease(r); le != nil && drain > 0; le = v.NextLease(le) {
		left := decodeBalance(le.Prompt.Tokens, le.Output, m.tpot, float64(now-le.Admitted)/float64(policies.Second))
		if le.Decoding && left >= 0 && took > left {
			return false
		}
	}
	return true
}

// pair is a router and its plain version.
type pair struct {
	name  string
	fast  policies.Router
	plain plain
}

func pairs() []pair {
	var all []pair
	add := func(d policies.Declaration, p policies.Params, by plain) {
		all = append(all, pair{fmt.Sprint(d.Name, p), build(d, p, policies.Capability{PrefillTokensPerSec: 300}), by})
	}
	add(LeastRequests(), nil, plainLeast{})
	for clients := 1; clients <= 3; clients++ {
		add(VLLMDP(), policies.Params{"client_count": number(float64(clients)), "client_index": number(float64(clients - 1))},
			&plainVLLMDP{clients, clients - 1, map[policies.ReplicaID]int32{}, map[policies.ReplicaID]int32{}})
	}
	for i, source := range batchNames {
		for _, queue := range []bool{false, true} {
			plusOne := queue != (i == 0)
			add(LMetric(), policies.Params{"include_queue": boolean(queue), "bs_plus_one": boolean(plusOne), "batch": text(source)},
				plainLMetric{queue, plusOne, source})
		}
	}
	for i, spill := range spillNames {
		for j, gate := range gateNames {
			p := policies.Params{"spill": text(spill), "gate": text(gate), "batch": text(batchNames[(i+j)%3]), "decode_mask": boolean((i+j)%4 == 3), "gamma": number(.2), "hit": number(.2)}
			m := *build(SMetric(), p, policies.Capability{PrefillTokensPerSec: 300}).(*smetric)
			m.rank = nil // not to be used by the plain version
			add(SMetric(), p, &plainSMetric{smetric: &m, source: batchNames[(i+j)%3]})
		}
	}
	return all
}

// crowd is a cluster of up to 40 replicas, most of them much alike, that facts happen to.
type crowd struct {
	t       *rapid.T
	c       *policies.Controller
	tree    *prefix.Tree
	pairs   []pair
	n       int
	now     policies.Time
	to      policies.ReplicaID
	next    policies.AttemptID
	threads int
}

func (w *crowd) Observe(now policies.Time, v *policies.View, f *policies.Fact) {
	for _, p := range w.pairs {
		p.fast.Observe(now, v, f)
		p.plain.observe(f)
	}
}
func (w *crowd) Route(policies.Time, *policies.View, *policies.Turn) (policies.ReplicaID, policies.Reason) {
	return w.to, policies.NoReason
}
func (w *crowd) Peek(policies.Time, *policies.View, *policies.Turn) policies.ReplicaID { return w.to }

func newCrowd(t *rapid.T) *crowd {
	w := &crowd{t: t, tree: &prefix.Tree{}, pairs: pairs(), n: rapid.IntRange(1, 40).Draw(t, "replicas"), threads: 6}
	capabilities := make([]policies.Capability, w.n)
	if rapid.IntRange(0, 2).Draw(t, "mixed") == 0 {
		for i := range capabilities {
			capabilities[i] = rapid.SampledFrom([]policies.Capability{{}, {AttentionDoubling: 70}, {AttentionDoubling: 30, PrefillTokensPerSec: 900}}).Draw(t, "capability")
		}
	} else {
		for i := range capabilities {
			capabilities[i].AttentionDoubling = 70
		}
	}
	w.c = policies.NewController(policies.ControllerConfig{
		Tree: w.tree, Replicas: w.n, Capabilities: capabilities, Gate: admission.None().NewGate(policies.Env{}, nil), Router: w,
	})
	// A system prompt, sessions on it, and whatever else.
	w.tree.Root()
	for range 4 {
		w.tree.Fork(prefix.Prefix{Stream: 0, Tokens: int32(rapid.SampledFrom([]int{64, 64, 60, 30}).Draw(t, "system"))})
	}
	for range 3 {
		w.tree.Fork(prefix.Prefix{Stream: w.stream(), Tokens: int32(rapid.IntRange(0, 150).Draw(t, "fork"))})
	}
	for r := range policies.ReplicaID(w.n) {
		if rapid.IntRange(0, 9).Draw(t, "down at first") > 0 {
			w.step(policies.Fact{Kind: policies.ReplicaUp, Replica: r})
			if rapid.IntRange(0, 5).Draw(t, "cold") > 0 {
				w.step(policies.Fact{Kind: policies.BlocksStored, Replica: r, Hi: 4, BlockTokens: 16})
			}
		}
	}
	return w
}

func (w *crowd) step(f policies.Fact) { w.c.Step(w.now, []policies.Fact{f}, nil) }

func (w *crowd) replica() policies.ReplicaID {
	return policies.ReplicaID(rapid.IntRange(0, w.n-1).Draw(w.t, "replica"))
}

func (w *crowd) stream() prefix.StreamID {
	return prefix.StreamID(rapid.IntRange(0, w.tree.Len()-1).Draw(w.t, "stream"))
}

func (w *crowd) turn() policies.Turn {
	w.next++
	thread := policies.ThreadID(rapid.IntRange(0, w.threads).Draw(w.t, "thread"))
	return policies.Turn{
		Attempt: w.next, Thread: thread, Session: policies.SessionID(thread), Number: int32(rapid.IntRange(1, 4).Draw(w.t, "number")),
		Prompt: prefix.Prefix{Stream: w.stream(), Tokens: rapid.SampledFrom([]int32{1, 40, 64, 65, 100, 130, 200}).Draw(w.t, "tokens")},
	}
}

// happen makes one fact.
func (w *crowd) happen() {
	w.now += policies.Time(rapid.SampledFrom([]int64{0, 1e6, 3e8}).Draw(w.t, "pass"))
	f := policies.Fact{Replica: w.replica(), Attempt: policies.AttemptID(rapid.Int64Range(max(0, int64(w.next)-12), int64(w.next)).Draw(w.t, "attempt"))}
	switch rapid.IntRange(0, 15).Draw(w.t, "kind") {
	case 0, 1, 2, 3:
		if w.c.View().IsUp(f.Replica) {
			w.to = f.Replica
			w.step(policies.Fact{Kind: policies.TurnArrived, Turn: w.turn()})
		}
		return
	case 4, 5:
		f.Kind = policies.FirstToken
	case 6, 7:
		f.Kind, f.OutputTokens = policies.Finished, int32(rapid.IntRange(1, 20).Draw(w.t, "output"))
	case 8:
		f.Kind, f.OutputTokens = policies.TokensProgressed, int32(rapid.IntRange(1, 5).Draw(w.t, "output"))
	case 9, 10:
		f.Kind = policies.MetricsSampled
		f.Sample = policies.Sample{At: w.now, Has: policies.SampleField(rapid.SampledFrom([]int{15, 15, 3, 1, 2, 0}).Draw(w.t, "has")),
			Running: int32(rapid.IntRange(0, 2).Draw(w.t, "running")), Waiting: int32(rapid.IntRange(0, 1).Draw(w.t, "waiting"))}
	case 11, 12, 13:
		f.Kind = rapid.SampledFrom([]policies.FactKind{policies.BlocksStored, policies.BlocksStored, policies.BlocksEvicted}).Draw(w.t, "blocks")
		f.Stream, f.BlockTokens = w.stream(), rapid.SampledFrom([]int32{16, 16, 16, 16, 16, 8}).Draw(w.t, "block size")
		f.Lo = int32(rapid.SampledFrom([]int{0, 0, 2, 4}).Draw(w.t, "lo"))
		f.Hi = f.Lo + int32(rapid.SampledFrom([]int{1, 2, 4, 10}).Draw(w.t, "blocks"))
	case 14:
		f.Kind = policies.ReplicaUp
	case 15:
		f.Kind = rapid.SampledFrom([]policies.FactKind{policies.ReplicaDown, policies.ReplicaDraining, policies.BlocksCleared, policies.ReplicaRestarted}).Draw(w.t, "state")
	}
	w.step(f)
}

// compare asks every router and its plain version about one turn.
func (w *crowd) compare() {
	u := w.turn()
	v := w.c.View()
	if len(v.Up()) == 0 {
		return
	}
	for _, p := range w.pairs {
		peeked := p.fast.Peek(w.now, v, &u)
		got, _ := p.fast.Route(w.now, v, &u)
		if want := p.plain.route(w.now, v, &u); got != want || peeked != want {
			w.t.Fatalf("%s sends %+v to %d (peek %d), want %d", p.name, u, got, peeked, want)
		}
	}
}

func TestRoutersAgainstLookingAtAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newCrowd(t)
		for range rapid.IntRange(1, 25).Draw(t, "rounds") {
			for range rapid.IntRange(0, 8).Draw(t, "facts") {
				w.happen()
			}
			w.compare()
		}
	})
}

// Signals that a router says it does not read change none of its decisions.
func TestSMetricReadsNoMoreThanItSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policies.Params{
			"spill": text(rapid.SampledFrom(spillNames).Draw(t, "spill")), "gate": text(rapid.SampledFrom(gateNames).Draw(t, "gate")),
			"batch": text(rapid.SampledFrom(batchNames).Draw(t, "batch")), "decode_mask": boolean(rapid.Bool().Draw(t, "mask")),
			"drain_per_s": number(rapid.SampledFrom([]float64{0, 300}).Draw(t, "drain")), "gamma": number(.2),
		}
		needs := SMetric().Signals(p)
		var views [2]*world
		for i := range views {
			views[i] = newWorld(nil, 6, nil)
		}
		both := func(f func(w *world)) { f(views[0]); f(views[1]) }
		a, b := build(SMetric(), p, policies.Capability{}), build(SMetric(), p, policies.Capability{})
		for range rapid.IntRange(1, 40).Draw(t, "facts") {
			r := policies.ReplicaID(rapid.IntRange(0, 5).Draw(t, "replica"))
			n := int32(rapid.IntRange(1, 3).Draw(t, "n"))
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				both(func(w *world) { w.lease(r, 100*n) })
			case 1:
				both(func(w *world) { w.decode(r, 100*n) })
			case 2:
				both(func(w *world) { w.store(r, 4*n) })
			case 3:
				views[0].sample(r, n, 0)
				if needs&policies.NeedsSamples != 0 {
					views[1].sample(r, n, 0)
				}
			case 4:
				f := policies.Fact{Kind: policies.TokensProgressed, Attempt: policies.AttemptID(n), OutputTokens: 50 * n}
				views[0].step(f)
				if needs&policies.NeedsProgress != 0 {
					views[1].step(f)
				}
			}
			u := &policies.Turn{Thread: 99, Number: n, Prompt: prefix.Prefix{Stream: 0, Tokens: 150}}
			to, _ := a.Route(views[0].now, views[0].view(), u)
			if got, _ := b.Route(views[1].now, views[1].view(), u); got != to {
				t.Fatalf("%v goes to %d, without the signals that it does not name to %d", p, to, got)
			}
		}
	})
}
