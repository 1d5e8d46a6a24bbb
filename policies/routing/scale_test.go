package routing

import (
	"fmt"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/admission"
	"github.com/sluice-sim/sluice/prefix"
)

// cluster is a Controller with its own router over many replicas, loaded like a serving cluster: every replica holds the
// system prompt, every session's content is on the replica it went to last and now and then on a second one, and each
// replica has the same load, most of it decoding.
type cluster struct {
	c        *policies.Controller
	router   policies.Router
	replicas int
	sessions int
	turns    []int32 // by session: turns so far
	prompt   []int32 // by session: tokens so far, and where they are
	homes    []policies.ReplicaID
	running  []policies.AttemptID // ring of leases: the oldest finishes, the next in line gets its first token
	oldest   int
	decoding int
	next     policies.AttemptID
	now      policies.Time
	x        uint64
	facts    []policies.Fact
	out      []policies.Command
}

const (
	systemTokens = 3200
	perReplica   = 8 // sessions
	atOnce       = 2 // leases for each replica
)

func newCluster(d policies.Declaration, replicas int) *cluster {
	tree := &prefix.Tree{}
	tree.Root()
	k := &cluster{
		router: build(d, nil, policies.Capability{PrefillTokensPerSec: 20000, AttentionDoubling: 7000}), replicas: replicas, sessions: perReplica * replicas,
		x: 7,
	}
	k.c = policies.NewController(policies.ControllerConfig{Tree: tree, Replicas: replicas, Gate: admission.None().NewGate(policies.Env{}, nil), Router: k.router})
	for r := range policies.ReplicaID(replicas) {
		k.step(policies.Fact{Kind: policies.ReplicaUp, Replica: r},
			policies.Fact{Kind: policies.BlocksStored, Replica: r, Hi: systemTokens / 16, BlockTokens: 16}, k.sampleOf(r))
	}
	k.turns, k.prompt, k.homes = make([]int32, k.sessions), make([]int32, k.sessions), make([]policies.ReplicaID, k.sessions)
	for s := range k.sessions {
		k.homes[s] = policies.NoReplica
		tree.Fork(prefix.Prefix{Stream: 0, Tokens: systemTokens})
		k.prompt[s] = systemTokens
	}
	k.running = make([]policies.AttemptID, atOnce*replicas)
	for range max(20*len(k.running), 4000) {
		k.turn()
	}
	return k
}

func (k *cluster) sampleOf(r policies.ReplicaID) policies.Fact {
	return policies.Fact{Kind: policies.MetricsSampled, Replica: r, Sample: policies.Sample{At: k.now, Has: policies.HasRunning | policies.HasWaiting, Running: atOnce}}
}

func (k *cluster) step(f ...policies.Fact) {
	k.now += 1e6
	k.facts = append(k.facts[:0], f...)
	k.out = k.c.Step(k.now, k.facts, k.out[:0])
}

func (k *cluster) random(n int) int {
	k.x = k.x*6364136223846793005 + 1442695040888963407
	return int((k.x >> 33) % uint64(n))
}

// draw is the next turn of a session.
func (k *cluster) draw() (int32, policies.Turn) {
	k.next++
	s := int32(k.random(k.sessions))
	return s, policies.Turn{
		Attempt: k.next, Thread: policies.ThreadID(s), Session: policies.SessionID(s), Number: k.turns[s] + 1,
		Prompt: prefix.Prefix{Stream: prefix.StreamID(s + 1), Tokens: k.prompt[s] + 800},
	}
}

// turn has one turn arrive, one get its first token and one finish, with the KV facts that go with them.
func (k *cluster) turn() {
	s, u := k.draw()
	k.step(policies.Fact{Kind: policies.TurnArrived, Turn: u})
	to := k.out[len(k.out)-1].Replica
	stream := prefix.StreamID(s + 1)
	lo, mid, hi := k.prompt[s]/16, (k.prompt[s]+800)/16, (k.prompt[s]+1600)/16
	if k.homes[s] != to {
		lo = systemTokens / 16
	}
	first := k.running[(k.oldest+k.decoding)%len(k.running)]
	if k.decoding < len(k.running)*9/10 {
		k.decoding++
	}
	k.step(policies.Fact{Kind: policies.FirstToken, Attempt: first},
		policies.Fact{Kind: policies.BlocksStored, Replica: to, Stream: stream, Lo: lo, Hi: mid, BlockTokens: 16},
		policies.Fact{Kind: policies.BlocksStored, Replica: to, Stream: stream, Lo: mid, Hi: hi, BlockTokens: 16}, k.sampleOf(to))
	if old := k.homes[s]; old != policies.NoReplica && old != to && s%4 > 0 {
		k.step(policies.Fact{Kind: policies.BlocksEvicted, Replica: old, Stream: stream, Lo: systemTokens / 16, Hi: k.prompt[s] / 16, BlockTokens: 16})
	}
	k.step(policies.Fact{Kind: policies.Finished, Attempt: k.running[k.oldest], OutputTokens: 800})
	k.homes[s] = to
	k.turns[s]++
	k.prompt[s] += 1600
	if k.prompt[s] > 40000 { // the session starts over
		k.step(policies.Fact{Kind: policies.BlocksEvicted, Replica: to, Stream: stream, Lo: systemTokens / 16, Hi: hi, BlockTokens: 16})
		k.prompt[s], k.turns[s], k.homes[s] = systemTokens, 0, policies.NoReplica
	}
	k.running[k.oldest] = u.Attempt
	k.oldest = (k.oldest + 1) % len(k.running)
}

// BenchmarkDecision is what one decision costs, and BenchmarkWholeTurn a turn with its facts, at the same load for each
// replica.
func BenchmarkDecision(b *testing.B)  { benchmarkScale(b, (*cluster).peek) }
func BenchmarkWholeTurn(b *testing.B) { benchmarkScale(b, (*cluster).turn) }

func (k *cluster) peek() {
	_, u := k.draw()
	k.router.Peek(k.now, k.c.View(), &u)
}

func benchmarkScale(b *testing.B, f func(*cluster)) {
	for _, d := range []policies.Declaration{RoundRobin(), LeastRequests(), Sticky(), VLLMDP(), LMetric(), SMetric(), SMetricFigure()} {
		for _, n := range []int{8, 64, 512, 4096} {
			b.Run(fmt.Sprintf("%s/%d", d.Name, n), func(b *testing.B) {
				k := newCluster(d, n)
				b.ReportAllocs()
				for b.Loop() {
					f(k)
				}
			})
		}
	}
}

// BenchmarkFacts is what one fact costs, each about another replica.
func BenchmarkFacts(b *testing.B) {
	for _, n := range []int{8, 4096} {
		k := newCluster(SMetric(), n)
		for _, kind := range []string{"sample", "grow and evict the tail", "evict and store the system prompt", "progress"} {
			b.Run(fmt.Sprintf("%s/%d", kind, n), func(b *testing.B) {
				output := int32(1)
				for b.Loop() {
					r := policies.ReplicaID(k.random(n))
					switch kind {
					case "sample":
						k.step(k.sampleOf(r))
					case "progress":
						output++
						k.step(policies.Fact{Kind: policies.TokensProgressed, Attempt: k.running[k.random(len(k.running))], OutputTokens: output})
					case "grow and evict the tail":
						s := k.random(k.sessions)
						f := policies.Fact{Kind: policies.BlocksStored, Replica: max(0, k.homes[s]), Stream: prefix.StreamID(s + 1), Lo: 20000, Hi: 20001, BlockTokens: 16}
						e := f
						e.Kind = policies.BlocksEvicted
						k.step(f, e)
					default:
						f := policies.Fact{Kind: policies.BlocksEvicted, Replica: r, Lo: 100, Hi: 200, BlockTokens: 16}
						e := f
						e.Kind = policies.BlocksStored
						k.step(f, e)
					}
				}
			})
		}
	}
}
