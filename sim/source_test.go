package sim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/traces"
)

// TestSourcesAreTheTrace runs random worlds on sessions in memory, on sessions that are made when they start and on sessions
// that are read from a file then, and expects the same rows and totals, bit for bit.
func TestSourcesAreTheTrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace.parquet")
	rapid.Check(t, func(rt *rapid.T) {
		c := randomWorld(t, rt)
		if c == nil {
			return
		}
		preset := rapid.SampledFrom([]string{"bailian-agentic", "claude-code", "swe-rollout"}).Draw(rt, "preset of the source")
		p := traces.Params{"sessions": traces.Num(float64(rapid.IntRange(1, 12).Draw(rt, "sessions of the source")))}
		if preset == "swe-rollout" {
			p = traces.Params{"prompts": traces.Num(3), "samples": traces.Num(2), "turns": traces.Num(6)}
			c.Arrivals = Arrivals{Process: Rollout, Prompts: 2, Samples: 2}
		}
		c.Open = rapid.Bool().Draw(rt, "open")
		seed := rapid.Uint64Range(0, 1<<40).Draw(rt, "seed of the source")
		tr, err := traces.Generate(preset, seed, p)
		if err != nil {
			rt.Fatal(err)
		}
		made, err := traces.GenerateSource(preset, seed, p)
		if err != nil {
			rt.Fatal(err)
		}
		const most = 25_000 // of randomWorld
		if c.Trace = traces.DropOverContext(tr, most); len(c.Trace.Sessions) == 0 {
			return
		}
		held, heldTotals := simulate(rt, c)
		sources := map[string]traces.Source{"generated": made, "native": nativeSource(rt, file, tr)}
		for name, src := range sources {
			c.Trace = nil
			if c.Source, err = traces.DropOver(src, most); err != nil {
				rt.Fatal(err)
			}
			out, totals := simulate(rt, c)
			if !reflect.DeepEqual(held, out) {
				rt.Fatalf("%s: the rows differ from those of the trace in memory", name)
			}
			if !reflect.DeepEqual(heldTotals, totals) {
				rt.Fatalf("%s: the totals differ:\nin memory %+v\nby source %+v", name, heldTotals, totals)
			}
		}
	})
}

// nativeSource is a trace by way of a file.
func nativeSource(t *rapid.T, file string, tr *traces.Trace) traces.Source {
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := traces.WriteNative(f, tr); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	src, err := traces.NativeSource(file, traces.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// startingAt gives the sessions of a trace recorded starts, in whole seconds so that some agree.
func startingAt(tr *traces.Trace, starts []int64) *traces.Trace {
	out := *tr
	out.Sessions = slices.Clone(tr.Sessions)
	for i := range out.Sessions {
		out.Sessions[i].StartNS = starts[i%len(starts)] * 1e9
	}
	return &out
}

// TestSessionsStartInTheirOrder holds starts to the clock of the trace and, at one moment, to the number of the session.
func TestSessionsStartInTheirOrder(t *testing.T) {
	tr := generated(t, "bench", map[string]float64{"sessions": 40, "input_tokens": 50, "output_tokens": 3})
	for name, starts := range map[string][]int64{"sorted": {5}, "unsorted": {7, 3, 3, 9, 0, 7}} {
		c := world(t, startingAt(tr, starts), "none", "round-robin")
		c.Arrivals = Arrivals{Process: Recorded, Speedup: 2}
		out, _ := simulate(t, c)
		at := map[int32]int64{}
		var arrived []int32
		for i := range out.turns {
			at[out.turns[i].Session] = out.turns[i].ArrivalPS
			arrived = append(arrived, out.turns[i].Session)
		}
		for s := range int32(40) {
			if want := seconds(float64(starts[int(s)%len(starts)]) / 2); at[s] != want {
				t.Errorf("%s: session %d arrives at %d, expected %d", name, s, at[s], want)
			}
		}
		if len(arrived) != 40 {
			t.Errorf("%s: %d turns of 40", name, len(arrived))
		}
	}
}

// TestStartsAreDrawnBySession holds the starts of sessions to the draws, made here in one go.
func TestStartsAreDrawnBySession(t *testing.T) {
	const n, rate = 50, 3.0
	tr := generated(t, "bench", map[string]float64{"sessions": n, "input_tokens": 50, "output_tokens": 3})
	for _, shuffle := range []bool{false, true} {
		c := world(t, tr, "none", "round-robin")
		c.Seed = 5
		c.Arrivals = Arrivals{Process: Poisson, RatePerS: rate, Shuffle: shuffle}
		order := make([]int32, n)
		for i := range order {
			order[i] = int32(i)
		}
		for i := n - 1; i > 0 && shuffle; i-- {
			j := exact.UniformInt(exact.Hash2(c.Seed, purposeOrder, uint64(i)), int64(i+1))
			order[i], order[j] = order[j], order[i]
		}
		want := map[int32]int64{}
		at := int64(0)
		for i, s := range order {
			want[s] = at
			at += toPS(-exact.Log(exact.Uniform(exact.Hash2(c.Seed, purposeArrival, uint64(i)))) / rate * 1e12)
		}
		out, _ := simulate(t, c)
		for i := range out.sessions {
			x := &out.sessions[i]
			if d := x.StartPS - want[x.Session]; d < -n || d > n { // the gap is rounded here and there
				t.Errorf("shuffled %v: session %d starts at %d, expected %d", shuffle, x.Session, x.StartPS, want[x.Session])
			}
		}
	}
}

// failing is a source whose readings after the first break off.
type failing struct {
	traces.Source
	readings int
}

func (f *failing) Open() (traces.Cursor, error) {
	c, err := f.Source.Open()
	f.readings++
	return &failingCursor{Cursor: c, left: 5, breaks: f.readings > 1}, err
}

type failingCursor struct {
	traces.Cursor
	left   int
	breaks bool
}

var errTorn = errors.New("torn")

func (c *failingCursor) Next() (*traces.Session, error) {
	if c.left--; c.breaks && c.left < 0 {
		return nil, errTorn
	}
	return c.Cursor.Next()
}

// TestSourceThatFails ends the run with the error of the source, whenever it comes.
func TestSourceThatFails(t *testing.T) {
	tr := generated(t, "bench", map[string]float64{"sessions": 20, "input_tokens": 50, "output_tokens": 3})
	for _, a := range []Arrivals{
		{Process: Burst}, {Process: Poisson, RatePerS: 1}, {Process: Concurrent, Sessions: 2}, {Process: Rollout, Prompts: 1, Samples: 4},
	} {
		c := world(t, tr, "none", "round-robin")
		c.Trace, c.Source, c.Arrivals = nil, &failing{Source: tr}, a
		if _, err := Run(context.Background(), c, nothing{}); !errors.Is(err, errTorn) {
			t.Errorf("%+v: error %v", a, err)
		}
	}
}

// TestPlacesAreUsedAgain holds what a run keeps to the sessions that are live at a time.
func TestPlacesAreUsedAgain(t *testing.T) {
	p := traces.Params{"sessions": traces.Num(500), "turns": traces.Num(3), "input_tokens": traces.Num(100), "output_tokens": traces.Num(4), "prefix_tokens": traces.Num(64)}
	src, err := traces.GenerateSource("bench", 1, p)
	if err != nil {
		t.Fatal(err)
	}
	c := world(t, chain([]call{{prompt: 1, output: 1}}), "none", "round-robin")
	c.Trace, c.Source, c.Replicas = nil, src, 2
	c.Arrivals = Arrivals{Process: Concurrent, Sessions: 7}
	r, err := begin(context.Background(), c, nothing{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.loop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := len(r.sessions); n > 8 {
		t.Errorf("%d places for 7 sessions at a time", n)
	}
	if n := len(r.history.known); n > 2*8 {
		t.Errorf("%d streams known at the end of 7 sessions at a time", n)
	}
	if k := r.history.of(0); k == nil || k.anywhere != 4 || len(k.holders) != 2 {
		t.Errorf("of the shared prefix %+v is known, expected 4 blocks on both replicas", k)
	}
	for s := range prefix.StreamID(r.tree.Len()) {
		if s > 0 && r.history.of(s) != nil {
			t.Errorf("stream %d is known, its session is over", s)
		}
	}
	if n := len(r.agenda.heap); n > 10 {
		t.Errorf("%d events at the end", n)
	}
}

// TestTurnsOfOneMomentArriveInTheirOrder takes events off the agenda by session and turn, whatever the order in which they
// were planned and the places of the sessions.
func TestTurnsOfOneMomentArriveInTheirOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var q agenda
		type arrival struct{ number, turn, place int32 }
		var want []arrival
		for number := range int32(4) {
			for turn := range int32(5) {
				want = append(want, arrival{number, turn, (number * 3) % 4})
			}
		}
		for _, x := range rapid.Permutation(want).Draw(rt, "planned") {
			q.pushTurn(7, x.number, turnRef{x.place, x.turn})
		}
		for _, x := range want {
			if e := q.pop(); e.kind != turnArrives || e.a != x.number || e.b != uint32(x.turn) || e.c != x.place {
				rt.Fatalf("event %+v, expected %+v", e, x)
			}
		}
	})
}

// computedContent is history without an index: every block that was registered, by stream and replica.
type computedContent struct{ here, lost map[[2]int32]int32 }

func (m *computedContent) end(which extent, replica int32, s prefix.StreamID) int32 {
	end := int32(0)
	for k, hi := range m.here {
		if k[0] == int32(s) && (which == anywhere || which == here && k[1] == replica) {
			end = max(end, hi)
		}
	}
	for k, hi := range m.lost {
		if k[0] == int32(s) && (which == anywhere || which == lost && k[1] == replica) {
			end = max(end, hi)
		}
	}
	return end
}

// TestHistory drives the history and a slow one with random registrations, restarts and ends.
func TestHistory(t *testing.T) {
	const replicas, streams = 2 * manyHolders, 6
	rapid.Check(t, func(rt *rapid.T) {
		h := newHistory(replicas, 2)
		m := computedContent{map[[2]int32]int32{}, map[[2]int32]int32{}}
		gone := map[int32]bool{}
		for range rapid.IntRange(1, 120).Draw(rt, "operations") {
			s, i := rapid.Int32Range(0, streams-1).Draw(rt, "stream"), rapid.Int32Range(0, replicas-1).Draw(rt, "replica")
			switch rapid.IntRange(0, 12).Draw(rt, "operation") {
			case 0:
				h.restarted(i)
				for k, hi := range m.here {
					if k[1] == i {
						m.lost[k] = max(m.lost[k], hi)
						delete(m.here, k)
					}
				}
			case 1:
				if h.end(prefix.StreamID(s)) == gone[s] {
					rt.Fatalf("end of stream %d, gone %v", s, gone[s])
				}
				gone[s] = true
				for k := range m.here {
					if k[0] == s {
						delete(m.here, k)
					}
				}
				for k := range m.lost {
					if k[0] == s {
						delete(m.lost, k)
					}
				}
			default:
				hi := rapid.Int32Range(1, 9).Draw(rt, "end")
				h.computed(i, prefix.StreamID(s), hi)
				if k := [2]int32{s, i}; !gone[s] {
					m.here[k] = max(m.here[k], hi)
				}
			}
			for s := range prefix.StreamID(streams) {
				path := []prefix.Segment{{Stream: s, Lo: 0, Hi: 100}}
				for i := range int32(replicas) {
					for _, which := range []extent{anywhere, here, lost} {
						if got, want := h.reach(which, i, path, 50), m.end(which, i, s); got != want {
							rt.Fatalf("stream %d replica %d extent %d: reach %d, expected %d", s, i, which, got, want)
						}
					}
				}
			}
		}
	})
}
