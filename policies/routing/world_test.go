package routing

import (
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
