package results

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func collect(t *testing.T, r *smallRun, info Info) *Summary {
	t.Helper()
	c := NewCollector(info)
	r.send(t, c)
	return c.Summary(&r.totals)
}

const null = math.MaxFloat64

func checkMetrics(t *testing.T, s *Summary, want map[string]float64) {
	t.Helper()
	for name, w := range want {
		got, err := s.Metric(name)
		switch {
		case err != nil:
			t.Error(err)
		case got == nil && w != null:
			t.Errorf("%s is null, expected %v", name, w)
		case got != nil && w == null:
			t.Errorf("%s = %v, expected null", name, *got)
		case got != nil && math.Abs(*got-w) > 1e-12*max(1, math.Abs(w)):
			t.Errorf("%s = %v, expected %v", name, *got, w)
		}
	}
}

// Every number is worked out by hand from the table above smallRun.
func TestMetricsByHand(t *testing.T) {
	s := collect(t, newSmallRun(), smallInfo())
	checkMetrics(t, s, map[string]float64{
		"whole.start_s": 0, "whole.end_s": 15, "whole.length_s": 15, "whole.turns": 3, "whole.finished_turns": 3,
		"whole.input_tps":                    60, // (100 + 300 + 300 + 200) / 15: both attempts of the retried turn
		"whole.output_tps":                   10.0 / 15,
		"whole.total_tps":                    910.0 / 15,
		"whole.computed_prefill_tps":         740.0 / 15,
		"whole.total_tps_per_gpu":            910.0 / 60,
		"whole.output_tps_per_gpu":           10.0 / 60,
		"whole.computed_prefill_tps_per_gpu": 740.0 / 60,
		"whole.finished_turns_per_s":         3.0 / 15,
		"whole.complete_sessions_per_h":      240,
		"whole.hit_rate":                     160.0 / 600, // last attempts: 0 of 100, 60 of 300, 100 of 200
		"whole.hit_rate_gpu":                 140.0 / 600,
		"whole.hit_rate_cpu":                 20.0 / 600,
		"whole.hit_rate_global":              0,
		"whole.hit_ceiling":                  160.0 / 600,
		"whole.hit_capture":                  1,
		"whole.session_hit_rate.n":           2,
		"whole.session_hit_rate.mean":        (100.0/300 + 60.0/300) / 2,
		"whole.ttft_s.n":                     3,
		"whole.ttft_s.mean":                  10.0 / 3, // 1, 11 - 5 from the first attempt, 13 - 10
		"whole.ttft_s.max":                   6,
		"whole.ttft_s.p50":                   null, // 3 samples
		"whole.ttft_engine_s.mean":           4.0 / 3,
		"whole.gate_wait_s.mean":             2.0 / 3,
		"whole.engine_queue_s.max":           0,
		"whole.tpot_s.mean":                  3.5 / 3, // 2/4, 1/1, 2/1
		"whole.tpot_s.max":                   2,
		"whole.e2el_s.mean":                  5, // 3, 7, 5
		"whole.tool_gap_s.n":                 1,
		"whole.tool_gap_s.mean":              7,
		"whole.session_time_s.n":             1,
		"whole.session_time_s.max":           15,
		"whole.interactivity_p50_tps":        null,
		"whole.prompt_tokens":                600,
		"whole.computed_tokens":              740,
		"whole.wasted_tokens":                240,
		"whole.thrash_index":                 240.0 / 740,
		"whole.gate_share":                   2.0 / 15,
		"whole.held_turns":                   1,
		"whole.work.max_mean":                540.0 / 370,
		"whole.work.cv":                      170.0 / 370,
		"whole.work.jain":                    740.0 * 740 / (2 * (200*200 + 540*540)),
		"whole.in_flight.max_mean":           15.0 / 12.5, // 1 over 15 s against 1 over 10 s
		"whole.resident.max_mean":            3000.0 / 2750,
		"whole.busy_share":                   0.5,
		"whole.idle_share":                   0.5,
		"whole.kv_usage_mean":                17.0 / 30,
		"whole.kv_usage_max":                 0.9,
		"whole.slo.attainment":               1.0 / 3, // TTFT 6 > 3 and TPOT 2 > 1.5 miss; TTFT 3 is within
		"whole.slo.session_attainment":       0,
		"whole.slo.good_turns_per_s":         1.0 / 15,
		"whole.slo.good_output_tps":          5.0 / 15,
		"whole.slo.good_total_tps":           7,
		"whole.slo.good_sessions_per_h":      0,
		"whole.slo.infeasible_share":         1.0 / 3, // 4 s alone on an idle replica
		// 10 % of two sessions have started at 0, 90 % of three turns have finished at 15: the rates now come from samples
		"steady.length_s": 15, "steady.input_tps": 60, "steady.output_tps": 10.0 / 15,
		"steady.computed_prefill_tps": 740.0 / 15, "steady.busy_share": 0.5,
		"itl_s.n": 20, "itl_s.p90": null,
		"milestones.t50_s": 15, "milestones.t90_s": null, "milestones.makespan_s": null,
		"waste.tokens": 240, "waste.thrash_index": 240.0 / 740,
		"gate.holds": 2, "gate.held_attempts": 1, "gate.usage_probes": 3, "gate.prefix_probes": 1,
		"gate.rejected_attempts": 0, "gate.wait_s": 2, "gate.max_wait_s": 2,
		"engine.prefill_busy_share": 2.0 / 3, "engine.decode_busy_share": 1.0 / 3,
		"conservation.read_turns": 6, "conservation.finished_turns": 3, "conservation.failed_turns": 1,
		"conservation.dropped_turns": 2, "conservation.attempts": 5, "conservation.complete_sessions": 1,
		"leases.admitted": 4, "leases.live": 0,
	})
	// the histogram's resolution is 0.1 %
	if p, m := *s.ITL.P50, *s.ITL.Mean; math.Abs(p-2) > 2e-3 || math.Abs(m-1.7) > 1.7e-3 {
		t.Errorf("itl_s: p50 %v and mean %v, expected 2 and 1.7 within 0.1 %%", p, m)
	}
	if !s.Conservation.Holds {
		t.Error("3 finished + 1 failed + 2 dropped = 6 read does not hold")
	}
	if s.TableWindow != "steady" {
		t.Errorf("table window %q", s.TableWindow)
	}
	if len(s.Gate.ByReason) != 2 || s.Gate.ByReason[0].Reason != "high_hit" || s.Gate.ByReason[0].Held != 1 ||
		s.Gate.ByReason[1].Attempts != 3 || *s.Gate.ByReason[0].Wait.Max != 2 {
		t.Errorf("gate by reason: %+v", s.Gate.ByReason)
	}
	if len(s.ByTurn) != 2 || s.ByTurn[0].Turns != 2 || *s.ByTurn[0].HitRate != 60.0/400 || *s.ByTurn[1].HitRate != 0.5 ||
		*s.ByTurn[1].E2EL.Mean != 5 {
		t.Errorf("by turn: %+v", s.ByTurn)
	}
	if len(s.ByContext) != 1 || s.ByContext[0].To != 4095 || s.ByContext[0].Turns != 3 {
		t.Errorf("by context: %+v", s.ByContext)
	}
	for _, c := range s.Waste.ByCause {
		if (c.Label == "retry") != (c.N == 240) {
			t.Errorf("waste %s: %d", c.Label, c.N)
		}
	}
}

// Rows before and after the steady window do not count in it.
func TestSteadyWindow(t *testing.T) {
	c := NewCollector(Info{Mode: ModeOpen})
	for i := range int64(20) { // session i arrives at i, its turn takes 2 s and 10 prompt tokens
		row := newSmallRun().turns[0]
		row.Session = int32(i)
		row.ArrivalPS, row.AdmittedPS, row.SentPS, row.ScheduledPS = i*second, i*second, i*second, i*second
		row.FirstTokenPS, row.DonePS, row.PromptTokens = (i+1)*second, (i+2)*second, 10
		if err := c.Turn(&row); err != nil {
			t.Fatal(err)
		}
		_ = c.Session(&Session{Session: int32(i), StartPS: i * second, EndPS: (i + 2) * second, Turns: 1, Complete: true})
	}
	// computed: 100 tokens/s until 10 s, 20 tokens/s until 30 s
	_ = c.Sample(&Sample{EndPS: 10 * second, ComputedTokens: 1000, BusyPS: 10 * second})
	_ = c.Sample(&Sample{EndPS: 30 * second, ComputedTokens: 400, BusyPS: 5 * second})
	totals := &Totals{Replicas: 1, GPUs: 1, EndPS: 21 * second, Turns: 20, BusyPS: []int64{15 * second}}
	s := c.Summary(totals)
	// the second of 20 sessions starts at 1; the 18th of 20 turns finishes at 17 + 2
	checkMetrics(t, s, map[string]float64{
		"steady.start_s": 1, "steady.end_s": 19, "whole.length_s": 21,
		"turns":                19, // arrivals at 1 to 19
		"computed_prefill_tps": (9*100 + 9*20) / 18.0,
		"busy_share":           (9 + 9*0.25) / 18.0,
		"finished_turns_per_s": 18.0 / 18, // done at 2 to 19
		"whole.turns":          20,
		"ttft_s.p50":           1,
		"ttft_s.p75":           null, // 19 samples leave 4.75 above it
	})
	info := Info{Mode: ModeRollout}
	c.info = info
	if s := c.Summary(totals); s.TableWindow != "whole" {
		t.Errorf("rollout mode shows the %s window", s.TableWindow)
	}
	checkMetrics(t, c.Summary(totals), map[string]float64{"milestones.t50_s": 11, "milestones.t90_s": 19,
		"milestones.makespan_s": 21})
}

// Work is compared per 60 s window, weighted by the window's length; an interval spreads over the windows it meets.
func TestImbalanceWindows(t *testing.T) {
	s := newSeries()
	add := func(replica int32, end, computed int64) {
		if err := s.add(&Sample{Replica: replica, EndPS: end * second, ComputedTokens: computed}); err != nil {
			t.Fatal(err)
		}
	}
	add(0, 90, 90) // 60 in the first window, 30 in the second
	add(1, 60, 20)
	add(1, 90, 30)
	add(0, 150, 0) // no load in the last 30 s of the second window and in the third
	got := s.over(0, 150*second, 2).imbalance(loadComputed)
	want := (60*1.5 + 60*1.0) / 120
	if math.Abs(*got.MaxMean-want) > 1e-12 {
		t.Errorf("max/mean %v, expected %v: 60 against 20, then 30 against 30", *got.MaxMean, want)
	}
	if want := (60*0.5 + 0) / 120; math.Abs(*got.CV-want) > 1e-12 {
		t.Errorf("cv %v, expected %v", *got.CV, want)
	}
	if err := s.add(&Sample{Replica: 1, EndPS: 90 * second}); err == nil {
		t.Error("a sample that goes back in time is accepted")
	}
}

// The expected values are those of numpy's linear method, computed with Python's statistics.quantiles(inclusive).
func TestPercentiles(t *testing.T) {
	var x, y []float64
	for i := range 600 {
		x = append(x, float64(i*7919%1009)/8)
	}
	for i := range 37 {
		y = append(y, float64(i*i*31%997)/7)
	}
	d := distOf(x)
	for i, p := range []*float64{d.P50, d.P75, d.P90, d.P95, d.P99, d.Mean, d.Max} {
		want := []float64{63.1875, 94.65625, 113.525, 119.64375, 124.8775, 63.091875, 125.875}[i]
		if math.Abs(*p-want) > 1e-12*want {
			t.Errorf("x: value %d is %v, expected %v", i, *p, want)
		}
	}
	d = distOf(y)
	for i, p := range []*float64{d.P50, d.P75} {
		want := []float64{63.857142857142854, 119.57142857142857}[i]
		if math.Abs(*p-want) > 1e-12*want {
			t.Errorf("y: value %d is %v, expected %v", i, *p, want)
		}
	}
	if d.P90 != nil || d.P95 != nil || d.P99 != nil {
		t.Error("37 samples show a percentile with fewer than five samples above it")
	}
	if !shown(50, 90) || shown(49, 90) || !shown(500, 99) || shown(499, 99) {
		t.Error("a percentile needs n(1-p) >= 5")
	}
}

func TestPercentileProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 1e6), 500, 600).Draw(t, "values")
		d := distOf(values)
		last := values[0]
		for _, p := range []*float64{d.P50, d.P75, d.P90, d.P95, d.P99, d.Max} {
			if *p < last {
				t.Fatalf("percentiles fall: %v after %v", *p, last)
			}
			last = *p
		}
		if *d.Mean < values[0]*(1-1e-12) || *d.Mean > *d.Max*(1+1e-12) {
			t.Fatalf("mean %v outside %v to %v", *d.Mean, values[0], *d.Max)
		}
	})
}

func TestVerdicts(t *testing.T) {
	valid := func() *Summary {
		return &Summary{TableWindow: "whole", Conservation: Conservation{Read: 1000, Finished: 1000, Holds: true},
			Engine: Engine{PrefillBusy: some(.4), DecodeBusy: some(.6)},
			Whole: &Window{GateShare: some(.2), Thrash: some(.2), Work: Imbalance{MaxMean: some(1.5)},
				Busy: some(.5)}}
	}
	for _, c := range []struct {
		code   string
		change func(*Summary)
		text   string
	}{
		{VerdictDecode, func(*Summary) {}, ""},
		{VerdictPrefill, func(s *Summary) { s.Engine.PrefillBusy = some(.7) }, ""},
		{VerdictIdle, func(s *Summary) { s.Whole.Busy = some(.49) }, "49 %"},
		{VerdictSkew, func(s *Summary) { s.Whole.Busy = some(.1); s.Whole.Work.MaxMean = some(1.51) }, "1.51"},
		{VerdictKV, func(s *Summary) { s.Whole.Thrash = some(.21); s.Whole.Work.MaxMean = some(2) }, "21 %"},
		{VerdictGate, func(s *Summary) { s.Whole.GateShare = some(.21); s.Whole.Thrash = some(.9) }, "21 %"},
		{VerdictInvalid, func(s *Summary) { s.Conservation.Finished, s.Conservation.Failed = 989, 11 }, "otherwise decode"},
		{VerdictDecode, func(s *Summary) { s.Conservation.Finished, s.Conservation.Failed = 990, 10 }, ""},
		{VerdictInvalid, func(s *Summary) { s.Conservation.Finished, s.Conservation.Holds = 999, false }, "finished 999"},
		{VerdictDecode, func(s *Summary) { s.GatePolicy = "session" }, "the gate never held a turn"},
		{VerdictUnknown, func(s *Summary) { s.Whole = nil }, "no turn finished"},
	} {
		s := valid()
		c.change(s)
		if v := verdictOf(s); v.Code != c.code || !strings.Contains(v.Text, c.text) {
			t.Errorf("verdict %+v, expected %s with %q", v, c.code, c.text)
		}
	}
	s := valid()
	s.GatePolicy, s.Gate.Holds = "session", 1
	if v := verdictOf(s); strings.Contains(v.Text, "never") {
		t.Errorf("a gate that held: %s", v.Text)
	}
}

func TestNothingFinished(t *testing.T) {
	c := NewCollector(Info{Mode: ModeClosed, SLO: &SLO{TTFTS: 1}})
	s := c.Summary(&Totals{Replicas: 2, GPUs: 2})
	if s.Whole != nil || s.Steady != nil || s.Verdict.Code != VerdictUnknown {
		t.Errorf("an empty run: %+v", s.Verdict)
	}
	checkMetrics(t, s, map[string]float64{"hit_rate": null, "ttft_s.p50": null, "itl_s.mean": null})
	if _, err := s.Metric("ttft_s.p42"); err == nil {
		t.Error("an unknown metric is no error")
	}
}

// Every entry of summary.json has a definition, and every number has a name by which it is found.
func TestEveryMetricIsDeclared(t *testing.T) {
	s := collect(t, newSmallRun(), smallInfo())
	for _, m := range append(WindowMetrics(), RunMetrics()...) {
		if m.Doc == "" {
			t.Errorf("%s has no definition", m.Name)
		}
		if m.Dist && !strings.Contains(m.Name, "[]") {
			if _, err := s.Metric(m.Name + ".p99"); err != nil {
				t.Error(err)
			}
		}
	}
}

// The samples read back from a folder are those that the summary's distributions were made of.
func TestLatencies(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	s, err := writeSmall(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	run, err := LoadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := run.Latencies()
	if err != nil {
		t.Fatal(err)
	}
	w := s.Table()
	for _, c := range []struct {
		got  []float64
		want Dist
	}{{l.TTFT, w.TTFT}, {l.E2EL, w.E2EL}, {l.SessionTime, w.SessionTime}} {
		if d := cmp.Diff(distOf(c.got), c.want); d != "" {
			t.Error(d)
		}
	}
}

func TestFaultsOfASummary(t *testing.T) {
	for want, change := range map[string]func(*smallRun){
		"":                   func(*smallRun) {},
		"turns: read 7":      func(r *smallRun) { r.totals.Turns++ },
		"leases: 1 alive":    func(r *smallRun) { r.totals.LeasesLive, r.totals.LeasesFinished = 1, 2 },
		"leases: admitted 5": func(r *smallRun) { r.totals.LeasesAdmitted++ },
		"above its ceiling":  func(r *smallRun) { r.turns[3].HitGPU++ },
	} {
		r := newSmallRun()
		change(r)
		got := strings.Join(collect(t, r, smallInfo()).Faults(), "; ")
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("faults %q, expected %q", got, want)
		}
	}
}

// The rows of a run may come in any order of turns without changing a number.
func TestOrderOfTurnsDoesNotShow(t *testing.T) {
	want := collect(t, newSmallRun(), smallInfo())
	rapid.Check(t, func(rt *rapid.T) {
		r := newSmallRun()
		r.turns = rapid.Permutation(r.turns).Draw(rt, "turns")
		c := NewCollector(smallInfo())
		if err := r.into(c); err != nil {
			rt.Fatal(err)
		}
		if d := cmp.Diff(want, c.Summary(&r.totals)); d != "" {
			rt.Fatal(d)
		}
	})
}
