package scenarios

import (
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/traces"
)

// option is one name that a choice section accepts.
type option struct {
	name  string
	doc   string
	knobs []policies.Knob
}

func gates() []option   { return declared(catalog.Gates()) }
func routers() []option { return declared(catalog.Routers()) }

func retentions() []option { return declared(catalog.Retentions()) }

func declared(ds []policies.Declaration) []option {
	out := make([]option, len(ds))
	for i, d := range ds {
		out[i] = option{d.Name, d.Doc, d.Knobs}
	}
	return out
}

// presets is the generator's presets, with their knobs in the form of a policy's.
func presets() []option {
	var out []option
	for _, p := range traces.Presets() {
		o := option{name: p.Name, doc: p.Doc}
		for _, k := range p.Knobs {
			o.knobs = append(o.knobs, policies.Knob{Name: k.Name, Kind: presetKind(k.Kind), Min: k.Min, Max: k.Max, Enum: k.Enum,
				Unit: k.Unit, Doc: k.Doc, Default: policies.Value{Number: k.Default.Number, Text: k.Default.Text}})
		}
		out = append(out, o)
	}
	return out
}

func presetKind(k traces.KnobKind) policies.KnobKind {
	switch k {
	case traces.IntKnob:
		return policies.IntKnob
	case traces.FloatKnob:
		return policies.FloatKnob
	}
	return policies.EnumKnob
}

// Generator is the values of the preset's knobs as the generator takes them.
func (c Choice) Generator() traces.Params {
	out := traces.Params{}
	for name, v := range c.Params {
		out[name] = traces.Value{Number: v.Number, Text: v.Text}
	}
	return out
}
