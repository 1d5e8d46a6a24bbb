package scenarios

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-sim/sluice/nearest"
	"github.com/sluice-sim/sluice/policies"
)

// kind is the type of a key's value.
type kind uint8

const (
	intKey kind = iota + 1
	floatKey
	boolKey
	enumKey
	textKey
	faultsKey // the list of faults, as text in its canonical form
	sharesKey // shares that sum to 1, as text
)

func (k kind) String() string {
	switch k {
	case intKey:
		return "integer"
	case floatKey:
		return "number"
	case boolKey:
		return "true or false"
	case faultsKey:
		return "list of faults"
	}
	return "text"
}

// key declares one leaf of the scenario file.
type key struct {
	path     string
	kind     kind
	def      string // text of the default; ignored when required
	required bool
	optional bool // null is allowed
	min, max float64
	enum     []string
	unit     string
	doc      string

	// unless says why the key has no effect in a scenario whose earlier keys are decoded; "" when it has one.
	unless func(*Scenario) string
	store  func(*Scenario, value)
	load   func(*Scenario) value
}

// value is a decoded value: integer and number for intKey, number for floatKey, shares for sharesKey, text for textKey
// and enumKey.
type value struct {
	null    bool
	integer int64
	number  float64
	boolean bool
	text    string
	shares  []float64
}

// decode reads text as the key's type and checks its range. The message of a failure says what was expected.
func (k *key) decode(text string) (value, string) {
	if k.optional && (text == "null" || text == "~" || text == "") {
		return value{null: true}, ""
	}
	switch k.kind {
	case intKey:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return value{}, fmt.Sprintf("expected %s, found %q", k.want(), clip(text))
		}
		return value{integer: n, number: float64(n)}, k.outside(float64(n), text)
	case floatKey:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) || strings.ContainsAny(text, "_xXpP") {
			return value{}, fmt.Sprintf("expected %s, found %q", k.want(), clip(text))
		}
		if x == 0 {
			x = 0 // no negative zero
		}
		return value{number: x}, k.outside(x, text)
	case boolKey:
		if text != "true" && text != "false" {
			return value{}, fmt.Sprintf("expected true or false, found %q", clip(text))
		}
		return value{boolean: text == "true"}, ""
	case enumKey:
		for _, e := range k.enum {
			if text == e {
				return value{text: e}, ""
			}
		}
		if near := nearest.Name(text, k.enum); near != "" {
			return value{}, fmt.Sprintf("%q is unknown; did you mean %s?", clip(text), near)
		}
		return value{}, fmt.Sprintf("%q is not one of %s", clip(text), strings.Join(k.enum, ", "))
	case textKey:
		return decodeText(text)
	case sharesKey:
		return decodeShares(text)
	}
	_, canonical, message := decodeFaultsText(text)
	return value{text: canonical}, message
}

func decodeText(text string) (value, string) {
	const longest = 4096
	switch {
	case text == "":
		return value{}, "expected text, found none"
	case len(text) > longest:
		return value{}, fmt.Sprintf("expected at most %d bytes of text, found %d", longest, len(text))
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return value{}, fmt.Sprintf("expected printable UTF-8 text, found %q", clip(text))
	}
	return value{text: text}, ""
}

func (k *key) outside(x float64, text string) string {
	if x < k.min || x > k.max {
		return fmt.Sprintf("%s is out of range: expected %s", text, k.want())
	}
	return ""
}

// want describes the values that a key takes, such as "a number from 0 to 1 (fraction)".
func (k *key) want() string {
	if k.kind != intKey && k.kind != floatKey {
		return k.kind.String()
	}
	if k.min == k.max {
		return formatNumber(k.min)
	}
	text := "a number"
	if k.kind == intKey {
		text = "an integer"
	}
	if r := k.rangeText(); r != "" {
		text += " " + r
	}
	if k.unit != "" {
		text += " (" + k.unit + ")"
	}
	if k.optional {
		text += ", or null"
	}
	return text
}

// rangeText is the range in words, "" for one without bounds.
func (k *key) rangeText() string {
	if k.kind != intKey && k.kind != floatKey {
		return ""
	}
	low, high := k.min > -huge, k.max < huge
	switch {
	case low && high:
		return fmt.Sprintf("from %s to %s", formatNumber(k.min), formatNumber(k.max))
	case low:
		return "at least " + formatNumber(k.min)
	case high:
		return "at most " + formatNumber(k.max)
	}
	return ""
}

// huge stands for no upper bound.
const huge = math.MaxFloat64

// format writes a value as decode reads it, in one way only.
func (k *key) format(v value) string {
	if v.null {
		return "null"
	}
	switch k.kind {
	case intKey:
		return strconv.FormatInt(v.integer, 10)
	case floatKey:
		return formatNumber(v.number)
	case boolKey:
		return strconv.FormatBool(v.boolean)
	case sharesKey:
		return formatShares(v.shares)
	}
	return v.text
}

func formatNumber(x float64) string {
	if a := math.Abs(x); a != 0 && (a < 1e-6 || a >= 1e15) {
		return strconv.FormatFloat(x, 'e', -1, 64)
	}
	return strconv.FormatFloat(x, 'f', -1, 64)
}

func clip(text string) string {
	const widest = 60
	if r := []rune(text); len(r) > widest {
		return string(r[:widest]) + "…"
	}
	return text
}

func didYouMean(name string, candidates []string) string {
	if n := nearest.Name(name, candidates); n != "" {
		return "; did you mean " + n + "?"
	}
	return ""
}

// knobKey is the key of a declared knob of a choice.
func knobKey(section string, at func(*Scenario) *Choice, knob policies.Knob) key {
	k := key{path: section + "." + knob.Name, unit: knob.Unit, doc: knob.Doc, min: knob.Min, max: knob.Max, enum: knob.Enum}
	var toKnob func(value) policies.Value
	var fromKnob func(policies.Value) value
	switch knob.Kind {
	case policies.IntKnob:
		k.kind = intKey
		toKnob = func(v value) policies.Value { return policies.Value{Number: float64(v.integer)} }
		fromKnob = func(v policies.Value) value { return value{integer: int64(v.Number), number: v.Number} }
	case policies.FloatKnob:
		k.kind = floatKey
		toKnob = func(v value) policies.Value { return policies.Value{Number: v.number} }
		fromKnob = func(v policies.Value) value { return value{number: v.Number} }
	case policies.BoolKnob:
		k.kind = boolKey
		toKnob = func(v value) policies.Value { return policies.Value{Bool: v.boolean} }
		fromKnob = func(v policies.Value) value { return value{boolean: v.Bool} }
	default:
		k.kind = enumKey
		toKnob = func(v value) policies.Value { return policies.Value{Text: v.text} }
		fromKnob = func(v policies.Value) value { return value{text: v.Text} }
	}
	k.def = k.format(fromKnob(knob.Default))
	name := knob.Name
	k.store = func(s *Scenario, v value) { at(s).Params[name] = toKnob(v) }
	k.load = func(s *Scenario) value { return fromKnob(at(s).Params[name]) }
	return k
}
