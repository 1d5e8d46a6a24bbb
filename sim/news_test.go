package sim

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/traces"
)

// listener is a router that writes down what it knows of every prompt that it places. It follows the longest hit for two
// turns of three, so that content is where it looks, and draws the replica of the third.
type listener struct{ heard *[]string }

func (listener) Observe(policies.Time, *policies.View, *policies.Fact) {}

func (l listener) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	hits := make([]int32, v.Replicas())
	v.AllHitTokens(t.Prompt, hits)
	*l.heard = append(*l.heard, fmt.Sprintf("%d: session %d turn %d retry %d of %d tokens: %d", now, t.Session, t.Number, t.Retry, t.Prompt.Tokens, hits))
	return l.Peek(now, v, t), policies.BestScore
}

func (l listener) Peek(_ policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	up := v.Up()
	if len(up) == 0 {
		return policies.NoReplica
	}
	draw := exact.Hash2(7, uint64(t.Session), uint64(t.Number))
	if draw%3 == 0 {
		return up[int(draw/3)%len(up)]
	}
	hits := make([]int32, v.Replicas())
	v.AllHitTokens(t.Prompt, hits)
	return slices.MaxFunc(up, func(a, b policies.ReplicaID) int { return int(hits[a] - hits[b]) })
}

// family is a trace of sessions behind one system prompt with long outputs; some sessions begin with what another one has
// written, or is still writing.
func family(rt *rapid.T) *traces.Trace {
	tr := &traces.Trace{Name: "family", Tree: &prefix.Tree{}, Models: []string{"m"}}
	system := int32(rapid.IntRange(1, 60).Draw(rt, "system"))
	root := tr.Tree.Root()
	for i := range rapid.IntRange(3, 8).Draw(rt, "sessions") {
		from := prefix.Prefix{Stream: root, Tokens: system}
		if i > 0 && rapid.IntRange(0, 3).Draw(rt, "kin") == 0 {
			other := tr.Sessions[rapid.IntRange(0, i-1).Draw(rt, "of")].Turns[0]
			from = prefix.Prefix{Stream: other.Prompt.Stream, Tokens: other.Prompt.Tokens + other.OutputTokens*int32(rapid.IntRange(0, 4).Draw(rt, "quarters"))/4}
		}
		own, prompt := tr.Tree.Fork(from), from.Tokens
		s := traces.Session{Name: fmt.Sprint(i), StartNS: traces.Unknown, Group: -1, Threads: 1}
		for j := range rapid.IntRange(1, 5).Draw(rt, "turns") {
			prompt += int32(rapid.IntRange(1, 400).Draw(rt, "added"))
			t := traces.Turn{Number: int32(j + 1), Prompt: prefix.Prefix{Stream: own, Tokens: prompt}, OutputTokens: int32(rapid.IntRange(1, 500).Draw(rt, "output")), DurationNS: traces.Unknown, DepLo: int32(len(s.Deps))}
			gap := int64(rapid.IntRange(0, 4000).Draw(rt, "gap ms")) * 1e6
			if j > 0 {
				s.Deps = append(s.Deps, traces.Dep{Turn: int32(j - 1), DelayNS: gap})
			} else {
				t.StartNS = gap
			}
			t.DepHi = int32(len(s.Deps))
			s.Turns = append(s.Turns, t)
			prompt += t.OutputTokens
		}
		tr.Sessions = append(tr.Sessions, s)
	}
	return tr
}

// TestPoliciesHearWhatMatters runs a router that writes down every hit that it knows of, jumping and walking: whatever the
// simulator does not tell before a decision must not have mattered to it. KV is so tight that decoding evicts what turns
// come back for.
func TestPoliciesHearWhatMatters(t *testing.T) {
	saved, decisions := int64(0), 0
	rapid.Check(t, func(rt *rapid.T) {
		c := world(t, family(rt), rapid.SampledFrom([]string{"none", "max-requests", "session"}).Draw(rt, "gate"), "round-robin")
		longest := int32(0)
		for _, s := range c.Trace.Sessions {
			for _, x := range s.Turns {
				longest = max(longest, x.Prompt.Tokens+x.OutputTokens)
			}
		}
		c.Replicas = rapid.IntRange(1, 3).Draw(rt, "replicas")
		c.KVBlocks = longest/16 + 2 + int32(rapid.IntRange(0, 150).Draw(rt, "spare blocks"))
		c.Engine.Async = rapid.Bool().Draw(rt, "async")
		c.Signals.KVEventDelayPS = int64(rapid.SampledFrom([]float64{0, 0, 2e11}).Draw(rt, "kv delay"))
		c.Clients = Clients{TimeoutPS: int64(rapid.SampledFrom([]float64{0, 0, 2e12}).Draw(rt, "timeout")), Retries: 2, CancelUpstream: rapid.Bool().Draw(rt, "cancel")}
		if c.Gate.Name == "max-requests" {
			c.GateParams = c.Gate.Resolve(policies.Params{"max_requests": {Number: 2}})
		}
		if rapid.IntRange(0, 3).Draw(rt, "faults") == 0 {
			randomFaults(rt, c)
		}
		heard := make([][]string, 2)
		for k := range heard {
			c.Walk = k == 1
			c.Router = policies.Declaration{
				Name: "listener", Needs: policies.NeedsKVEvents,
				NewRouter: func(policies.Env, policies.Params) policies.Router { return listener{&heard[k]} },
			}
			_, totals := simulate(rt, c)
			saved += totals.Events * int64(2*k-1)
		}
		decisions += len(heard[0])
		for k, x := range heard[0] {
			if k >= len(heard[1]) || x != heard[1][k] {
				rt.Fatalf("decision %d of %d and %d, jumping and walking:\n%s\n%s", k, len(heard[0]), len(heard[1]), x, heard[1][min(k, len(heard[1])-1)])
			}
		}
	})
	if saved < 1000 || decisions < 500 {
		t.Errorf("%d decisions, and jumping saved %d events; it was not tested", decisions, saved)
	}
}
