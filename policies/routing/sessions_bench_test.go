package routing

import (
	"fmt"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// Routers that remember what they sent, with 16 sessions for each replica that share a system prompt, which every replica
// was sent.
func BenchmarkRouteSessions(b *testing.B) {
	for _, d := range []policies.Declaration{LLMD(), AIBrixPrefixCache(), SMGCacheAware(), Dynamo(), Preble(), StickyBounded(), CHWBL(), LeastWork()} {
		for _, n := range []int{8, 64, 512} {
			b.Run(fmt.Sprintf("%s/%d", d.Name, n), func(b *testing.B) {
				r := build(d, nil, policies.Capability{PrefillTokensPerSec: 20000, AttentionDoubling: 7000})
				w := newWorld(nil, n, r)
				root := w.tree.Root()
				streams := make([]prefix.StreamID, 16*n)
				for i := range streams {
					streams[i] = w.tree.Fork(prefix.Prefix{Stream: root, Tokens: 4000})
				}
				for i := range policies.ReplicaID(n) {
					w.lease(i, 500)
					w.sample(i, 3, 2)
				}
				turn := func(i int) {
					s := i * 7919 % len(streams)
					w.now += policies.Second / 100
					r.Route(w.now, w.view(), &policies.Turn{
						Attempt: policies.AttemptID(i), Thread: policies.ThreadID(s), Session: policies.SessionID(s), Number: 2,
						Prompt: prefix.Prefix{Stream: streams[s], Tokens: int32(20000 + i%30000)},
					})
				}
				i := 0
				for ; i < 4*len(streams); i++ {
					turn(i)
				}
				b.ReportAllocs()
				for b.Loop() {
					turn(i)
					i++
				}
			})
		}
	}
}
