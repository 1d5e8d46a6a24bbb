package sim

import "pgregory.net/rapid"

// randomFaults draws faults, late and lossy signals and router instances for a random world; often none.
func randomFaults(rt *rapid.T, c *Config) {
	second := func(label string, max float64) int64 {
		return toPS(rapid.Float64Range(0, max).Draw(rt, label) * 1e12)
	}
	for range rapid.SampledFrom([]int{0, 0, 1, 2, 4}).Draw(rt, "faults") {
		f := Fault{
			Kind: FaultKind(rapid.IntRange(1, int(numFaultKinds)-1).Draw(rt, "kind")), AtPS: second("at", 30),
			ForPS: second("for", 20) + 1, Replica: int32(rapid.IntRange(-1, c.Replicas-1).Draw(rt, "replica")),
			Factor: rapid.Float64Range(0.5, 20).Draw(rt, "factor"), Share: rapid.SampledFrom([]float64{0.1, 0.5, 1}).Draw(rt, "share"),
			AfterPS: second("after", 5), Releases: ReleaseKind(rapid.IntRange(0, 1).Draw(rt, "releases")),
		}
		if rapid.Bool().Draw(rt, "late") {
			f.DetectPS = second("detect", 25)
		}
		if f.Kind == ReplicaRestart && rapid.Bool().Draw(rt, "at once") {
			f.ForPS = 0
		}
		if f.Kind == LostRelease {
			f.Count = int64(rapid.IntRange(1, 3).Draw(rt, "count"))
		}
		c.Faults = append(c.Faults, f)
	}
	if rapid.Bool().Draw(rt, "bad scrapes") {
		c.Signals.ScrapeDelayPS, c.Signals.ScrapeJitterPS = second("scrape delay", 0.3), second("jitter", 0.3)
		c.Signals.ScrapeLoss = rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(rt, "loss")
	}
	c.Signals.NoProbes = rapid.IntRange(0, 3).Draw(rt, "no probes") == 0
	c.Routers = rapid.SampledFrom([]int{0, 1, 2, 3}).Draw(rt, "routers")
}
