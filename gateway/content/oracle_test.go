package content

import (
	"encoding/binary"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/gateway/kvevents"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/admission"
	"github.com/sluice-sim/sluice/policies/routing"
	"github.com/sluice-sim/sluice/prefix"
)

// world is a table, a core that is told its facts, and the slow obvious model of both: prompts are lists of tokens, and what a
// replica is known to hold is a map of whole prefixes.
type world struct {
	t       *rapid.T
	table   *Table
	tree    *prefix.Tree
	core    *policies.Controller
	now     policies.Time
	prompts []placed
	engines []fakeEngine
	next    kvevents.Hash
}

type placed struct {
	ids []int32
	at  prefix.Prefix
}

// fakeEngine holds blocks of size tokens, by the prefix that ends with them. What the table missed of it is not known.
type fakeEngine struct {
	size  int
	heard bool
	holds map[string]*held
}

type held struct {
	ids    []int32
	hash   kvevents.Hash
	copies int
	known  int // copies that the table knows of
}

const worldBlock = 2

func keyOf(ids []int32) string {
	b := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return string(b)
}

func newWorld(t *rapid.T) *world {
	h, err := NewHasher(secret, worldBlock)
	if err != nil {
		t.Fatal(err)
	}
	x := &world{t: t, tree: &prefix.Tree{}, next: 100}
	x.table = New(x.tree, h, Options{IdleBlocks: rapid.SampledFrom([]int64{-1, 3, 1000}).Draw(t, "idle")})
	for _, size := range []int{2, 2, 4} {
		x.engines = append(x.engines, fakeEngine{size: size, holds: map[string]*held{}})
	}
	x.core = policies.NewController(policies.ControllerConfig{Tree: x.tree, Replicas: len(x.engines),
		Gate: admission.None().NewGate(policies.Env{}, nil), Router: routing.RoundRobin().NewRouter(policies.Env{}, routing.RoundRobin().Resolve(nil))})
	var up []policies.Fact
	for r := range x.engines {
		up = append(up, policies.Fact{Kind: policies.ReplicaUp, Replica: policies.ReplicaID(r)})
	}
	x.step(up)
	return x
}

func (x *world) step(facts []policies.Fact) {
	x.now++
	x.core.Step(x.now, facts, nil)
}

func (x *world) ids() []int32 {
	var ids []int32
	if len(x.prompts) > 0 && rapid.IntRange(0, 3).Draw(x.t, "new") > 0 {
		old := rapid.SampledFrom(x.prompts).Draw(x.t, "old").ids
		ids = slices.Clone(old[:rapid.IntRange(0, len(old)).Draw(x.t, "kept")])
	}
	more := rapid.SliceOfN(rapid.Int32Range(0, 2), 0, 12).Draw(x.t, "more")
	if ids = append(ids, more...); len(ids) == 0 {
		ids = []int32{1}
	}
	return ids
}

func (x *world) place() {
	ids := x.ids()
	c, err := x.table.hasher.Tokens(Chain{}, "m", ids)
	if err != nil {
		x.t.Fatal(err)
	}
	p, err := x.table.Place(c)
	if err != nil {
		x.t.Fatal(err)
	}
	x.prompts = append(x.prompts, placed{ids, p})
}

func (x *world) drop() {
	if len(x.prompts) == 0 {
		return
	}
	i := rapid.IntRange(0, len(x.prompts)-1).Draw(x.t, "dropped")
	x.table.Drop(x.prompts[i].at.Stream)
	x.prompts = slices.Delete(x.prompts, i, i+1)
}

// store has an engine compute a prompt that may be one of the table's or not.
func (x *world) store() {
	r := rapid.IntRange(0, len(x.engines)-1).Draw(x.t, "replica")
	e := &x.engines[r]
	ids := x.ids()
	batch := &kvevents.Batch{}
	var event *kvevents.Event
	var before *held
	for end := e.size; end <= len(ids); end += e.size {
		key := keyOf(ids[:end])
		h := e.holds[key]
		again := h != nil && rapid.IntRange(0, 5).Draw(x.t, "again") == 0
		if h == nil || again {
			if h == nil {
				x.next++
				h = &held{ids: ids[:end], hash: x.next}
				e.holds[key] = h
			}
			h.copies++
			if event == nil {
				batch.Events = append(batch.Events, kvevents.Event{Kind: kvevents.BlockStored, BlockTokens: int32(e.size), Group: -1, Medium: "GPU"})
				event = &batch.Events[len(batch.Events)-1]
				if before != nil {
					event.HasParent, event.Parent = true, before.hash
				}
			}
			event.Hashes = append(event.Hashes, h.hash)
			event.Tokens = append(event.Tokens, ids[end-e.size:end]...)
			if !event.HasParent || event.Parent != 0 && x.knows(e, ids[:end-len(event.Tokens)]) {
				h.known++
				e.heard = true
			}
		} else {
			event = nil
		}
		before = h
	}
	x.step(x.table.Apply(policies.ReplicaID(r), batch, nil))
}

func (x *world) knows(e *fakeEngine, ids []int32) bool {
	h := e.holds[keyOf(ids)]
	return h != nil && h.known > 0
}

func (x *world) evict() {
	r := rapid.IntRange(0, len(x.engines)-1).Draw(x.t, "replica")
	e := &x.engines[r]
	var keys []string
	for k := range e.holds {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	if len(keys) == 0 {
		return
	}
	event := kvevents.Event{Kind: kvevents.BlockRemoved, Group: -1}
	for range rapid.IntRange(1, 4).Draw(x.t, "evicted") {
		k := rapid.SampledFrom(keys).Draw(x.t, "block")
		h := e.holds[k]
		if h == nil {
			continue
		}
		event.Hashes = append(event.Hashes, h.hash)
		h.known = max(0, h.known-1)
		if h.copies--; h.copies == 0 {
			delete(e.holds, k)
		}
	}
	x.step(x.table.Apply(policies.ReplicaID(r), &kvevents.Batch{Events: []kvevents.Event{event}}, nil))
}

// forget is a reset: the engine goes on and the table knows nothing of it.
func (x *world) forget() {
	r := rapid.IntRange(0, len(x.engines)-1).Draw(x.t, "replica")
	for _, h := range x.engines[r].holds {
		h.known = 0
	}
	x.step(x.table.Clear(policies.ReplicaID(r), nil))
}

// comeUp is a replica that is down for the core for a moment, and not for its subscriber.
func (x *world) comeUp() {
	r := policies.ReplicaID(rapid.IntRange(0, len(x.engines)-1).Draw(x.t, "replica"))
	x.step([]policies.Fact{{Kind: policies.ReplicaDown, Replica: r}})
	x.step(x.table.Announce(r, []policies.Fact{{Kind: policies.ReplicaUp, Replica: r}}))
}

func (x *world) check() {
	held, resident := int64(0), int64(0)
	for i := range x.prompts {
		a := &x.prompts[i]
		held++
		if a.at.Tokens != int32(len(a.ids)) {
			x.t.Fatalf("prompt of %d tokens is %v", len(a.ids), a.at)
		}
		for k := range i {
			b := &x.prompts[k]
			n := 0
			for n < min(len(a.ids), len(b.ids)) && a.ids[n] == b.ids[n] {
				n++
			}
			if got := x.tree.Common(a.at, b.at); got/worldBlock != int32(n/worldBlock) {
				x.t.Fatalf("%v and %v share %d tokens, expected %d: %v at %v, %v at %v", a.ids, b.ids, got, n, a.ids, a.at, b.ids, b.at)
			}
		}
		for r := range x.engines {
			e := &x.engines[r]
			want := 0
			for want+e.size < len(a.ids) && x.knows(e, a.ids[:want+e.size]) { // never the last token
				want += e.size
			}
			got, _ := x.core.View().HitTokens(policies.ReplicaID(r), a.at)
			if got != int32(want) {
				x.t.Fatalf("%v at %v: %d tokens resident on %d, expected %d", a.ids, a.at, got, r, want)
			}
		}
	}
	for r := range x.engines {
		for _, h := range x.engines[r].holds {
			resident += int64(h.known)
		}
	}
	s := x.table.Stats()
	if s.Held != held || s.ResidentBlocks != resident {
		x.t.Fatalf("%+v, expected %d held and %d resident", s, held, resident)
	}
	x.audit()
}

// audit counts the table's books again.
func (x *world) audit() {
	blocks, idle := int64(0), int64(0)
	for i := range x.table.streams {
		if s := prefix.StreamID(i); !x.tree.Released(s) {
			st := &x.table.streams[i]
			blocks += int64(len(st.hashes))
			if st.idle {
				idle += int64(len(st.hashes))
			}
			if !st.live() && !st.idle {
				x.t.Fatalf("stream %d is lost: nobody refers to it and it is not idle", i)
			}
			if f := x.tree.Stream(s); f.ForkAt != st.first*worldBlock {
				x.t.Fatalf("stream %d begins at block %d, in the tree at token %d", i, st.first, f.ForkAt)
			}
		}
	}
	if s := x.table.Stats(); s.Blocks != blocks || s.IdleBlocks != idle || idle > x.table.opts.IdleBlocks {
		x.t.Fatalf("%+v, counted %d blocks, %d idle of at most %d", s, blocks, idle, x.table.opts.IdleBlocks)
	}
}

func TestTableAgainstMapsOfWholePrefixes(t *testing.T) {
	released := int64(0)
	rapid.Check(t, func(t *rapid.T) {
		x := newWorld(t)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch k := rapid.IntRange(0, 19).Draw(t, "kind"); {
			case k < 5:
				x.place()
			case k < 9:
				x.drop()
			case k < 13:
				x.store()
			case k < 17:
				x.evict()
			case k < 18:
				x.forget()
			default:
				x.comeUp()
			}
			x.check()
		}
		for len(x.prompts) > 0 {
			x.drop()
		}
		for r := range x.engines {
			x.step(x.table.Clear(policies.ReplicaID(r), nil))
		}
		if s := x.table.Stats(); s.Blocks != s.IdleBlocks || s.Held != 0 || s.ResidentBlocks != 0 {
			t.Fatalf("in the end: %+v", s)
		}
		released += x.table.Stats().Released
	})
	if released < 100 {
		t.Errorf("only %d streams were released", released)
	}
}
