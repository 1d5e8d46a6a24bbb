package sim

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/model/latency"
)

// closedRow is the errors of one closed-loop measurement, in percent. NaN is not applicable.
type closedRow struct {
	key                          string
	unused                       bool // in no fit
	ttft, tpot                   float64
	calTTFT, calTPOT, calSync    float64 // with the deployment's calibration; the TTFT of a synchronous engine
	prototypeTPOT                float64 // of a synchronous engine against the specification's prototype
	prototypeSync, prototypeStep float64 // TTFT beyond the prototype's, in decode steps: synchronous, asynchronous
}

// precision is how the embedded calibrations name a row's data types.
var precision = map[string]string{"bf16": "bf16", "fp8": "fp8", "nvfp4": "fp4", "mxfp4": "fp4"}

// closedLength draws a length from [0.8 longest, longest].
func closedLength(longest int64, purpose uint64, i int) int32 {
	low := (longest*8 + 9) / 10
	return int32(low + exact.UniformInt(exact.Hash2(1, purpose, uint64(i)), longest-low+1))
}

// closedLoop simulates one measurement.
func closedLoop(x *measurements) closedRow {
	d := &deployment{
		setup: latency.Setup{
			Model: x.model(), GPU: x.gpu(), TensorParallel: int(x.number("tp")),
			WeightDType: x.text("weight_dtype"), MoEDType: x.text("moe_dtype"), KVDType: x.text("kv_dtype"),
		},
		replicas: 1, maxSeqs: 1024, budget: int32(x.number("max_num_batched_tokens")),
		synchronous: strings.HasPrefix(x.text("vllm"), "0.12"), // asynchronous scheduling became the default in 0.14
	}
	req := newRequests(0)
	for i := range int(x.number("num_prompts")) {
		req.add(0, closedLength(int64(x.number("isl_max")), 1, i), closedLength(int64(x.number("osl_max")), 2, i))
	}
	run := func(d deployment) (ttft, tpot float64) {
		s, _ := d.replay(x.t, &req.Trace, Arrivals{Process: Concurrent, Sessions: int(x.number("concurrency"))})
		return 1e3 * mean(s.ttft), 1e3 * mean(s.tpot)
	}
	kind := precision[d.setup.MoEDType]
	r := closedRow{
		key: d.setup.Model.Name + " " + kind + ", " + d.setup.GPU.Name, unused: x.text("split") == "validation",
		calTTFT: math.NaN(), calTPOT: math.NaN(), calSync: math.NaN(),
		prototypeTPOT: math.NaN(), prototypeSync: math.NaN(), prototypeStep: math.NaN(),
	}
	ttft, tpot := run(*d)
	r.ttft, r.tpot = off(ttft, x.number("ttft_mean_ms")), off(tpot, x.number("tpot_mean_ms"))
	if !r.unused {
		return r
	}
	sync := *d
	sync.synchronous = true
	if x.text("ref_uncalibrated_tpot_ms") != "" {
		syncTTFT, syncTPOT := run(sync)
		r.prototypeTPOT = off(syncTPOT, x.number("ref_uncalibrated_tpot_ms"))
		r.prototypeSync = (syncTTFT - x.number("ref_uncalibrated_ttft_ms")) / syncTPOT
		r.prototypeStep = (ttft - x.number("ref_uncalibrated_ttft_ms")) / tpot
	}
	cal, err := latency.FindCalibration(d.setup.Model.Name + "/" + d.setup.GPU.Name + "/" + kind)
	if err != nil {
		return r // nobody fitted one
	}
	d.setup.Calibration, sync.setup.Calibration = cal, cal
	ttft, tpot = run(*d)
	r.calTTFT, r.calTPOT = off(ttft, x.number("ttft_mean_ms")), off(tpot, x.number("tpot_mean_ms"))
	ttft, _ = run(sync)
	r.calSync = off(ttft, x.number("ttft_mean_ms"))
	return r
}

// column picks one number of the rows that have it.
func column(rows []closedRow, get func(*closedRow) float64) []float64 {
	var v []float64
	for i := range rows {
		if x := get(&rows[i]); !math.IsNaN(x) {
			v = append(v, x)
		}
	}
	return v
}

// cell prints the errors of the rows that have them.
func cell(rows []closedRow, get func(*closedRow) float64) string {
	if v := column(rows, get); len(v) > 0 {
		return spread(v)
	}
	return ""
}

func closedLine(name string, rows []closedRow) string {
	return fmt.Sprintf("| %s | %d | %s | %s | %s | %s | %s |", name, len(rows),
		cell(rows, tpotError), cell(rows, calTPOTError), cell(rows, ttftError), cell(rows, calTTFTError),
		cell(rows, func(r *closedRow) float64 { return r.calSync }))
}

func ttftError(r *closedRow) float64    { return r.ttft }
func tpotError(r *closedRow) float64    { return r.tpot }
func calTTFTError(r *closedRow) float64 { return r.calTTFT }
func calTPOTError(r *closedRow) float64 { return r.calTPOT }

// leftOut says why a row is not simulated; empty for one that is.
func leftOut(x *measurements) string {
	switch dp := x.text("attn_dp"); {
	case x.text("flag") != "":
		return "flagged as contradicting their own sweep"
	case x.text("moe_dtype") == "int4":
		return "int4 weights, which no card has"
	case dp != "" && dp != "1":
		return "data-parallel attention, which is several engines in lockstep"
	}
	return ""
}

// sampleEvery of the measurements are simulated when not all are asked for.
const sampleEvery = 7

// TestAccuracyClosedLoop simulates the servers of a public benchmark, N clients at a time.
func TestAccuracyClosedLoop(t *testing.T) {
	x := readMeasurements(t, filepath.Join(accuracyData, "closed_loop_vllm.csv"))
	var all, unused []closedRow
	left := map[string]int{}
	for i, row := range x.rows {
		x.row = row
		if why := leftOut(x); why != "" {
			left[why]++
		} else if *accuracy || i%sampleEvery == 0 {
			r := closedLoop(x)
			all = append(all, r)
			if r.unused {
				unused = append(unused, r)
			}
		}
	}
	if !*accuracy {
		t.Logf("one of %d measurements; make accuracy simulates all of them", sampleEvery)
	}
	closedTable(t, all, unused, left)
	prototypeTable(t, unused)
	calibrated := slices.DeleteFunc(slices.Clone(unused), func(r closedRow) bool { return math.IsNaN(r.calTTFT) })
	within(t, "closed loop, uncalibrated TPOT, mean absolute", mean(absolute(column(unused, tpotError))), 18)
	within(t, "closed loop, calibrated TPOT, mean absolute", mean(absolute(column(calibrated, calTPOTError))), 10)
	within(t, "closed loop, calibrated TTFT, mean absolute", mean(absolute(column(calibrated, calTTFTError))), 32)
}

// closedTable publishes the errors by deployment, of the rows that no calibration has seen.
func closedTable(t *testing.T, all, unused []closedRow, left map[string]int) {
	lines := []string{
		"| deployment | rows | TPOT uncalibrated, % | TPOT calibrated, % | TTFT uncalibrated, % | TTFT calibrated, % | TTFT calibrated, synchronous engine, % |",
		"|---|---:|---|---|---|---|---|",
	}
	for _, k := range deployments(unused) {
		lines = append(lines, closedLine(k, of(unused, k)))
	}
	calibrated := slices.DeleteFunc(slices.Clone(unused), func(r closedRow) bool { return math.IsNaN(r.calTTFT) })
	lines = append(lines, closedLine("all that have a calibration", calibrated), closedLine("all", unused), "",
		fmt.Sprintf("Uncalibrated, all %d rows simulated, those that calibrations were fitted on included: TPOT %s %%, TTFT %s %%.", len(all), cell(all, tpotError), cell(all, ttftError)))
	for _, why := range slices.Sorted(maps.Keys(left)) {
		lines = append(lines, "", fmt.Sprintf("Left out: %d rows, %s.", left[why], why))
	}
	if *accuracy {
		publish(t, "closed-loop", lines)
	}
}

// prototypeTable compares with the specification's prototype, whose scheduler was synchronous: the same law must give
// the same TPOT, and asynchronous scheduling must add about one decode step to TTFT.
func prototypeTable(t *testing.T, unused []closedRow) {
	lines := []string{
		"| deployment | rows | TPOT, %, synchronous engine | TTFT, decode steps, synchronous engine | TTFT, decode steps, asynchronous engine |",
		"|---|---:|---:|---:|---:|",
	}
	for _, k := range deployments(unused) {
		rows := of(unused, k)
		v := column(rows, func(r *closedRow) float64 { return r.prototypeTPOT })
		if len(v) == 0 {
			continue
		}
		tpot, sync, async := againstPrototype(rows)
		lines = append(lines, fmt.Sprintf("| %s | %d | %+.2f | %+.2f | %+.2f |", k, len(v), tpot, sync, async))
		if len(v) >= 10 {
			agree(t, k, rows)
		}
	}
	agree(t, "all deployments", slices.DeleteFunc(slices.Clone(unused), func(r closedRow) bool { return strings.HasPrefix(r.key, "kimi") }))
	if *accuracy {
		publish(t, "prototype", lines)
	}
}

// againstPrototype is the median difference in TPOT, percent, and those in TTFT, decode steps.
func againstPrototype(rows []closedRow) (tpot, sync, async float64) {
	return quantile(column(rows, func(r *closedRow) float64 { return r.prototypeTPOT }), 0.5),
		quantile(column(rows, func(r *closedRow) float64 { return r.prototypeSync }), 0.5),
		quantile(column(rows, func(r *closedRow) float64 { return r.prototypeStep }), 0.5)
}

// agree holds rows to the prototype, except where it computed another law for latent attention.
func agree(t *testing.T, what string, rows []closedRow) {
	t.Helper()
	if strings.HasPrefix(what, "kimi") {
		return
	}
	tpot, sync, async := againstPrototype(rows)
	within(t, what+", median TPOT against the prototype", tpot, 0.3)
	if math.Abs(sync) > 0.4 || async < 0.5 || async > 1.3 {
		t.Errorf("%s: TTFT is %+.2f decode steps (synchronous) and %+.2f (asynchronous) beyond the prototype's, want about 0 and 1", what, sync, async)
	}
}

// deployments lists the keys of rows in order.
func deployments(rows []closedRow) []string {
	keys := map[string]bool{}
	for i := range rows {
		keys[rows[i].key] = true
	}
	return slices.Sorted(maps.Keys(keys))
}

// of picks the rows of a deployment.
func of(rows []closedRow, key string) []closedRow {
	return slices.DeleteFunc(slices.Clone(rows), func(r closedRow) bool { return r.key != key })
}
