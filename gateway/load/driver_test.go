package load

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/sluice-sim/sluice/gateway"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/scenarios"
)

// BenchmarkDriver is one turn through the driver alone, brought by 64 goroutines: its arrival, the wait for its verdict, its
// dispatch, first token and end, in four steps, which are written into a decision log that nobody keeps. 8 replicas, 1,000
// sessions.
func BenchmarkDriver(b *testing.B) {
	for _, policy := range [][2]string{{"none", "sticky"}, {"session", "lmetric"}, {"session", "smetric"}} {
		b.Run(policy[0]+"/"+policy[1], func(b *testing.B) { driveTurns(b, policy[0], policy[1]) })
	}
}

func driveTurns(b *testing.B, gate, router string) {
	const goroutines, replicas, sessions = 64, 8, 1000
	tree := &prefix.Tree{}
	tree.Root()
	cfg := gateway.DriverConfig{
		Clock: gateway.NewClock(), Tree: tree, MaxSessions: 100_000, MaxWaiting: 10_000, MaxLease: 1 << 40, IdleAfter: 1 << 42,
		Core: gateway.CoreConfig{
			Version: "benchmark", Seed: 1, Capabilities: make([]policies.Capability, replicas),
			Policy: scenarios.Policy{Gate: scenarios.Choice{Name: gate}, Router: scenarios.Choice{Name: router}},
		},
		Probe: func(gateway.Probe, *policies.View) (gateway.Answer, bool) {
			return gateway.Answer{Outcome: policies.ProbeValue, Usage: .5}, false
		},
	}
	d, err := gateway.NewDriver(cfg)
	check(b, err)
	defer d.Close()
	d.Do(func(b *gateway.Batch) {
		for r := range policies.ReplicaID(replicas) {
			b.Up(r)
			b.Sampled(r, policies.Sample{At: b.Now(), Has: policies.HasRunning | policies.HasWaiting | policies.HasUsage, Usage: .5})
		}
	})
	names := make([]string, sessions)
	for i := range names {
		names[i] = fmt.Sprint("session-", i)
	}
	var next atomic.Int64
	b.SetParallelism(max(1, goroutines/runtime.GOMAXPROCS(0)))
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			x := gateway.Arrival{Session: names[next.Add(1)%sessions], Prompt: prefix.Prefix{Tokens: 5000}, MaxTokens: 500, Group: -1}
			var a *gateway.Attempt
			var err error
			d.Do(func(b *gateway.Batch) { a, err = b.Arrive(x) })
			if err != nil {
				b.Error(err)
				return
			}
			if v := <-a.Verdict(); v.Kind != gateway.Go {
				b.Errorf("verdict %+v", v)
				return
			}
			d.Do(func(b *gateway.Batch) { b.Dispatched(a) })
			d.Do(func(b *gateway.Batch) { b.FirstToken(a, gateway.Usage{Prompt: 5000, Cached: 4000}) })
			d.Do(func(b *gateway.Batch) { b.Finished(a, gateway.Usage{Prompt: 5000, Output: 300, Cached: 4000}) })
		}
	})
	b.StopTimer()
	if a := d.Audit(); a.Imbalance() != 0 || a.Live != 0 {
		b.Errorf("accounts %+v", a)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}
