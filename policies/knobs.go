package policies

// KnobKind is the type of a knob's value.
type KnobKind uint8

const (
	IntKnob KnobKind = iota + 1
	FloatKnob
	BoolKnob
	EnumKnob
)

// Knob declares one parameter of a policy. The scenario schema, the command line, the documentation and sweeps all
// read this declaration.
type Knob struct {
	Name    string // snake_case, with its unit as a suffix
	Kind    KnobKind
	Default Value
	Min     float64 // inclusive; for IntKnob and FloatKnob
	Max     float64 // inclusive
	Enum    []string
	Unit    string // "", "s", "tokens", "fraction", ...
	Doc     string // one line
}

// Value is a knob's value: Number for IntKnob and FloatKnob, Bool for BoolKnob, Text for EnumKnob.
type Value struct {
	Number float64
	Bool   bool
	Text   string
}

// Params holds the values of a policy's knobs by name; knobs that are absent take their defaults.
type Params map[string]Value

// Env is what a policy is built with besides its knobs.
type Env struct {
	Seed       uint64 // for policies that draw
	Capability Capability
}

// Declaration registers one policy.
type Declaration struct {
	Name   string
	Doc    string // what it does, in one or two sentences
	Source string // paper, repository and file, or specification section
	Needs  Signals
	// NeedsWith narrows Needs to what the policy reads with these knobs, of which none is left out; nil if that is all.
	NeedsWith func(Params) Signals
	// Missing says what the policy does when a signal it uses is missing.
	Missing string
	Omits   string // what of its source is not here, and why; empty for nothing
	Knobs   []Knob

	NewGate      func(Env, Params) Gate // one of the three is set
	NewRouter    func(Env, Params) Router
	NewRetention func(Env, Params) Retention // may return nil: nothing is pinned
}
