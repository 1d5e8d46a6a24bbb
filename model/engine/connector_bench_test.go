package engine

import (
	"fmt"
	"testing"

	"github.com/sluice-sim/sluice/model/kv"
	"github.com/sluice-sim/sluice/prefix"
)

// BenchmarkConnectorTurn is one turn of a session whose context the GPU has evicted: load it from the CPU tier, compute and
// store 256 new tokens, decode 64. Only the length of the context differs.
func BenchmarkConnectorTurn(b *testing.B) {
	for _, cpu := range []string{"none", "lru", "arc", "threshold", "places"} {
		for _, context := range []int32{4096, 32_768, 131_072} {
			b.Run(fmt.Sprintf("%s/context=%dk", cpu, context/1024), func(b *testing.B) {
				d := newTurns(cpu, context, 0)
				for range 300 {
					d.turn()
				}
				b.ReportAllocs()
				steps := d.loop.Engine.steps
				n := 0
				for b.Loop() {
					d.turn()
					n++
				}
				b.ReportMetric(float64(d.loop.Engine.steps-steps)/float64(n), "steps/op")
			})
		}
	}
}

// turns drives an engine through turns of eight sessions, of which the GPU can keep three.
type turns struct {
	loop    *Loop
	tree    prefix.Tree
	bases   []prefix.Prefix // contexts of the sessions
	current []prefix.Prefix
	n       int
	jobs    []JobID
	path    []prefix.Segment
}

// benchTurns is how often a session goes on before it starts again from its context.
const benchTurns = 16

// newTurns makes room for so many more blocks.
func newTurns(cpu string, context, more int32) *turns {
	cfg := DefaultConfig()
	cfg.MaxBatchedTokens = 1 << 20
	d := &turns{loop: NewLoop(New(&cfg, kv.NewExtent(3*(context/16+benchTurns*20)+more, true)))}
	tier := kv.CPUConfig{Chunks: 10 * (context/16 + benchTurns*20), ARC: cpu == "arc", Places: cpu == "places"}
	if cpu == "threshold" {
		tier.StoreThreshold = 2
	}
	if cpu != "none" {
		d.loop.Connect(OffloadConfig{CPUConfig: tier, BlocksPerChunk: 1, PromptOnly: true})
	}
	for range 8 {
		d.bases = append(d.bases, prefix.Prefix{Stream: d.tree.Root(), Tokens: context})
	}
	d.current = append(d.current, d.bases...)
	return d
}

func (d *turns) add(p prefix.Prefix, output int32) {
	d.path = d.tree.Segments(prefix.Prefix{Stream: p.Stream, Tokens: p.Tokens + output}, 16, d.path[:0])
	d.loop.Add(Request{Prompt: p, MaxTokens: output, Path: append([]prefix.Segment(nil), d.path...)})
}

// turn is the next turn of the next session.
func (d *turns) turn() {
	s := d.n % len(d.bases)
	if d.n/len(d.bases)%benchTurns == 0 {
		d.current[s] = prefix.Prefix{Stream: d.tree.Fork(d.bases[s]), Tokens: d.bases[s].Tokens}
	}
	d.n++
	p := &d.current[s]
	p.Tokens += 256
	d.add(*p, 64)
	p.Tokens += 64
	for d.step(true) {
	}
}

// step is one step, or a run of decodes where that is wanted and nothing else is to be done; false when the engine is idle.
func (d *turns) step(runs bool) bool {
	outcome, st, _ := d.loop.Advance()
	o := d.loop.Offload()
	if st != nil && o != nil {
		for _, jobs := range [2][]Job{o.Loads, o.Stores} {
			for i := range jobs {
				d.jobs = append(d.jobs, jobs[i].ID)
			}
		}
	}
	if outcome == Blocked {
		if runs && len(d.jobs) == 0 {
			if r := d.loop.DecodeRun(); r.Steps > 0 {
				d.loop.Jump(r.Steps)
				d.loop.Resume(r.Steps)
			}
		}
		for _, id := range d.jobs {
			o.Report(id)
		}
		d.jobs = d.jobs[:0]
		d.loop.Complete()
	}
	return outcome != Idle
}

// BenchmarkConnectorRefused is one step of a decoding request while another, which the CPU tier has, does not fit.
func BenchmarkConnectorRefused(b *testing.B) {
	for _, cpu := range []string{"none", "lru", "arc", "threshold", "places"} {
		b.Run(cpu, func(b *testing.B) {
			const output = 1 << 22
			d := newTurns(cpu, 32_768, output/16)
			for range 16 {
				d.turn()
			}
			d.add(prefix.Prefix{Stream: d.tree.Root(), Tokens: 16_000}, output)
			for range 40 {
				d.step(false)
			}
			d.add(prefix.Prefix{Stream: d.bases[0].Stream, Tokens: 2 * output}, 64)
			b.ReportAllocs()
			for b.Loop() {
				if d.step(false); d.loop.Running() != 1 || d.loop.Waiting() != 1 {
					b.Fatalf("%d running, %d waiting", d.loop.Running(), d.loop.Waiting())
				}
			}
		})
	}
}
