package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/model/latency"
)

func stepCommand() *cobra.Command {
	var out outputFlags
	var model, gpu, modelCard, gpuCard, weight, moe, kv, calibration string
	var tp int
	var prefill, decode []string
	cmd := &cobra.Command{
		Use:   "step",
		Short: "Time one engine step by component",
		Long: `step prints how long one step of a replica takes, by component. --prefill CHUNK@PAST is a prefill chunk of CHUNK tokens
with PAST tokens already in the KV cache; --decode N@CONTEXT is N sequences that each produce one token, with CONTEXT tokens
of context (the token being computed included). Both are repeatable.`,
		Example: `  sluice step --model Qwen3-Coder-30B-A3B --gpu H100 --tp 2 --prefill 2048@30000 --decode 64@20000
  sluice step --model llama-3.1-8b --gpu h100 --decode 32@8000 --decode 8@100000 --json`,
		Args: argsNamed(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			setup := latency.Setup{TensorParallel: tp, WeightDType: unlessAuto(weight), MoEDType: unlessAuto(moe), KVDType: unlessAuto(kv)}
			var err error
			if setup.Model, err = namedCard("--model", model, modelCard, latency.FindModel, latency.LoadModelCard); err != nil {
				return usage(cmd, err.Error())
			}
			if setup.GPU, err = namedCard("--gpu", gpu, gpuCard, latency.FindGPU, latency.LoadGPUCard); err != nil {
				return usage(cmd, err.Error())
			}
			if setup.Calibration, err = latency.FindCalibration(calibration); err != nil {
				return usage(cmd, "--calibration: "+err.Error())
			}
			batch, err := parseBatch(prefill, decode, setup.Model.Window)
			if err != nil {
				return usage(cmd, err.Error())
			}
			law, err := latency.New(setup)
			if err != nil {
				return usage(cmd, err.Error())
			}
			return out.write(cmd.OutOrStdout(), stepSheet(law, batch))
		},
	}
	f := cmd.Flags()
	f.StringVar(&model, "model", "", "model card by `name` (see sluice models)")
	f.StringVar(&gpu, "gpu", "", "GPU card by `name` (see sluice gpus)")
	completeFlag(cmd, "model", completeModel)
	completeFlag(cmd, "gpu", completeGPU)
	f.StringVar(&modelCard, "model-card", "", "model card from a `file`")
	f.StringVar(&gpuCard, "gpu-card", "", "GPU card from a `file`")
	f.IntVar(&tp, "tp", 1, "tensor-parallel degree")
	f.StringArrayVar(&prefill, "prefill", nil, "a prefill chunk, `CHUNK@PAST` tokens; repeatable")
	f.StringArrayVar(&decode, "decode", nil, "`N@CONTEXT`: N decoding sequences with so many tokens each; repeatable")
	f.StringVar(&weight, "weight-dtype", "auto", "type of the weights")
	f.StringVar(&moe, "moe-dtype", "auto", "type of the expert weights")
	f.StringVar(&kv, "kv-dtype", "auto", "type of the KV cache: auto, bf16 or fp8")
	f.StringVar(&calibration, "calibration", "none", "calibration of a deployment")
	out.register(cmd)
	return cmd
}

func namedCard[T any](flag, name, file string, find, load func(string) (*T, error)) (*T, error) {
	switch {
	case name != "" && file != "":
		return nil, fmt.Errorf("give either %s or %s-card", flag, flag)
	case file != "":
		return load(file)
	case name == "":
		return nil, fmt.Errorf("%s or %s-card is required", flag, flag)
	}
	c, err := find(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return c, nil
}

// parseBatch reads the shape of the step.
func parseBatch(prefill, decode []string, window int) (*latency.Batch, error) {
	b := &latency.Batch{}
	for _, text := range prefill {
		chunk, past, err := pair("--prefill", text, "CHUNK@PAST", 0)
		if err != nil {
			return nil, err
		}
		b.Prefill = append(b.Prefill, latency.Chunk{Tokens: int32(chunk), Past: int32(past)})
	}
	var rows int64
	for _, text := range decode {
		n, context, err := pair("--decode", text, "N@CONTEXT", 1)
		if err != nil {
			return nil, err
		}
		rows += n
		b.DecodeContext += n * context
		if window > 0 {
			context = min(context, int64(window))
		}
		b.DecodeWindowed += n * context
	}
	if rows > math.MaxInt32 {
		return nil, fmt.Errorf("--decode: %d sequences are too many", rows)
	}
	b.DecodeRows = int32(rows)
	b.Sampled = b.DecodeRows + int32(len(b.Prefill))
	if b.Sampled == 0 {
		return nil, fmt.Errorf("an empty step takes no time: give --prefill CHUNK@PAST or --decode N@CONTEXT")
	}
	return b, nil
}

// pair reads "A@B" with A at least 1 and B at least least.
func pair(flag, text, form string, least int64) (a, b int64, err error) {
	const most = 1 << 24
	left, right, ok := strings.Cut(text, "@")
	if ok {
		a, err = strconv.ParseInt(left, 10, 64)
		if err == nil {
			b, err = strconv.ParseInt(right, 10, 64)
		}
	}
	if !ok || err != nil || a < 1 || b < least || a > most || b > most {
		return 0, 0, fmt.Errorf("%s %s: expected %s, whole numbers from 1 and %d to %d", flag, text, form, least, most)
	}
	return a, b, nil
}

// stepSheet has a row for each component and one for the sum; the calibration comes on top of the components.
func stepSheet(law *latency.Law, b *latency.Batch) *sheet {
	p := law.Parts(b)
	total := law.Seconds(b)
	s := &sheet{columns: []column{{Key: "component"}, {Key: "time_ms", Title: "time ms"}, {Key: "share"}}}
	add := func(name string, seconds float64) { s.add(name, seconds*1e3, seconds/total) }
	add("linear", p.Linear)
	if law.Setup().Model.MoELayers() > 0 {
		add("moe", p.MoE)
	}
	add("attention", p.Attention)
	add("elementwise", p.Elementwise)
	if law.Setup().TensorParallel > 1 {
		add("allreduce", p.AllReduce)
	}
	add("head", p.Head)
	if law.Setup().Calibration != (latency.Calibration{C0: 0, CSeq: 0, KDec: 1, KPf: 1, AllReduceRate: 1}) {
		add("calibration", total-p.Total())
	}
	add("step", total)
	return s
}
