package policies

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/sluice-sim/sluice/nearest"
)

// Knob is the declaration of the knob called name; ok is false if there is none.
func (d Declaration) Knob(name string) (k Knob, ok bool) {
	for _, k := range d.Knobs {
		if k.Name == name {
			return k, true
		}
	}
	return Knob{}, false
}

// Check says what is wrong with p: a knob that the policy does not have, or a value outside its range. Names are
// checked in the order of the declaration, unknown ones in alphabetical order, so that the first error is always the
// same.
func (d Declaration) Check(p Params) error {
	known := 0
	for _, k := range d.Knobs {
		v, ok := p[k.Name]
		if !ok {
			continue
		}
		known++
		if err := k.check(v); err != nil {
			return errors.New(d.Name + ": " + err.Error())
		}
	}
	if known == len(p) {
		return nil
	}
	names := make([]string, 0, len(d.Knobs))
	for _, k := range d.Knobs {
		names = append(names, k.Name)
	}
	for _, name := range sortedNames(p) {
		if _, ok := d.Knob(name); !ok {
			return errors.New(d.Name + ": no knob " + strconv.Quote(name) + Suggestion(name, names))
		}
	}
	return nil
}

// Resolve is p with the defaults of the knobs that it leaves out.
func (d Declaration) Resolve(p Params) Params {
	all := make(Params, len(d.Knobs))
	for _, k := range d.Knobs {
		if v, ok := p[k.Name]; ok {
			all[k.Name] = v
		} else {
			all[k.Name] = k.Default
		}
	}
	return all
}

// Signals is what the policy needs with the knobs p; those that p leaves out have their defaults.
func (d Declaration) Signals(p Params) Signals {
	if d.NeedsWith == nil {
		return d.Needs
	}
	return d.NeedsWith(d.Resolve(p))
}

func (k Knob) check(v Value) error {
	switch k.Kind {
	case EnumKnob:
		for _, e := range k.Enum {
			if e == v.Text {
				return nil
			}
		}
		return errors.New(k.Name + " is " + strconv.Quote(v.Text) + Suggestion(v.Text, k.Enum))
	case IntKnob, FloatKnob:
		if !(v.Number >= k.Min && v.Number <= k.Max) { // NaN too
			return errors.New(k.Name + " is " + number(v.Number) + ", must be from " + number(k.Min) + " to " + number(k.Max) + k.unit())
		}
		if k.Kind == IntKnob && v.Number != float64(int64(v.Number)) {
			return errors.New(k.Name + " is " + number(v.Number) + ", must be a whole number")
		}
	}
	return nil
}

func (k Knob) unit() string {
	if k.Unit == "" {
		return ""
	}
	return " " + k.Unit
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// Suggestion is the end of an error about an unknown name: the nearest known one, or else all of them.
func Suggestion(name string, known []string) string {
	if near := nearest.Name(name, known); near != "" {
		return "; did you mean " + strconv.Quote(near) + "?"
	}
	s := "; there are"
	if len(known) == 0 {
		return "; it has none"
	}
	for i, k := range known {
		if i > 0 {
			s += ","
		}
		s += " " + k
	}
	return s
}

// sortedNames lists the names of p in alphabetical order.
func sortedNames(p Params) []string {
	names := slices.Collect(maps.Keys(p))
	slices.Sort(names)
	return names
}
