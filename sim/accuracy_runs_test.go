package sim

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/results"
)

// rtx4090 derives a card for the RTX 4090 (AD102: 1008 GB/s, 165.2 TFLOPS dense bf16 with fp32 accumulation) from
// another card: rates go with the spec sheets, fixed times stay.
func rtx4090(base *latency.GPU) *latency.GPU {
	g := *base
	memory, compute := 1008e9/base.Spec.HBMRate, 165.2e12 / *base.Spec.PeakBF16
	g.Name += " scaled to RTX 4090"
	g.Spec.HBMRate = 1008e9
	g.GEMM = maps.Clone(base.GEMM)
	for k, v := range g.GEMM {
		v.Rate, v.Flops = v.Rate*memory, v.Flops*compute
		g.GEMM[k] = v
	}
	g.AttnDecode = maps.Clone(base.AttnDecode)
	for k, v := range g.AttnDecode {
		v.Rate *= memory
		g.AttnDecode[k] = v
	}
	g.AttnPrefill.Flops *= compute
	g.AttnPrefill.IORate *= memory
	return &g
}

// recordedRun is a measured run with the time of every request, and the card that stands for its GPU.
type recordedRun struct {
	file     string
	model    string
	gpu      string
	scaled   bool    // the card is scaled to an RTX 4090
	c0       float64 // seconds per step, fitted on the run itself; 0 is uncalibrated
	maxSeqs  int32
	kvTokens int64
	replicas int
	preempts bool

	prefill, tpot, e2e float64 // bands of mean errors, percent
}

var recordedRuns = []recordedRun{
	{"run_llama-3.1-8b_rtxpro6000_tp1", "llama-3.1-8b", "rtx_pro_6000_server", false, 0, 128, 0, 1, false, 12, 6, 8},
	{"run_llama-3.1-8b_rtxpro6000_tp1", "llama-3.1-8b", "rtx_pro_6000_server", false, 0.0011, 128, 0, 1, false, 10, 3, 3},
	{"run_qwen3-30b-a3b_rtxpro6000_dp2ep2", "qwen3-30b-a3b", "rtx_pro_6000_server", false, 0, 128, 0, 2, false, 10, 20, 22},
	{"run_llama-3.1-8b_rtx4090_tp1", "llama-3.1-8b", "rtx_pro_6000_server", true, 0, 256, 41408, 1, true, 30, 5, 6},
	{"run_llama-3.1-8b_rtx4090_tp1", "llama-3.1-8b", "l40s", true, 0, 256, 41408, 1, true, 60, 20, 25},
}

// TestAccuracyRuns replays measured requests one by one.
func TestAccuracyRuns(t *testing.T) {
	lines := []string{
		"| run, card | metric | measured mean, s | simulated mean, s | mean, % | p50, % | p99, % |",
		"|---|---|---:|---:|---:|---:|---:|",
	}
	for i := range recordedRuns {
		lines = append(lines, recordedRuns[i].lines(t)...)
	}
	publish(t, "runs", lines)
}

func (r *recordedRun) cards(t *testing.T) (*latency.Model, *latency.GPU) {
	t.Helper()
	m, err := latency.FindModel(r.model)
	if err != nil {
		t.Fatal(err)
	}
	g, err := latency.FindGPU(r.gpu)
	if err != nil {
		t.Fatal(err)
	}
	if r.scaled {
		g = rtx4090(g)
	}
	return m, g
}

// lines simulates the run and returns its part of the table.
func (r *recordedRun) lines(t *testing.T) (lines []string) {
	x := readMeasurements(t, filepath.Join(accuracyData, r.file+".csv"))
	m, g := r.cards(t)
	req, real, end := newRequests(0), &served{}, 0.0
	for _, x.row = range x.rows {
		at, out := x.number("queued_s"), x.number("output_tokens")
		req.add(int64(math.Round(at*1e9)), int32(x.number("input_tokens")), int32(out))
		real.take(at, x.number("scheduled_s"), x.number("first_token_s"), x.number("last_token_s"), out)
		end = max(end, x.number("last_token_s"))
	}
	d := &deployment{
		setup:    latency.Setup{Model: m, GPU: g, Calibration: latency.Calibration{C0: r.c0}},
		replicas: r.replicas, maxSeqs: r.maxSeqs, budget: 2048,
		kvTokens: r.kvTokens, prefixCaching: true,
	}
	s, totals := d.replay(t, &req.Trace, Arrivals{Process: Recorded, Speedup: 1})
	name := strings.TrimPrefix(r.file, "run_") + ", " + g.Name
	if r.c0 > 0 {
		name += fmt.Sprintf(", c0 = %g ms fitted here", 1e3*r.c0)
	}
	for _, q := range []struct {
		metric          string
		simulated, real []float64
		band            float64
	}{
		{"TTFT", s.ttft, real.ttft, 60}, {"first scheduled to first token", s.prefill, real.prefill, r.prefill},
		{"TPOT", s.tpot, real.tpot, r.tpot}, {"E2E", s.e2e, real.e2e, r.e2e},
	} {
		err := off(mean(q.simulated), mean(q.real))
		within(t, name+", mean "+q.metric, err, q.band)
		lines = append(lines, fmt.Sprintf("| %s | %s | %.4f | %.4f | %+.1f | %+.1f | %+.1f |", name, q.metric, mean(q.real), mean(q.simulated),
			err, off(quantile(q.simulated, 0.5), quantile(q.real, 0.5)), off(quantile(q.simulated, 0.99), quantile(q.real, 0.99))))
	}
	if (totals.Preemptions > 0) != r.preempts {
		t.Errorf("%s: %d preemptions, want some: %v", name, totals.Preemptions, r.preempts)
	}
	makespan := results.Seconds(totals.EndPS)
	return append(lines, fmt.Sprintf("| %s | makespan; %d preemptions simulated | %.4f | %.4f | %+.1f | | |", name, totals.Preemptions, end, makespan, off(makespan, end)))
}

// decodeStretch is a part of a recorded run in which every step decoded and did nothing else.
type decodeStretch struct {
	from, to float64
	steps    int
}

// recorded is one request of a recorded run: seconds and tokens.
type recorded struct{ scheduled, first, last, prompt, output float64 }

// stretches finds the decode-only parts of a run. Two requests that got their first token in the same step are as many
// steps apart at their ends as their outputs differ.
func stretches(all []recorded) (found []decodeStretch) {
	for _, a := range all {
		for _, b := range all {
			if a.first != b.first || b.output-a.output < 30 {
				continue
			}
			pure := !slices.ContainsFunc(all, func(z recorded) bool { return z.scheduled < b.last && z.first > a.last })
			overlaps := slices.ContainsFunc(found, func(s decodeStretch) bool { return a.last < s.to && b.last > s.from })
			if pure && !overlaps {
				found = append(found, decodeStretch{a.last, b.last, int(b.output - a.output)})
			}
		}
	}
	slices.SortFunc(found, func(a, b decodeStretch) int { return cmp.Compare(a.from, b.from) })
	return found
}

// batch is the step that was running at a moment of a stretch.
func (s *decodeStretch) batch(all []recorded, at float64) (b latency.Batch) {
	step := (s.to - s.from) / float64(s.steps)
	for _, z := range all {
		if z.first < at && z.last > at {
			b.DecodeRows++
			b.DecodeContext += int64(z.prompt + z.output - (z.last-at)/step)
		}
	}
	return b
}

// TestAccuracyDecodeSteps takes the law alone, without a scheduler, to decode steps that a run tells apart.
func TestAccuracyDecodeSteps(t *testing.T) {
	r := &recordedRuns[0]
	x := readMeasurements(t, filepath.Join(accuracyData, r.file+".csv"))
	var all []recorded
	for _, x.row = range x.rows {
		all = append(all, recorded{x.number("scheduled_s"), x.number("first_token_s"), x.number("last_token_s"), x.number("input_tokens"), x.number("output_tokens")})
	}
	m, g := r.cards(t)
	law, err := latency.New(latency.Setup{Model: m, GPU: g})
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{"| from, s | steps | rows | context, tokens | measured, ms a step | law, ms a step | % |", "|---:|---:|---:|---:|---:|---:|---:|"}
	for _, s := range stretches(all) {
		var rows, context, ms float64
		for k := range s.steps {
			b := s.batch(all, s.from+(s.to-s.from)*(float64(k)+0.5)/float64(s.steps))
			rows, context = rows+float64(b.DecodeRows), context+float64(b.DecodeContext)
			ms += float64(law.Picoseconds(&b)) / 1e9
		}
		n, measured := float64(s.steps), 1e3*(s.to-s.from)/float64(s.steps)
		within(t, fmt.Sprintf("decode steps from %.2f s", s.from), off(ms/n, measured), 25)
		lines = append(lines, fmt.Sprintf("| %.2f | %d | %.0f | %.0f | %.2f | %.2f | %+.1f |", s.from, s.steps, rows/n, context/n, measured, ms/n, off(ms/n, measured)))
	}
	if len(lines) < 6 {
		t.Errorf("%d stretches of decode steps found, want at least 4", len(lines)-2)
	}
	publish(t, "decode-steps", lines)
}

// sharedFolder is a folder of measurements that may not be copied, beside the repository.
func sharedFolder(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
	}
	shared := filepath.Join(cmp.Or(os.Getenv("SLUICE_SHARED"), filepath.Join(filepath.Dir(dir), "shared")), "calibration", "e2e")
	if _, err := os.Stat(shared); err != nil {
		t.Skip("no folder shared beside the repository: the open-loop measurements have no licence that allows a copy here")
	}
	return shared
}

// TestAccuracyOpenLoop simulates servers that get the same few prompts again and again, at a constant rate.
func TestAccuracyOpenLoop(t *testing.T) {
	x := readMeasurements(t, filepath.Join(sharedFolder(t), "open_loop_h100_vllm.csv"))
	lines := []string{"| workload, stage | model, GPUs | TTFT, % | TPOT, % | E2E, % |", "|---|---|---:|---:|---:|"}
	var ttft, tpot, e2e, larger []float64
	overloaded := 0
	for _, x.row = range x.rows {
		if x.text("overload") == "True" {
			overloaded++
			continue
		}
		prompt, rate := x.number("prompt_tokens_mean"), x.number("rate_rps")
		d := &deployment{
			setup: latency.Setup{
				Model: x.model(), GPU: x.gpu(), TensorParallel: int(x.number("tp")),
				Calibration: latency.Calibration{APISeconds: 0.008},
			},
			replicas: 1, maxSeqs: int32(x.number("max_num_seqs")), budget: int32(x.number("max_num_batched_tokens")), prefixCaching: true,
		}
		if x.text("kv_blocks_16") != "" {
			d.kvTokens = 16 * int64(x.number("kv_blocks_16"))
		}
		req := newRequests(16 * int32(0.97*prompt/16))
		for i := range int(rate * x.number("duration_s")) {
			req.add(int64(float64(i)*1e9/rate), int32(math.Round(prompt)), int32(math.Round(x.number("output_tokens_mean"))))
		}
		s, _ := d.replay(t, &req.Trace, Arrivals{Process: Recorded, Speedup: 1})
		a, b, c := off(1e3*mean(s.ttft), x.number("ttft_mean_ms")), off(1e3*mean(s.tpot), x.number("tpot_mean_ms")), off(1e3*mean(s.e2e), x.number("e2e_mean_ms"))
		ttft, tpot, e2e = append(ttft, a), append(tpot, b), append(e2e, c)
		if d.setup.Model.Name != "llama-2-7b" {
			larger = append(larger, c)
			within(t, x.text("id")+" stage "+x.text("stage")+", mean E2E", c, 13)
		}
		lines = append(lines, fmt.Sprintf("| %s, %s | %s, %d | %+.1f | %+.1f | %+.1f |", x.text("id"), x.text("stage"), d.setup.Model.Name, d.setup.TensorParallel, a, b, c))
	}
	lines = append(lines, fmt.Sprintf("| all %d | | %s | %s | %s |", len(e2e), spread(ttft), spread(tpot), spread(e2e)),
		fmt.Sprintf("| all %d but Llama-2-7B | | | | %s |", len(larger), spread(larger)), "",
		fmt.Sprintf("Left out: %d stages that saturate the server.", overloaded))
	publish(t, "open-loop", lines)
	within(t, "open loop, mean absolute E2E error without Llama-2-7B", mean(absolute(larger)), 5)
}
