package decisionlog

import (
	"errors"
	"strconv"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
)

// With is the header with other policies: each setting is gate=NAME, router=NAME, gate.KNOB=VALUE or router.KNOB=VALUE; gate.name,
// router.name and a leading "policy." are understood. Another name drops the knobs that the log has for the old one.
func (h *Header) With(settings []string) (Header, error) {
	out := *h
	out.Scores = ScoreForm{}
	gate, router := policies.Params{}, policies.Params{}
	names := [2]string{}
	type knob struct{ kind, name, value string }
	var knobs []knob
	for _, s := range settings {
		key, value, ok := cut(s, '=')
		kind, name, dotted := cut(key, '.')
		if kind == "policy" {
			kind, name, dotted = cut(name, '.')
		}
		if !ok || kind != "gate" && kind != "router" || dotted && name == "" || value == "" {
			return out, errors.New(strconv.Quote(s) + ": expected gate=NAME, router=NAME, gate.KNOB=VALUE or router.KNOB=VALUE")
		}
		switch {
		case dotted && name != "name":
			knobs = append(knobs, knob{kind, name, value})
		case kind == "gate":
			names[0] = value
		default:
			names[1] = value
		}
	}
	g, err := chosen(catalog.FindGate, &h.Gate, names[0], gate)
	if err != nil {
		return out, err
	}
	r, err := chosen(catalog.FindRouter, &h.Router, names[1], router)
	if err != nil {
		return out, err
	}
	for _, k := range knobs {
		d, p := g, gate
		if k.kind == "router" {
			d, p = r, router
		}
		if p[k.name], err = parseKnob(d, k.name, k.value); err != nil {
			return out, err
		}
	}
	if err := errors.Join(g.Check(gate), r.Check(router)); err != nil {
		return out, err
	}
	out.Gate, out.Router = Resolved(g, gate), Resolved(r, router)
	return out, nil
}

// cut splits s at the first sep; ok is false if there is none. (Package strings brings in what the core must not reach.)
func cut(s string, sep byte) (before, after string, ok bool) {
	for i := range len(s) {
		if s[i] == sep {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// chosen is the declaration called name, or that of the log with its knobs written into p if name is empty or the same.
func chosen(find func(string) (policies.Declaration, error), logged *Policy, name string, p policies.Params) (policies.Declaration, error) {
	if name == "" || name == logged.Name {
		name = logged.Name
		for _, s := range logged.Knobs {
			p[s.Name] = s.Value
		}
	}
	return find(name)
}

func parseKnob(d policies.Declaration, name, text string) (v policies.Value, err error) {
	k, ok := d.Knob(name)
	if !ok {
		return v, d.Check(policies.Params{name: v})
	}
	switch k.Kind {
	case policies.BoolKnob:
		if text != "true" && text != "false" {
			return v, errors.New(d.Name + ": " + name + " is " + strconv.Quote(text) + ", must be true or false")
		}
		v.Bool = text == "true"
	case policies.EnumKnob:
		v.Text = text
	default:
		if v.Number, err = strconv.ParseFloat(text, 64); err != nil {
			return v, errors.New(d.Name + ": " + name + " is " + strconv.Quote(text) + ", must be a number")
		}
	}
	return v, nil
}
