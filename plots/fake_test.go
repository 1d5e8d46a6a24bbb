package plots

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/sluice-sim/sluice/results"
)

const second = int64(1_000_000_000_000)

// fakeArm says how a made-up run behaves.
type fakeArm struct {
	name     string
	settings []results.Setting
	slow     float64 // factor on latencies
	hit      float64 // share of the ceiling
	sessions int
	seeds    int
}

// writeFake writes a comparison of made-up runs. The shapes are plausible; the numbers mean nothing.
func writeFake(t testing.TB, dir string, arms []fakeArm) string {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	c, err := results.CreateCompare(dir, "fake", results.Options{})
	must(err)
	var runs []*results.Summary
	for i, a := range arms {
		for seed := range max(a.seeds, 1) {
			w, err := c.Run(i, results.Info{Run: "made-up", Arm: a.name, Seed: uint64(seed + 1), Version: "test",
				Mode: results.ModeClosed, Gate: "none", Varied: a.settings})
			must(err)
			totals := fakeRun(t, w, a, uint64(seed))
			s, err := w.Finish(totals)
			must(err)
			runs = append(runs, s)
		}
	}
	_, err = c.Finish(runs)
	must(err)
	return dir
}

func fakeRun(t testing.TB, w *results.Writer, a fakeArm, seed uint64) *results.Totals {
	t.Helper()
	const replicas = 4
	rng := rand.New(rand.NewPCG(7, seed))
	itl := results.NewHistogram()
	var last int64
	ps := func(s float64) int64 { return int64(s * 1e12) }
	n := 0
	for s := range a.sessions {
		now := ps(float64(s) * 2)
		start := now
		var prompt int32
		turns := 3 + rng.IntN(30)
		for k := 1; k <= turns; k++ {
			grown := prompt + int32(500+rng.IntN(4000))
			ceiling := int32(float64(prompt) * 0.98)
			hit := int32(float64(ceiling) * min(1, a.hit*(0.9+0.1*rng.Float64())))
			ttft := a.slow * (0.05 + float64(grown-hit)/8000) * math.Exp(rng.NormFloat64()*0.6)
			output := int32(20 + rng.IntN(300))
			row := results.Turn{Session: int32(s), Number: int32(k), Attempt: 1, Final: true, Group: -1,
				Replica: int32(rng.IntN(replicas)), PrefillReplica: -1, ArrivalPS: now, AdmittedPS: now, SentPS: now,
				ScheduledPS: now + ps(ttft*0.3), FirstTokenPS: now + ps(ttft),
				DonePS:      now + ps(ttft+float64(output)*0.012*a.slow),
				AdmitReason: "none", RouteReason: "fake", PromptTokens: grown, OutputTokens: output,
				HitGPU: hit, CeilingTokens: ceiling, ComputedTokens: grown - hit, WastedTokens: ceiling - hit,
				ITLMaxPS: ps(0.02), ToolGapPS: results.Missing, IdleTTFTPS: results.Missing, IdleTPOTPS: results.Missing}
			if err := w.Turn(&row); err != nil {
				t.Fatal(err)
			}
			n++
			itl.Record(ps(0.012), int64(output-1))
			last = max(last, row.DonePS)
			now = row.DonePS + ps(1+5*rng.Float64())
			prompt = grown + output
		}
		if err := w.Session(&results.Session{Session: int32(s), Name: fmt.Sprint(s), Group: -1, StartPS: start, EndPS: now,
			Turns: int32(turns), FinishedTurns: int32(turns), Complete: true}); err != nil {
			t.Fatal(err)
		}
	}
	busy := make([]int64, replicas)
	for r := range int32(replicas) {
		for at := 10 * second; at < last+10*second; at += 10 * second {
			sample := results.Sample{Replica: r, EndPS: at, ComputedTokens: int64(20000 * (1.5 - a.hit) * (0.5 + rng.Float64())),
				OutputTokens: int64(1000 / a.slow), PromptTokens: int64(100000 / a.slow), BusyPS: 6 * second, Usage: 0.6}
			busy[r] += sample.BusyPS
			if err := w.Sample(&sample); err != nil {
				t.Fatal(err)
			}
		}
	}
	return &results.Totals{EndPS: last, Replicas: replicas, GPUs: 8, Sessions: int64(a.sessions), Turns: int64(n),
		BusyPS: busy, PrefillBusyPS: 3, DecodeBusyPS: 1, ITL: itl}
}

func router(name string) []results.Setting {
	return []results.Setting{{Path: "policy.router.name", Value: name}}
}

func fakeRouters(seeds int) []fakeArm {
	return []fakeArm{
		{"round-robin", router("round-robin"), 2.2, 0.35, 40, seeds},
		{"sticky", router("sticky"), 1.4, 0.9, 40, seeds},
		{"lmetric", router("lmetric"), 1.1, 0.85, 40, seeds},
		{"smetric", router("smetric"), 1, 0.95, 40, seeds},
	}
}

// fakeSweep is a cliff at 24 sessions.
func fakeSweep(routers ...string) []fakeArm {
	var arms []fakeArm
	for i, name := range routers {
		for _, n := range []int{4, 8, 12, 16, 20, 24, 28, 32} {
			a := fakeArm{name: fmt.Sprintf("%s-%d", name, n), slow: 1 + float64(i)*0.3, hit: 0.95, sessions: n,
				settings: append([]results.Setting{{Path: "arrivals.sessions", Value: fmt.Sprint(n)}}, router(name)...)}
			if n >= 24-8*i {
				a.slow, a.hit = 9, 0.3
			}
			arms = append(arms, a)
		}
	}
	return arms
}

func fakeGrid() []fakeArm {
	var arms []fakeArm
	for i, mark := range []string{"0.7", "0.8", "0.85", "0.9", "1.0"} {
		for j, hit := range []string{"0.5", "0.65", "0.8", "0.95"} {
			arms = append(arms, fakeArm{name: mark + "/" + hit, hit: 0.9, sessions: 12,
				slow: 1 + math.Abs(float64(i)-2)*0.4 + math.Abs(float64(j)-2)*0.3,
				settings: []results.Setting{{Path: "policy.gate.high_watermark", Value: mark},
					{Path: "policy.gate.hit_threshold", Value: hit}}})
		}
	}
	return arms
}

func fake(t testing.TB, arms []fakeArm) string {
	t.Helper()
	return writeFake(t, filepath.Join(t.TempDir(), "fake"), arms)
}
