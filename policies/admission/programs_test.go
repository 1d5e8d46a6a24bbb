package admission

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// firstUp routes to the lowest replica that is up.
type firstUp struct{}

func (firstUp) Observe(policies.Time, *policies.View, *policies.Fact) {}
func (firstUp) Route(_ policies.Time, v *policies.View, _ *policies.Turn) (policies.ReplicaID, policies.Reason) {
	return v.Up()[0], policies.NoReason
}
func (firstUp) Peek(_ policies.Time, v *policies.View, _ *policies.Turn) policies.ReplicaID {
	return v.Up()[0]
}

// The sums that the table keeps are those that a count from scratch gives, whatever happens to its programs.
func TestTableAgainstCount(t *testing.T) {
	for _, d := range []policies.Declaration{ThunderAgent(), DynamoSessionAware()} {
		t.Run(d.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				p := d.Resolve(policies.Params{"tick_s": {Number: 2}, "timeout_s": {Number: 9}, "acting_half_life_s": {Number: 1}, "retention_s": {Number: 7}})
				g := d.NewGate(policies.Env{}, p).(*programGate)
				tree := &prefix.Tree{}
				tree.Root()
				kv := policies.Capability{KVTokens: 1500}
				c := policies.NewController(policies.ControllerConfig{Tree: tree, Replicas: 2, Capabilities: []policies.Capability{kv, kv}, Gate: g, Router: firstUp{}})
				var next policies.AttemptID
				now := policies.Time(0)
				c.Step(now, []policies.Fact{{Kind: policies.ReplicaUp}, {Kind: policies.ReplicaUp, Replica: 1}}, nil)
				for range rapid.IntRange(1, 80).Draw(t, "steps") {
					now += policies.Time(rapid.IntRange(0, 3).Draw(t, "pass")) * policies.Second
					f := policies.Fact{Kind: policies.TurnArrived}
					if rapid.Bool().Draw(t, "other") {
						f.Kind = rapid.SampledFrom([]policies.FactKind{
							policies.Finished, policies.Finished, policies.Failed, policies.ClientGone, policies.ThreadFinished, policies.ReplicaDown, policies.ReplicaUp,
							policies.ReplicaUp, policies.ReplicaDraining, policies.ReplicaRestarted, policies.Woke,
						}).Draw(t, "kind")
						f.Replica = policies.ReplicaID(rapid.IntRange(0, 1).Draw(t, "replica"))
						f.Attempt = policies.AttemptID(rapid.Int64Range(max(1, int64(next)-5), int64(next)+1).Draw(t, "attempt"))
						f.Thread = policies.ThreadID(rapid.IntRange(0, 5).Draw(t, "thread"))
						f.OutputTokens = int32(rapid.IntRange(1, 300).Draw(t, "output"))
					} else {
						next++
						th := policies.ThreadID(rapid.IntRange(0, 5).Draw(t, "thread"))
						f.Turn = policies.Turn{Attempt: next, Thread: th, Session: policies.SessionID(th), Number: 1, Prompt: prefix.Prefix{Tokens: int32(rapid.IntRange(1, 900).Draw(t, "tokens"))}}
					}
					c.Step(now, []policies.Fact{f}, nil)
					check(t, g, c.View())
				}
			})
		})
	}
}

func check(t *rapid.T, g *programGate, v *policies.View) {
	want := make([]backend, len(g.table.backends))
	aside := 0
	var live []policies.ThreadID
	for th := range g.table.programs {
		p := &g.table.programs[th]
		if p.stage == noProgram {
			continue
		}
		live = append(live, policies.ThreadID(th))
		if p.running != v.Running(policies.ThreadID(th)) {
			t.Fatalf("program %d: %d turns run, the ledger has %d", th, p.running, v.Running(policies.ThreadID(th)))
		}
		if p.stage != inPlace {
			aside++
			continue
		}
		if p.backend == policies.NoReplica {
			continue
		}
		b := &want[p.backend]
		b.programs++
		if p.running > 0 || p.waits != noTurn {
			b.reasoning += int64(p.tokens)
		} else {
			b.acting += int64(p.tokens)
		}
	}
	for r := range want {
		if want[r].room = g.table.backends[r].room; want[r] != g.table.backends[r] {
			t.Fatalf("replica %d: counted %+v, kept %+v", r, want[r], g.table.backends[r])
		}
	}
	slices.SortFunc(live, func(a, b policies.ThreadID) int { return int(g.table.programs[a].order - g.table.programs[b].order) })
	if aside != g.table.aside || !slices.Equal(live, g.table.live) {
		t.Fatalf("counted %d aside and %v, kept %d and %v", aside, live, g.table.aside, g.table.live)
	}
}
