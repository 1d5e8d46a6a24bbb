package results

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// distOf summarises values, which it sorts.
func distOf(values []float64) Dist {
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return summarise(len(values), sum, func(i int) float64 { return values[i] })
}

// plainDists works the distributions of finished turns out of the rows, one condition at a time: by window and class
// ("" is all), by turn bucket and by reason of admission.
type plainDists struct {
	turns []Turn
}

// arrival is that of the turn's first attempt.
func (p *plainDists) arrival(t *Turn) int64 {
	first := t.ArrivalPS
	for i := range p.turns {
		if o := &p.turns[i]; o.Session == t.Session && o.Number == t.Number && o.ArrivalPS < first {
			first = o.ArrivalPS
		}
	}
	return first
}

func (p *plainDists) of(keep func(t *Turn, arrival int64) bool, value func(t *Turn, arrival int64) (float64, bool)) Dist {
	var values []float64
	for i := range p.turns {
		t := &p.turns[i]
		arrival := t.ArrivalPS
		if t.Final {
			arrival = p.arrival(t)
		}
		if keep(t, arrival) {
			if v, ok := value(t, arrival); ok {
				values = append(values, v)
			}
		}
	}
	return distOf(values)
}

func ttft(t *Turn, arrival int64) (float64, bool) { return Seconds(t.FirstTokenPS - arrival), true }
func e2el(t *Turn, arrival int64) (float64, bool) { return Seconds(t.DonePS - arrival), true }
func tpotOf(t *Turn, _ int64) (float64, bool) {
	if t.OutputTokens < 2 {
		return 0, false
	}
	return Seconds(t.DonePS-t.FirstTokenPS) / float64(t.OutputTokens-1), true
}
func gateWait(t *Turn, _ int64) (float64, bool) { return Seconds(t.AdmittedPS - t.ArrivalPS), true }

// The summary's distributions are those of the obvious way, whatever the attempts and their order, in memory or through a
// file.
func TestDistributionsAgainstRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := plainDists{drawTurns(t)}
		if rapid.Bool().Draw(t, "sent at once") {
			p.turns = slices.DeleteFunc(p.turns, func(t Turn) bool { return !t.Final || t.Attempt > 1 })
			for i := range p.turns {
				p.turns[i].AdmittedPS, p.turns[i].SentPS = p.turns[i].ArrivalPS, p.turns[i].ArrivalPS
			}
		}
		c := NewCollector(smallInfo())
		if rapid.Bool().Draw(t, "spill") {
			c.attempts.open = func() (Scratch, error) { return OS{}.Scratch("") }
			c.attempts.chunkRows, c.attempts.keep = 7, 2
			defer c.attempts.close()
		}
		r := newSmallRun()
		r.turns = p.turns
		if err := r.into(c); err != nil {
			t.Fatal(err)
		}
		s := c.Summary(&r.totals)
		check := func(name string, got, want Dist) {
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("%s: %s", name, d)
			}
		}
		for name, w := range map[string]*Window{"whole": s.Whole, "steady": s.Steady} {
			if w == nil {
				continue
			}
			inside := func(t *Turn, arrival int64) bool {
				return t.Final && t.Outcome == Finished && w.Start <= Seconds(arrival) && Seconds(arrival) <= w.End
			}
			check(name+" ttft", w.TTFT, p.of(inside, ttft))
			check(name+" e2el", w.E2EL, p.of(inside, e2el))
			check(name+" ttft of the engine", w.TTFTEngine, p.of(inside, func(t *Turn, _ int64) (float64, bool) { return Seconds(t.FirstTokenPS - t.SentPS), true }))
			check(name+" tpot", w.TPOT, p.of(inside, tpotOf))
			check(name+" gate wait", w.GateWait, p.of(inside, gateWait))
			for i := range w.ByClass {
				k := &w.ByClass[i]
				ofClass := func(t *Turn, arrival int64) bool { return inside(t, arrival) && t.Class == k.Class }
				check(name+" ttft by class", k.TTFT, p.of(ofClass, ttft))
				check(name+" gate wait by class", k.GateWait, p.of(ofClass, gateWait))
			}
		}
		for i := range s.ByTurn {
			b := &s.ByTurn[i]
			within := func(t *Turn, _ int64) bool {
				return t.Final && t.Outcome == Finished && b.From <= int64(t.Number) && (b.To == 0 || int64(t.Number) <= b.To)
			}
			check("e2el by turn", b.E2EL, p.of(within, e2el))
			check("tpot by turn", b.TPOT, p.of(within, tpotOf))
		}
		for i := range s.ByContext {
			b := &s.ByContext[i]
			within := func(t *Turn, _ int64) bool {
				return t.Final && t.Outcome == Finished && b.From <= int64(t.PromptTokens) && (b.To == 0 || int64(t.PromptTokens) <= b.To)
			}
			check("ttft by context", b.TTFT, p.of(within, ttft))
		}
		for i := range s.Gate.ByReason {
			g := &s.Gate.ByReason[i]
			check("waits of "+g.Reason, g.Wait, p.of(func(t *Turn, _ int64) bool { return t.AdmitReason == g.Reason }, gateWait))
		}
	})
}
