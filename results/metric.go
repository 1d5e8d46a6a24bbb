package results

import (
	"fmt"
	"reflect"
	"strings"
)

// Metric is the declaration of one entry of summary.json.
type Metric struct {
	Name string // as in summary.json, without "whole." or "steady." for entries of a window
	Doc  string // definition
	Dist bool   // has .n, .mean, .p50, .p75, .p90, .p95, .p99 and .max below it
}

var (
	distType   = reflect.TypeFor[Dist]()
	windowType = reflect.TypeFor[Window]()
)

// WindowMetrics declares what a window holds, in the order of summary.json.
func WindowMetrics() []Metric { return declared(windowType, "", nil) }

// RunMetrics declares the entries of summary.json outside windows.
func RunMetrics() []Metric { return declared(reflect.TypeFor[Summary](), "", nil) }

func declared(t reflect.Type, prefix string, list []Metric) []Metric {
	for i := range t.NumField() {
		f := t.Field(i)
		m := Metric{Name: prefix + f.Tag.Get("json"), Doc: f.Tag.Get("doc")}
		typ := f.Type
		switch typ.Kind() {
		case reflect.Pointer:
			typ = typ.Elem()
		case reflect.Slice:
			typ, m.Name = typ.Elem(), m.Name+"[]"
		}
		m.Dist = typ == distType
		list = append(list, m)
		if typ.Kind() == reflect.Struct && !m.Dist && typ != windowType && typ.Field(0).Tag.Get("doc") != "" {
			list = declared(typ, m.Name+".", list)
		}
	}
	return list
}

// Metric is a number of the summary by its name in summary.json, such as "hit_rate", "ttft_s.p99", "work.max_mean",
// "milestones.makespan_s" or "whole.total_tps". Entries of a window are those of the table's window unless the name says
// "whole." or "steady.". The result is nil where the run has no value; an unknown name is an error.
func (s *Summary) Metric(name string) (*float64, error) {
	path := strings.Split(name, ".")
	if path[0] != "whole" && path[0] != "steady" {
		window := s.Table()
		if v, ok := number(reflect.ValueOf(window), path); ok {
			return v, nil
		}
	}
	if v, ok := number(reflect.ValueOf(s), path); ok {
		return v, nil
	}
	return nil, fmt.Errorf("unknown metric %q: expected a number of summary.json, such as hit_rate, ttft_s.p99 or milestones.makespan_s (see docs/metrics.md)", name)
}

// number follows path by JSON names. ok says that the path names a number of the type; the number may be missing.
func number(v reflect.Value, path []string) (value *float64, ok bool) {
	missing := false
	deref := func() {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v, missing = reflect.Zero(v.Type().Elem()), true
			} else {
				v = v.Elem()
			}
		}
	}
	deref()
	for _, name := range path {
		if v.Kind() == reflect.Slice && v.Type().Elem() == classType {
			found := false
			v, found = ofClass(v, name)
			missing = missing || !found
			continue
		}
		if v.Kind() != reflect.Struct {
			return nil, false
		}
		i := fieldByJSON(v.Type(), name)
		if i < 0 {
			return nil, false
		}
		v = v.Field(i)
		deref()
	}
	var f float64
	switch {
	case v.CanFloat():
		f = v.Float()
	case v.CanInt():
		f = float64(v.Int())
	default:
		return nil, false
	}
	if missing {
		return nil, true
	}
	return &f, true
}

func fieldByJSON(t reflect.Type, name string) int {
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("json") == name {
			return i
		}
	}
	return -1
}
