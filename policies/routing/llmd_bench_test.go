package routing

import (
	"fmt"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// llmdEverything is all scorers, all filters and both prefix indexes.
func llmdEverything(picker, prefix string) policies.Params {
	p := policies.Params{
		"picker": text(picker), "prefix": text(prefix), "speculative_indexing": boolean(true), "prefix_scale": text(scaleMinMax),
		"match_length_weight": number(.5), "output_ratio": number(1.5), "utilization_filter": boolean(true), "session_filter": boolean(true),
		"affinity_filter": boolean(true), "affinity_strict_threshold": number(.5), "affinity_exploration": number(.01),
	}
	for i, name := range llmdScorers {
		p[name+"_weight"] = number(float64(1 + i))
	}
	return p
}

// BenchmarkLLMDEverything is a decision with everything switched on, for turns of new sessions while loads differ. Their prompts
// either begin with a system prompt that every replica holds, or are held by nobody. No filter leaves a single candidate,
// which would need no scores.
func BenchmarkLLMDEverything(b *testing.B) {
	for _, picker := range []string{pickMaxScore, pickWeightedRandom} {
		for _, source := range []string{"approximate", "events"} {
			for _, held := range []bool{true, false} {
				for _, n := range []int{8, 64, 512} {
					b.Run(fmt.Sprintf("%s/%s/%s/%d", picker, source, map[bool]string{true: "held", false: "cold"}[held], n), func(b *testing.B) {
						benchmarkEverything(b, picker, source, held, n)
					})
				}
			}
		}
	}
}

func benchmarkEverything(b *testing.B, picker, source string, held bool, n int) {
	m := build(LLMD(), llmdEverything(picker, source), policies.Capability{BlockTokens: 16}).(*llmd)
	w := newWorld(nil, n, m)
	for i := range policies.ReplicaID(n) {
		for range i % 7 {
			w.lease(i, 500)
		}
		w.store(i, 250)
		m.lookup.sent(w.now, w.view(), prefix.Prefix{Tokens: 4000}, i)
		m.noHit.used(i)
		w.step(policies.Fact{Kind: policies.MetricsSampled, Replica: i, Sample: policies.Sample{
			At: w.now, Has: policies.HasRunning | policies.HasWaiting | policies.HasUsage, Running: int32(i % 11), Waiting: int32(i % 5), Usage: float64(i%10) / 12,
		}})
	}
	streams := make([]prefix.StreamID, 4*n)
	for i := range streams {
		streams[i] = w.tree.Fork(prefix.Prefix{Tokens: 4000})
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		u := policies.Turn{Attempt: policies.AttemptID(i), Session: policies.SessionID(i % 16), Thread: policies.ThreadID(i % 16), Number: 1}
		u.Prompt = prefix.Prefix{Stream: streams[i%len(streams)], Tokens: int32(4100 + i%100)}
		if !held {
			u.Prompt.Tokens = 15 // less than a block
		}
		m.Route(w.now, w.view(), &u)
		m.sessions.forget(int32(u.Session))
	}
}
