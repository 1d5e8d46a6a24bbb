package results

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
)

// ClassResult is what a window measured of the turns of one service class that arrived in it.
type ClassResult struct {
	Class    int32 `json:"class" doc:"service class; 0 is the most important"`
	Turns    int64 `json:"turns" doc:"its turns that arrived"`
	Finished int64 `json:"finished_turns" doc:"of these, finished"`
	Rejected int64 `json:"rejected_turns" doc:"of these, refused in their last attempt"`
	Held     int64 `json:"held_turns" doc:"of these, held by the gate at least once, last attempts"`

	HitRate    *float64 `json:"hit_rate" doc:"as of the window, over its turns"`
	Ceiling    *float64 `json:"hit_ceiling" doc:"likewise"`
	TTFT       Dist     `json:"ttft_s" doc:"likewise"`
	TPOT       Dist     `json:"tpot_s" doc:"likewise"`
	E2EL       Dist     `json:"e2el_s" doc:"likewise"`
	GateWait   Dist     `json:"gate_wait_s" doc:"likewise"`
	Attainment *float64 `json:"slo_attainment" doc:"share of its turns that arrived which met every bound; null without an SLO"`
}

// byClass is every service class of a run, in order, without the distributions; nothing if the run has one class only.
func (c *Collector) byClass(w *windowSums) []ClassResult {
	all := []ClassResult{}
	if len(c.classes) < 2 {
		return all
	}
	for i, class := range c.classes {
		s := &w.classes[i]
		r := ClassResult{Class: class, Turns: s.turns, Finished: s.finished, Rejected: s.rejected, Held: s.held,
			HitRate: ratio(float64(s.hits), float64(s.prompt)), Ceiling: ratio(float64(s.ceiling), float64(s.prompt))}
		if c.info.SLO != nil {
			r.Attainment = ratio(float64(s.met), float64(s.turns))
		}
		all = append(all, r)
	}
	return all
}

// orderClasses orders classes, which came in order of appearance.
func orderClasses(all []ClassResult) {
	slices.SortFunc(all, func(a, b ClassResult) int { return cmp.Compare(a.Class, b.Class) })
}

var classType = reflect.TypeFor[ClassResult]()

// ofClass is the element of a list of ClassResult whose class is called name; found is false if there is none.
func ofClass(list reflect.Value, name string) (v reflect.Value, found bool) {
	for i := range list.Len() {
		if strconv.FormatInt(list.Index(i).Field(0).Int(), 10) == name {
			return list.Index(i), true
		}
	}
	return reflect.Zero(classType), false
}

// classRows are the rows of each class in a comparison. The names are those within ClassResult.
var classRows = []rowSpec{
	{"turns", "turns", "", rateRow, nil},
	{"slo_attainment", "SLO attainment", "%", shareRow, hasSLO},
	{"rejected_turns", "turns refused", "", rateRow, nil},
	{"hit_rate", "hit rate", "%", shareRow, nil},
	{"ttft_s.p50", "TTFT p50", "s", rateRow, nil},
	{"ttft_s.p95", "TTFT p95", "s", rateRow, nil},
	{"tpot_s.p50", "TPOT p50", "s", rateRow, nil},
	{"e2el_s.p50", "turn latency p50", "s", rateRow, nil},
	{"held_turns", "turns held at the gate", "", rateRow, nil},
	{"gate_wait_s.mean", "gate wait mean", "s", rateRow, nil},
}

// byClass compares the arms class by class; nothing if no run has more than one.
func (c *Comparison) byClass() []Row {
	var classes []int32
	for _, arm := range c.Arms {
		for _, s := range arm.Runs {
			if w := s.Table(); w != nil {
				for i := range w.ByClass {
					classes = append(classes, w.ByClass[i].Class)
				}
			}
		}
	}
	slices.SortFunc(classes, cmp.Compare[int32])
	rows := []Row{}
	for _, class := range slices.Compact(classes) {
		for _, spec := range classRows {
			if spec.when == nil || spec.when(c) {
				spec.metric = fmt.Sprintf("by_class.%d.%s", class, spec.metric)
				spec.label = fmt.Sprintf("Class %d: %s", class, spec.label)
				rows = append(rows, compareArms(c.Arms, spec))
			}
		}
	}
	return rows
}
