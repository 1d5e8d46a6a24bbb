package sim

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/results"
)

// reporter is what *testing.T and *rapid.T share.
type reporter interface {
	Helper()
	Fatalf(format string, args ...any)
}

// sameWalking runs c jumping, with its memory asked for ahead, and walking, without. It expects the same rows and totals, bit
// for bit, and returns how many events jumping saved.
func sameWalking(f reporter, c *Config) int64 {
	f.Helper()
	c.Walk, c.ahead = false, true
	jump, jumpTotals := simulate(f, c)
	c.Walk, c.ahead = true, false
	walk, walkTotals := simulate(f, c)
	return same(f, "jumping", jump, jumpTotals, "walking", walk, walkTotals)
}

// same expects two ways to run one configuration to give the same rows and totals, and returns how many events the first
// one saved.
func same(f reporter, oneWay string, one *rows, oneTotals *results.Totals, otherWay string, other *rows, otherTotals *results.Totals) int64 {
	f.Helper()
	if one.forever != other.forever {
		f.Fatalf("an engine goes round for nothing %s: %v, %s: %v", oneWay, one.forever, otherWay, other.forever)
	}
	saved := otherTotals.Events - oneTotals.Events
	oneTotals.Events, oneTotals.PolicySteps = otherTotals.Events, otherTotals.PolicySteps
	for i := range min(len(one.turns), len(other.turns)) {
		if one.turns[i] != other.turns[i] {
			f.Fatalf("row %d differs:\n%s %+v\n%s %+v", i, oneWay, one.turns[i], otherWay, other.turns[i])
		}
	}
	for i := range min(len(one.samples), len(other.samples)) {
		if one.samples[i] != other.samples[i] {
			f.Fatalf("sample %d differs:\n%s %+v\n%s %+v", i, oneWay, one.samples[i], otherWay, other.samples[i])
		}
	}
	if !reflect.DeepEqual(oneTotals, otherTotals) {
		f.Fatalf("totals differ:\n%s %+v\n%s %+v", oneWay, oneTotals, otherWay, otherTotals)
	}
	if !reflect.DeepEqual(one, other) {
		f.Fatalf("rows differ")
	}
	return saved
}

func TestJumpingEqualsWalking(t *testing.T) {
	saved := int64(0)
	rapid.Check(t, func(rt *rapid.T) {
		if c := randomWorld(t, rt); c != nil {
			c.IntervalPS = int64(rapid.SampledFrom([]float64{5e10, 1e12}).Draw(rt, "interval"))
			saved += sameWalking(rt, c)
		}
	})
	if saved < 1000 {
		t.Errorf("jumping saved only %d events; it was not tested", saved)
	}
}

// The results folders are the same too, byte for byte: nothing in them says which way a run went.
func TestFoldersOfJumpingAndWalking(t *testing.T) {
	info := results.Info{Run: "run", Arm: "arm", Mode: results.ModeClosed, Seed: 1}
	folders, n := t.TempDir(), 0
	compared := 0
	rapid.Check(t, func(rt *rapid.T) {
		c := randomWorld(t, rt)
		if c == nil {
			return
		}
		n++
		way := func(name string, walk bool) (string, error) {
			c.Walk, c.ahead = walk, !walk
			dir := filepath.Join(folders, fmt.Sprint(n, name))
			_, _, err := writeRun(c, dir, info)
			return dir, err
		}
		jump, err := way("jump", false)
		walk, werr := way("walk", true)
		if err != nil || werr != nil {
			if !errors.Is(err, errForever) || !errors.Is(werr, errForever) {
				rt.Fatalf("jumping: %v, walking: %v", err, werr)
			}
			return
		}
		files, err := os.ReadDir(jump)
		others, werr := os.ReadDir(walk)
		if err != nil || werr != nil || len(files) != len(others) || len(files) < 3 {
			rt.Fatalf("%d files jumping, %d walking: %v, %v", len(files), len(others), err, werr)
		}
		for _, f := range files {
			a, err := os.ReadFile(filepath.Join(jump, f.Name()))
			b, werr := os.ReadFile(filepath.Join(walk, f.Name()))
			if err != nil || werr != nil || !bytes.Equal(a, b) {
				rt.Fatalf("%s differs: %v, %v", f.Name(), err, werr)
			}
		}
		compared++
		for _, dir := range []string{jump, walk} {
			if err := os.RemoveAll(dir); err != nil {
				rt.Fatal(err)
			}
		}
	})
	if compared == 0 {
		t.Error("no folders were compared")
	}
}

// TestArrivalAtTheEndOfAStep lets sessions arrive at the very picosecond at which a step of a run ends, on every replica
// and under routers that look at the replicas.
func TestArrivalAtTheEndOfAStep(t *testing.T) {
	law := newLaw(t)
	a, b, _ := law.DecodeCoefficients(1)
	for _, router := range []string{"round-robin", "vllm-dp", "lmetric", "oracle"} {
		for _, async := range []bool{false, true} {
			for j := int64(1); j < 40; j++ {
				end := law.Picoseconds(&latency.Batch{Prefill: []latency.Chunk{{Tokens: 1000}}, Sampled: 1}) + j*a + b*(j*1000+j*(j+1)/2)
				calls := []call{{prompt: 1000, output: 200}, {prompt: 1300, output: 100}}
				c := world(t, chain(calls, calls, calls, calls), "session", router)
				c.Replicas, c.Engine.Async = 2, async
				c.Arrivals = Arrivals{Process: Uniform, RatePerS: 1e12 / float64(end)}
				if got := toPS(1 / c.Arrivals.RatePerS * 1e12); got != end {
					t.Fatalf("the second session arrives at %d, expected %d", got, end)
				}
				sameWalking(t, c)
			}
		}
	}
}

// TestEqualReplicas runs replicas in lockstep, so that steps end at the same picosecond everywhere, with KV so tight that
// content is evicted here and looked for elsewhere.
func TestEqualReplicas(t *testing.T) {
	for _, router := range []string{"round-robin", "least-requests", "lmetric", "smetric"} {
		for blocks := int32(1500); blocks < 2600; blocks += 100 {
			tr := generated(t, "steady", map[string]float64{
				"sessions": 7, "turns": 8, "shared_tokens": 2000, "first_tokens": 500, "append_tokens": 600, "max_context": 20000, "output_tokens": 80,
			})
			c := world(t, tr, "none", router)
			c.Replicas, c.KVBlocks = 3, blocks
			sameWalking(t, c)
		}
	}
}

// TestHeadFitsDuringARun has a turn wait for room whose prompt runs along what a running request is still writing: when
// that registers a block, the turn needs one block less and may fit, in the middle of what is otherwise a run.
func TestHeadFitsDuringARun(t *testing.T) {
	early := 0
	for blocks := int32(23); blocks < 27; blocks++ {
		for after := 0; after < 8; after++ {
			// The writer fills a block with its 11th token, while the third request still has room in its last block.
			tr := chain([]call{{prompt: 165, output: 60}}, []call{{prompt: 260, output: 10, gapS: 0.01 + float64(after)*0.007}}, []call{{prompt: 97, output: 20}})
			reader := &tr.Sessions[1].Turns[0]
			reader.Prompt.Stream = tr.Tree.Fork(prefix.Prefix{Stream: tr.Sessions[0].Turns[0].Prompt.Stream, Tokens: 260})
			c := world(t, tr, "none", "round-robin")
			c.KVBlocks, c.Engine.Async = blocks, false
			sameWalking(t, c)
			out, _ := simulate(t, c)
			if w, r := out.find(t, 0, 0, 1), out.find(t, 1, 0, 1); r.ScheduledPS > r.SentPS+1e10 && r.ScheduledPS < w.DonePS {
				early++
			}
		}
	}
	if early == 0 {
		t.Error("no turn ever waited and then fitted while the other one ran")
	}
}

// BenchmarkDecode is one long decode on one replica, jumped over and walked through.
func BenchmarkDecode(b *testing.B) {
	for _, walk := range []bool{false, true} {
		b.Run(fmt.Sprintf("walk=%v", walk), func(b *testing.B) {
			c := world(b, chain([]call{{prompt: 1000, output: 2000}}), "none", "round-robin")
			c.Walk, c.Check = walk, false
			for b.Loop() {
				simulate(b, c)
			}
		})
	}
}
