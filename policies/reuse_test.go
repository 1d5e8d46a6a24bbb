package policies_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/prefix"
)

// twins is one world told to two cores: one reads a tree whose slots are used again, the other a tree that only grows.
// Whatever is kept by stream must not outlive the stream, or their decisions part.
type twins struct {
	t                  *rapid.T
	trees              [2]*prefix.Tree
	cores              [2]*policies.Controller
	facts              [2][]policies.Fact
	live               []*twinStream
	now                policies.Time
	next               policies.AttemptID
	running            []twinTurn
	reused, dispatched int
}

type twinStream struct {
	id       [2]prefix.StreamID
	parent   *twinStream
	fork     int32
	children int
	leases   int
	held     map[policies.ReplicaID]int32 // end of the blocks held
}

type twinTurn struct {
	attempt policies.AttemptID
	stream  *twinStream
	tokens  int32
}

const (
	twinReplicas = 8 // streams that more than four hold are wide
	twinBlock    = 16
)

func newTwins(t *rapid.T, a arm) *twins {
	x := &twins{t: t, now: 1}
	for i := range x.cores {
		x.trees[i] = &prefix.Tree{}
		r, err := catalog.BuildRouter(a.router, policies.Env{Capability: policies.Capability{PrefillTokensPerSec: 900, AttentionDoubling: 7000}}, a.routerParams)
		if err != nil {
			t.Fatal(err)
		}
		x.cores[i] = policies.NewController(policies.ControllerConfig{Tree: x.trees[i], Replicas: twinReplicas, Gate: none(), Router: r})
		x.facts[i] = upAll(twinReplicas)
	}
	return x
}

func (x *twins) grow() *twinStream {
	s := &twinStream{held: map[policies.ReplicaID]int32{}}
	if len(x.live) > 0 && rapid.IntRange(0, 4).Draw(x.t, "root") > 0 {
		s.parent = rapid.SampledFrom(x.live).Draw(x.t, "parent")
		s.fork = s.parent.fork + twinBlock*int32(rapid.IntRange(1, 6).Draw(x.t, "fork"))
		s.parent.children++
	}
	for i, tree := range x.trees {
		n := tree.Len()
		if s.parent == nil {
			s.id[i] = tree.Root()
		} else {
			s.id[i] = tree.Fork(prefix.Prefix{Stream: s.parent.id[i], Tokens: s.fork})
		}
		if tree.Len() == n {
			x.reused++
		}
	}
	x.live = append(x.live, s)
	return s
}

// release releases a stream that nobody refers to, in the first tree only.
func (x *twins) release() {
	for i, s := range x.live {
		if s.children == 0 && s.leases == 0 && len(s.held) == 0 {
			if s.parent != nil {
				s.parent.children--
			}
			x.trees[0].Release(s.id[0])
			x.live = append(x.live[:i], x.live[i+1:]...)
			return
		}
	}
}

func (x *twins) tell(f policies.Fact, s *twinStream) {
	for i := range x.facts {
		g := f
		if s != nil {
			g.Stream = s.id[i]
			g.Turn.Prompt.Stream = s.id[i]
		}
		x.facts[i] = append(x.facts[i], g)
	}
}

// path is s and its parents, the root first.
func (s *twinStream) path() []*twinStream {
	if s == nil {
		return nil
	}
	return append(s.parent.path(), s)
}

// store has r hold a prompt of tokens tokens of s, as an engine does: every stream of its path from its fork on.
func (x *twins) store(r policies.ReplicaID, s *twinStream, tokens int32) {
	path := s.path()
	for i, p := range path {
		hi := tokens / twinBlock
		if i+1 < len(path) {
			hi = path[i+1].fork / twinBlock
		}
		lo := max(p.fork/twinBlock, p.held[r])
		if lo < hi {
			p.held[r] = hi
			x.tell(policies.Fact{Kind: policies.BlocksStored, Replica: r, Lo: lo, Hi: hi, BlockTokens: twinBlock}, p)
		}
	}
}

func (x *twins) evict(s *twinStream) {
	for r := range policies.ReplicaID(twinReplicas) {
		if hi, ok := s.held[r]; ok && (s.children == 0 || rapid.IntRange(0, 3).Draw(x.t, "keep") == 0) {
			delete(s.held, r)
			x.tell(policies.Fact{Kind: policies.BlocksEvicted, Replica: r, Lo: s.fork / twinBlock, Hi: hi, BlockTokens: twinBlock}, s)
		}
	}
}

func (x *twins) arrive() {
	s := rapid.SampledFrom(x.live).Draw(x.t, "stream")
	tokens := s.fork + int32(rapid.IntRange(1, 200).Draw(x.t, "tokens"))
	x.next++
	f := turn(x.next, policies.ThreadID(rapid.IntRange(0, 5).Draw(x.t, "thread")))
	f.Turn.Prompt.Tokens = tokens
	x.tell(f, s)
	s.leases++
	x.running = append(x.running, twinTurn{x.next, s, tokens})
}

func (x *twins) finish() {
	if len(x.running) == 0 {
		return
	}
	i := rapid.IntRange(0, len(x.running)-1).Draw(x.t, "finished")
	r := x.running[i]
	x.running = append(x.running[:i], x.running[i+1:]...)
	r.stream.leases--
	x.tell(policies.Fact{Kind: policies.Finished, Attempt: r.attempt, PromptTokens: r.tokens, OutputTokens: 10}, nil)
}

func (x *twins) step(events bool) {
	x.now += policies.Time(rapid.IntRange(1, 1000).Draw(x.t, "passes"))
	var out [2][]policies.Command
	for i, c := range x.cores {
		out[i] = c.Step(x.now, x.facts[i], nil)
		x.facts[i] = x.facts[i][:0]
	}
	if diff := cmp.Diff(out[1], out[0]); diff != "" {
		x.t.Fatalf("the core whose slots are used again decides otherwise (-grown +reused):\n%s", diff)
	}
	for _, c := range out[0] {
		if c.Kind == policies.Dispatch {
			x.dispatched++
			for _, r := range x.running {
				if events && r.attempt == c.Attempt {
					x.store(c.Replica, r.stream, r.tokens)
				}
			}
		}
	}
}

// A slot that is used again is another stream to every router. (chwbl and the hotspot rule of lmetric hash or count by the
// number itself, which is content only as long as it lives.)
func TestReuseOfSlots(t *testing.T) {
	for _, a := range symmetric {
		if a.router == "oracle" {
			continue
		}
		for _, events := range []bool{false, true} {
			name := a.name() + " by what was sent"
			if events {
				name = a.name() + " by events"
			}
			t.Run(name, func(t *testing.T) {
				reused := 0
				rapid.Check(t, func(t *rapid.T) {
					x := newTwins(t, a)
					for range rapid.IntRange(10, 120).Draw(t, "steps") {
						for range rapid.IntRange(1, 4).Draw(t, "changes") {
							switch k := rapid.IntRange(0, 9).Draw(t, "kind"); {
							case k < 2 || len(x.live) == 0:
								x.grow()
							case k < 5:
								x.arrive()
							case k < 7:
								x.finish()
							case k < 8:
								x.evict(rapid.SampledFrom(x.live).Draw(t, "evicted"))
							default:
								x.step(events) // releases are for what the core has heard of
								x.release()
							}
						}
						x.step(events)
					}
					reused += x.reused
				})
				if reused < 100 {
					t.Errorf("only %d slots were used again", reused)
				}
			})
		}
	}
}

// hold appends facts that replicas hold blocks lo to hi of s, or no longer do.
func hold(facts []policies.Fact, kind policies.FactKind, s prefix.StreamID, lo, hi int32, replicas ...policies.ReplicaID) []policies.Fact {
	for _, r := range replicas {
		facts = append(facts, policies.Fact{Kind: kind, Replica: r, Stream: s, Lo: lo, Hi: hi, BlockTokens: twinBlock})
	}
	return facts
}

// By hand: s continues a and is held widely; then it ends, and its slot continues c, which 1 and 2 hold and 0 does not. An
// order of replicas made for the former s would take 0, 1 and 2 for equal.
func TestReuseOfASharedStreamsSlot(t *testing.T) {
	const replicas = 40 // enough for an order to be kept
	tree := &prefix.Tree{}
	a, c := tree.Root(), tree.Root()
	s := tree.Fork(prefix.Prefix{Stream: a, Tokens: 160})
	router, err := catalog.BuildRouter("lmetric", policies.Env{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	core := policies.NewController(policies.ControllerConfig{Tree: tree, Replicas: replicas, Gate: none(), Router: router})
	facts := upAll(replicas)
	facts = hold(facts, policies.BlocksStored, a, 0, 10, 0, 1, 2, 3, 4, 5, 6, 7)
	facts = hold(facts, policies.BlocksStored, c, 0, 10, 1, 2, 3, 4, 5)
	facts = hold(facts, policies.BlocksStored, s, 10, 20, 3, 4, 5, 6, 7)
	core.Step(1, facts, nil)
	ask := func() policies.ReplicaID {
		return router.Peek(2, core.View(), &policies.Turn{Attempt: 1, Number: 1, Prompt: prefix.Prefix{Stream: s, Tokens: 400}})
	}
	hits := func(r policies.ReplicaID) int32 {
		n, _ := core.View().HitTokens(r, prefix.Prefix{Stream: s, Tokens: 400})
		return n
	}
	if to := ask(); to != 3 || hits(0) != 160 || hits(3) != 320 {
		t.Fatalf("before: to %d, with %d and %d tokens resident; expected 3, 160, 320", to, hits(0), hits(3))
	}
	core.Step(2, hold(nil, policies.BlocksEvicted, s, 10, 20, 3, 4, 5, 6, 7), nil)
	tree.Release(s)
	if again := tree.Fork(prefix.Prefix{Stream: c, Tokens: 160}); again != s {
		t.Fatalf("slot %d, expected %d", again, s)
	}
	if hits(0) != 0 || hits(1) != 160 {
		t.Errorf("the new stream: %d and %d tokens resident on 0 and 1, expected 0 and 160", hits(0), hits(1))
	}
	facts = hold(nil, policies.BlocksStored, s, 10, 20, 3, 4, 5, 6, 7)
	for r := policies.ReplicaID(3); r < 8; r++ {
		facts = append(facts, policies.Fact{Kind: policies.ReplicaDraining, Replica: r})
	}
	core.Step(3, facts, nil)
	if to := ask(); to != 1 {
		t.Errorf("the new stream goes to %d, expected 1, the first that holds what it continues", to)
	}
}
