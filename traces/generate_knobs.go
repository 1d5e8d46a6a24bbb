package traces

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-sim/sluice/nearest"
)

// KnobKind is the type of a knob's value.
type KnobKind uint8

const (
	IntKnob   KnobKind = iota + 1 // a whole number
	FloatKnob                     // a number
	EnumKnob                      // one of Knob.Enum
)

// Knob declares one parameter of a preset, in the manner of a policy's knob.
type Knob struct {
	Name    string // snake_case
	Kind    KnobKind
	Default Value
	Min     float64 // inclusive; for IntKnob and FloatKnob
	Max     float64 // inclusive
	Enum    []string
	Unit    string // "", "s", "tokens", "fraction", ...
	Doc     string // one line
}

// Value is a knob's value: Number for IntKnob and FloatKnob, Text for EnumKnob.
type Value struct {
	Number float64
	Text   string
}

// Params holds the values of a preset's knobs by name; knobs that are absent take their defaults.
type Params map[string]Value

// Num is the value of an IntKnob or a FloatKnob.
func Num(x float64) Value { return Value{Number: x} }

// Check returns an error that names the knob, the value and what is allowed, unless v is a value of the knob.
func (k Knob) Check(v Value) error {
	if k.Kind == EnumKnob {
		if !slices.Contains(k.Enum, v.Text) {
			return unknownName("value of knob "+k.Name, v.Text, k.Enum)
		}
		return nil
	}
	if v.Text != "" {
		return fmt.Errorf("knob %s = %q: expected a number from %s", k.Name, v.Text, k.Range())
	}
	if !(v.Number >= k.Min && v.Number <= k.Max) {
		return fmt.Errorf("knob %s = %v: expected a number from %s", k.Name, v.Number, k.Range())
	}
	if k.Kind == IntKnob && v.Number != float64(int64(v.Number)) {
		return fmt.Errorf("knob %s = %v: expected a whole number from %s", k.Name, v.Number, k.Range())
	}
	return nil
}

// Range is what the knob allows, for messages and documentation: "0 to 1", or the words of an enum.
func (k Knob) Range() string {
	if k.Kind == EnumKnob {
		return strings.Join(k.Enum, ", ")
	}
	return plain(k.Min) + " to " + plain(k.Max)
}

// String is the value as it is written in a scenario.
func (v Value) String() string {
	if v.Text != "" {
		return v.Text
	}
	return plain(v.Number)
}

func plain(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// resolve checks params against the preset's knobs and fills in the defaults.
func resolve(p Preset, params Params) (Params, error) {
	names := make([]string, len(p.Knobs))
	values := Params{}
	for i, k := range p.Knobs {
		names[i] = k.Name
		values[k.Name] = k.Default
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		i := slices.Index(names, name)
		if i < 0 {
			return nil, fmt.Errorf("preset %s: %w", p.Name, unknownName("knob", name, names))
		}
		if err := p.Knobs[i].Check(params[name]); err != nil {
			return nil, fmt.Errorf("preset %s: %w", p.Name, err)
		}
		values[name] = params[name]
	}
	return values, nil
}

// unknownName is the error for a name that is not one of names: it suggests the nearest when that is close, and lists
// all of them.
func unknownName(what, name string, names []string) error {
	best, bestDistance := "", len(name)/2+1
	for _, n := range names {
		d := nearest.Distance(name, n)
		if name != "" && strings.HasPrefix(n, name) {
			d = 1
		}
		if d < bestDistance {
			best, bestDistance = n, d
		}
	}
	hint := ""
	if best != "" {
		hint = fmt.Sprintf(" (did you mean %s?)", best)
	}
	return fmt.Errorf("unknown %s %q%s: expected one of %s", what, name, hint, strings.Join(names, ", "))
}
