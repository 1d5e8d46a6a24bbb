package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/gateway/fakevllm"
	"github.com/sluice-sim/sluice/gateway/kvevents"
	"github.com/sluice-sim/sluice/model/latency"
)

// engineFlags are the options of sluice engine, under vLLM's names where vLLM has them.
type engineFlags struct {
	card, gpu, calibration, weight, kv string
	scenario                           string
	names                              []string
	tp                                 int
	blocks, block, seqs, batched       int32
	maxModelLen, output, interval      int32
	sync, noPrefixCaching, noRender    bool
	noDetails, noResident, allowFaults bool
	priority                           bool
	host                               string
	port, replicas                     int
	speed                              float64
	drain                              time.Duration
	events, replay, topic              string
}

func engineCommand() *cobra.Command {
	var f engineFlags
	cmd := &cobra.Command{
		Use:   "engine",
		Short: "Serve a fake vLLM: its API, scheduler, cache, metrics and timing, without a GPU",
		Long: `engine is a vLLM server without a model: the API of vLLM (chat, completions, responses, messages, tokenize, metrics, KV events),
its scheduler and prefix cache block for block, and the step times of a model on a GPU, in real time or --speed times faster.
The answers are nonsense words that follow from the prompt. Ctrl-C lets requests under way finish, a second one does not.`,
		Example: `  sluice engine --port 8001 --replicas 2 --speed 20
  sluice engine --model-card Qwen3-Coder-30B-A3B --gpu H100 --tp 2 --port 8001
  curl localhost:8001/v1/chat/completions -d '{"messages":[{"role":"user","content":"Hello"}],"max_tokens":20,"stream":true}'`,
		Args: argsNamed(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.config(cmd)
			if err != nil {
				return usage(cmd, err.Error())
			}
			return f.serve(cmd, cfg)
		},
	}
	f.register(cmd)
	return cmd
}

func (f *engineFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.scenario, "scenario", "", "serve the replicas of this scenario: a `file` or the name of a bundled one (sluice scenarios)")
	fs.StringVar(&f.card, "model-card", "llama-3.1-8b", "model card: a `name` (see sluice models) or a .json file")
	fs.StringVar(&f.gpu, "gpu", "h100", "GPU card: a `name` (see sluice gpus) or a .json file")
	completeFlag(cmd, "model-card", completeModel)
	completeFlag(cmd, "gpu", completeGPU)
	fs.IntVar(&f.tp, "tp", 1, "tensor-parallel degree")
	fs.StringVar(&f.weight, "weight-dtype", "auto", "type of the weights")
	fs.StringVar(&f.kv, "kv-dtype", "auto", "type of the KV cache: auto, bf16 or fp8")
	fs.StringVar(&f.calibration, "calibration", "none", "calibration of a deployment")
	fs.StringSliceVar(&f.names, "served-model-name", nil, "`name` of the model in the API; of several all are served (default: that of the card)")
	fs.Int32Var(&f.blocks, "kv-blocks", 0, "usable KV blocks (default: what the GPU's memory leaves)")
	fs.Int32Var(&f.block, "block-size", 16, "tokens per KV block")
	fs.Int32Var(&f.seqs, "max-num-seqs", 0, "most requests in a batch (default: vLLM's for the GPU)")
	fs.Int32Var(&f.batched, "max-num-batched-tokens", 0, "most tokens in a step (default: vLLM's for the GPU)")
	fs.Int32Var(&f.maxModelLen, "max-model-len", 0, "longest prompt and output together (default: what fits in the KV cache, at most 131072)")
	fs.BoolVar(&f.sync, "no-async-scheduling", false, "schedule a step only when the one before it has ended")
	fs.BoolVar(&f.priority, "priority-scheduling", false, "schedule by the requests' priority instead of first come, first served")
	fs.BoolVar(&f.noPrefixCaching, "no-enable-prefix-caching", false, "keep no prefix cache")
	fs.BoolVar(&f.noDetails, "no-prompt-tokens-details", false, "do not say in usage how many prompt tokens were cached")
	fs.BoolVar(&f.noRender, "no-render", false, "have no render endpoints")
	fs.BoolVar(&f.noResident, "no-resident", false, "have no probe endpoint, as vLLM has none")
	fs.Int32Var(&f.interval, "stream-interval", 1, "send the tokens of a stream so many at a time after the first")
	fs.Int32Var(&f.output, "output-tokens", 200, "mean length of an answer where neither max_tokens nor ignore_eos decides")
	fs.StringVar(&f.events, "kv-events", "", "publish KV events over ZMQ at this `endpoint`, such as tcp://*:5557 (to bind; as in vLLM, one with the name of a host connects)")
	fs.StringVar(&f.replay, "kv-events-replay", "", "answer requests for lost KV events at this `endpoint`")
	fs.StringVar(&f.topic, "kv-events-topic", "", "topic of the KV events")
	fs.BoolVar(&f.allowFaults, "allow-faults", false, "let clients break the server with POST /fault")
	fs.StringVar(&f.host, "host", "127.0.0.1", "`address` to listen on")
	fs.IntVar(&f.port, "port", 8000, "port to listen on; 0 is any free one")
	fs.IntVar(&f.replicas, "replicas", 1, "how many servers to run, on as many ports from --port on")
	fs.Float64Var(&f.speed, "speed", 1, "how many times faster than real time the engine runs")
	fs.DurationVar(&f.drain, "drain-timeout", 30*time.Second, "how long Ctrl-C waits for requests under way")
}

// deploymentFlags are the flags that a scenario stands for.
var deploymentFlags = []string{"model-card", "gpu", "tp", "weight-dtype", "kv-dtype", "calibration", "kv-blocks", "block-size", "max-num-seqs",
	"max-num-batched-tokens", "max-model-len", "no-async-scheduling", "priority-scheduling", "no-enable-prefix-caching"}

// config is the server that the flags describe.
func (f *engineFlags) config(cmd *cobra.Command) (fakevllm.Config, error) {
	cfg, err := f.deployment(cmd)
	if err != nil {
		return cfg, err
	}
	if len(f.names) > 0 {
		cfg.Name, cfg.Alias = f.names[0], f.names[1:]
	}
	if f.port < 0 || f.port > 65535 {
		return cfg, fmt.Errorf("--port is %d; it must be 0 to 65535", f.port)
	}
	if f.replicas < 1 || f.replicas > 64 || f.port+f.replicas-1 > 65535 {
		return cfg, fmt.Errorf("--replicas is %d; it must be 1 to 64, with ports up to 65535", f.replicas)
	}
	cfg.Speed, cfg.OutputTokens, cfg.Interval = f.speed, f.output, f.interval
	cfg.PromptDetails, cfg.Render, cfg.Resident, cfg.AllowFaults = !f.noDetails, !f.noRender, !f.noResident, f.allowFaults
	if f.events != "" {
		cfg.KVEvents = &kvevents.PublisherConfig{Endpoint: f.events, Connect: !kvevents.EngineBinds(f.events), Replay: f.replay, Topic: f.topic, Maps: true}
	} else if f.replay != "" || f.topic != "" {
		return cfg, errors.New("--kv-events-replay and --kv-events-topic need --kv-events")
	}
	return cfg, cfg.Check()
}

// deployment is the model, the GPU and the engine that the flags or a scenario describe.
func (f *engineFlags) deployment(cmd *cobra.Command) (fakevllm.Config, error) {
	var none fakevllm.Config
	if f.scenario != "" {
		for _, name := range deploymentFlags {
			if cmd.Flags().Changed(name) {
				return none, fmt.Errorf("--scenario and --%s both say what the engine is; change the scenario instead", name)
			}
		}
		return f.ofScenario(cmd)
	}
	setup := latency.Setup{TensorParallel: f.tp, WeightDType: unlessAuto(f.weight), KVDType: unlessAuto(f.kv)}
	var err error
	if setup.Model, err = anyCard("--model-card", f.card, latency.FindModel, latency.LoadModelCard); err != nil {
		return none, err
	}
	if setup.GPU, err = anyCard("--gpu", f.gpu, latency.FindGPU, latency.LoadGPUCard); err != nil {
		return none, err
	}
	if setup.Calibration, err = latency.FindCalibration(f.calibration); err != nil {
		return none, fmt.Errorf("--calibration: %w", err)
	}
	cfg, err := fakevllm.DefaultConfig(setup, f.block)
	if err != nil {
		return none, err
	}
	e := &cfg.Engine
	e.Async, e.Priority, e.PrefixCaching = !f.sync, f.priority, !f.noPrefixCaching
	e.MaxModelLen = f.maxModelLen
	for _, x := range []struct {
		given int32
		to    *int32
	}{{f.blocks, &cfg.Blocks}, {f.batched, &e.MaxBatchedTokens}, {f.seqs, &e.MaxNumSeqs}} {
		if x.given != 0 {
			*x.to = x.given
		}
	}
	if f.seqs == 0 {
		e.MaxNumSeqs = min(e.MaxNumSeqs, e.MaxBatchedTokens)
	}
	return cfg, nil
}

// ofScenario is one replica of a scenario, and as many of them unless --replicas says otherwise.
func (f *engineFlags) ofScenario(cmd *cobra.Command) (fakevllm.Config, error) {
	var none fakevllm.Config
	sc, err := readScenario(cmd.InOrStdin(), f.scenario)
	if err != nil {
		return none, err
	}
	r, err := resolveCluster(sc)
	if err != nil {
		return none, err
	}
	if sc.Cluster.CPUTier.GiB > 0 {
		return none, sc.Problem("cluster.cpu_tier.gib", "the fake engine has no CPU tier; set it to 0")
	}
	if !cmd.Flags().Changed("replicas") {
		f.replicas = int(sc.Cluster.Replicas)
	}
	cfg, err := fakevllm.DefaultConfig(r.setup, r.engine.BlockTokens)
	if err != nil {
		return none, err
	}
	cfg.Engine, cfg.Blocks = r.engine, r.blocks
	cfg.Engine.MaxModelLen, err = maxModelLen(sc, r.blocks)
	return cfg, err
}

// anyCard is a card by name or from a file.
func anyCard[T any](flag, name string, find, load func(string) (*T, error)) (*T, error) {
	if isFile(name) {
		c, err := load(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		return c, nil
	}
	return namedCard(flag, name, "", find, load)
}
