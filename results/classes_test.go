package results

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func classRun(class ...int32) *Summary {
	r := newSmallRun()
	for i := range r.turns {
		r.turns[i].Class = class[r.turns[i].Session]
	}
	c := NewCollector(smallInfo())
	if err := r.into(c); err != nil {
		panic(err)
	}
	return c.Summary(&r.totals)
}

// The small run with its first session in class 2 and its second in class 0, by hand. The retry of class 0 waits from the
// arrival of the first attempt at 5 s.
func TestByClassByHand(t *testing.T) {
	s := classRun(2, 0)
	dist := func(values ...float64) Dist {
		d := Dist{N: int64(len(values)), Max: some(0)}
		sum := 0.0
		for _, v := range values {
			sum, d.Max = sum+v, some(max(*d.Max, v))
		}
		d.Mean = some(sum / float64(len(values)))
		return d
	}
	want := []ClassResult{
		{Class: 0, Turns: 1, Finished: 1, HitRate: some(.2), Ceiling: some(.2), TTFT: dist(6), TPOT: dist(1), E2EL: dist(7), GateWait: dist(0), Attainment: some(0)},
		{Class: 2, Turns: 2, Finished: 2, Held: 1, HitRate: some(1. / 3), Ceiling: some(1. / 3), TTFT: dist(1, 3), TPOT: dist(.5, 2), E2EL: dist(3, 5), GateWait: dist(0, 2), Attainment: some(.5)},
	}
	if d := cmp.Diff(want, s.Whole.ByClass); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	s.TableWindow = "whole"
	for _, c := range []struct {
		name string
		want *float64
	}{
		{"by_class.2.ttft_s.mean", some(2)}, {"by_class.0.ttft_s.mean", some(6)}, {"whole.by_class.2.slo_attainment", some(.5)},
		{"by_class.2.held_turns", some(1)}, {"by_class.1.turns", nil}, {"by_class.0.ttft_s.p99", nil},
	} {
		got, err := s.Metric(c.name)
		if d := cmp.Diff(c.want, got); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got)\n%s", c.name, err, d)
		}
	}
	for _, name := range []string{"by_class", "by_class.0", "by_class.0.ttft", "by_class.ttft_s.mean"} {
		if _, err := s.Metric(name); err == nil {
			t.Errorf("%s is a metric", name)
		}
	}
}

func TestOneClassHasNoBreakdown(t *testing.T) {
	for _, class := range []int32{0, 3} {
		if s := classRun(class, class); s.Whole.ByClass == nil || len(s.Whole.ByClass) != 0 || s.Steady != nil && len(s.Steady.ByClass) != 0 {
			t.Errorf("class %d alone: %v", class, s.Whole.ByClass)
		}
	}
}

// Classes part the turns: their counts add up to the window's, and so do their distributions' sums.
func TestClassesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newSmallRun()
		for i := range r.turns {
			r.turns[i].Class = int32(rapid.IntRange(0, 2).Draw(t, "class"))
		}
		c := NewCollector(smallInfo())
		if err := r.into(c); err != nil {
			t.Fatal(err)
		}
		w := c.Summary(&r.totals).Whole
		if len(w.ByClass) == 0 {
			return
		}
		var turns, finished, held, n int64
		met, sum := 0.0, 0.0
		for i, x := range w.ByClass {
			if i > 0 && x.Class <= w.ByClass[i-1].Class {
				t.Fatal("the classes are not in order")
			}
			turns, finished, held, n = turns+x.Turns, finished+x.Finished, held+x.Held, n+x.E2EL.N
			if x.Turns > 0 {
				met += *x.Attainment * float64(x.Turns)
			}
			if x.E2EL.N > 0 {
				sum += *x.E2EL.Mean * float64(x.E2EL.N)
			}
		}
		if turns != w.Turns || finished != w.Finished || held != w.HeldTurns || n != w.E2EL.N || met != *w.SLO.Attainment*float64(w.Turns) || sum != *w.E2EL.Mean*float64(n) {
			t.Fatalf("%+v do not add up", w.ByClass)
		}
	})
}

func TestClassesInTables(t *testing.T) {
	a, b := classRun(2, 0), classRun(0, 0)
	a.Arm, b.Arm = "a", "b"
	c := NewComparison([]*Summary{a, b})
	table := c.Table()
	if n := len(table.ByClass); n != 2*len(classRows) {
		t.Fatalf("%d rows for two classes", n)
	}
	var text, csv, j bytes.Buffer
	if err := table.Markdown(&text); err != nil {
		t.Fatal(err)
	}
	if err := table.CSV(&csv); err != nil {
		t.Fatal(err)
	}
	if err := table.JSON(&j); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ in, want string }{
		{text.String(), "| Class 2: SLO attainment [%] | 50.0 | - |"},
		{text.String(), "| Class 0: turns | 1 | - |"},
		{csv.String(), "by_class.2.gate_wait_s.mean,s,a,1,,,1"},
		{csv.String(), "by_class.0.hit_rate,share,a,0.2,,,1"},
	} {
		if !strings.Contains(c.in, c.want) {
			t.Errorf("no %q in\n%s", c.want, c.in)
		}
	}
	var back struct {
		ByClass []Row `json:"by_class"`
	}
	if err := json.Unmarshal(j.Bytes(), &back); err != nil || len(back.ByClass) != len(table.ByClass) || back.ByClass[1].Unit != "share" {
		t.Errorf("JSON: %v, %d rows", err, len(back.ByClass))
	}
	one := NewComparison([]*Summary{b}).Table()
	if _, rows := one.ClassStrings(); len(rows) != 0 {
		t.Errorf("one class: %v", rows)
	}
}
