package scenarios

import (
	"encoding/json"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sluice-sim/sluice/policies"
)

// Schema is the JSON Schema (draft 2020-12) of the scenario file, for editors.
func Schema() ([]byte, error) {
	root := object("A sluice scenario: what the sessions do, how they arrive, on which cluster, under which policies.")
	root.Schema = "https://json-schema.org/draft/2020-12/schema"
	root.Title = "sluice scenario"
	for i := range declaration {
		d := &declaration[i]
		if d.choice != nil {
			put(root, d.path, choiceSchema(d))
			continue
		}
		if d.path != "" {
			node(root, d.path).Description = d.doc
		}
		for j := range d.keys {
			put(root, d.keys[j].path, keySchema(&d.keys[j]))
		}
		if d.path != "" && d.short != "" {
			orShort(node(root, d.path), node(root, join(d.path, d.short)))
		}
	}
	root.Required = []string{"workload", "cluster"}
	workload := root.Properties["workload"]
	workload.OneOf = []*jsonschema.Schema{{Required: []string{"trace"}}, {Required: []string{"generate"}}}
	root.Properties["cluster"].Required = []string{"replicas", "model", "gpu"}
	out, err := json.MarshalIndent(root, "", "  ")
	return append(out, '\n'), err
}

func object(doc string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "object", Description: doc, Properties: map[string]*jsonschema.Schema{},
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}}}
}

// node is the schema of a section below root, made when it is not there.
func node(root *jsonschema.Schema, path string) *jsonschema.Schema {
	at := root
	for _, name := range strings.Split(path, ".") {
		next := at.Properties[name]
		if next == nil {
			next = object("")
			at.Properties[name] = next
			at.PropertyOrder = append(at.PropertyOrder, name)
		}
		at = next
	}
	return at
}

// put sets the schema of a path.
func put(root *jsonschema.Schema, path string, s *jsonschema.Schema) {
	parent, name := root, path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		parent, name = node(root, path[:i]), path[i+1:]
	}
	parent.Properties[name] = s
	parent.PropertyOrder = append(parent.PropertyOrder, name)
}

// orShort lets a section be given as the value of one of its keys.
func orShort(section, short *jsonschema.Schema) {
	full := *section
	*section = jsonschema.Schema{Description: full.Description, AnyOf: []*jsonschema.Schema{{Ref: ""}, &full}}
	alone := *short
	section.AnyOf[0] = &alone
}

func keySchema(k *key) *jsonschema.Schema {
	s := &jsonschema.Schema{Description: k.doc}
	switch k.kind {
	case intKey:
		s.Type = "integer"
	case floatKey:
		s.Type = "number"
	case boolKey:
		s.Type = "boolean"
	case faultsKey:
		s.Type, s.Items = "array", faultSchema()
	case sharesKey:
		s.Type, s.Pattern = "string", sharesPattern
	default:
		s.Type = "string"
	}
	for _, e := range k.enum {
		s.Enum = append(s.Enum, e)
	}
	if k.optional {
		s.Types, s.Type = []string{s.Type, "null"}, ""
	}
	if k.kind == intKey || k.kind == floatKey {
		if low := k.min; low > -huge {
			s.Minimum = &low
		}
		if high := k.max; high < huge {
			s.Maximum = &high
		}
	}
	if !k.required {
		text := k.def
		if k.kind == textKey || k.kind == enumKey || k.kind == sharesKey {
			quoted, _ := json.Marshal(text) // a string always has a JSON form
			text = string(quoted)
		}
		s.Default = json.RawMessage(text)
	}
	return s
}

// choiceSchema is a name alone, or a mapping with the name and the keys that belong to it.
func choiceSchema(d *section) *jsonschema.Schema {
	name := &jsonschema.Schema{Type: "string", Description: d.doc}
	out := &jsonschema.Schema{Description: d.doc, AnyOf: []*jsonschema.Schema{name}}
	for _, o := range d.choice.options() {
		name.Enum = append(name.Enum, o.name)
		one := object(o.doc)
		var constant any = o.name
		put(one, d.choice.name, &jsonschema.Schema{Type: "string", Const: &constant, Description: o.doc})
		if o.name != d.choice.def {
			one.Required = []string{d.choice.name}
		}
		for _, knob := range o.knobs {
			k := knobKey(d.path, func(*Scenario) *Choice { return &Choice{Params: policies.Params{}} }, knob)
			put(one, knob.Name, keySchema(&k))
		}
		out.AnyOf = append(out.AnyOf, one)
	}
	return out
}

// faultSchema is an entry of the faults: one of the kinds with its keys.
func faultSchema() *jsonschema.Schema {
	out := &jsonschema.Schema{}
	for i := range faultKinds {
		kind := &faultKinds[i]
		one := object(kind.doc)
		var constant any = kind.name
		put(one, "kind", &jsonschema.Schema{Type: "string", Const: &constant, Description: kind.doc})
		one.Required = []string{"kind"}
		for _, f := range kind.fields() {
			k := f.key
			if kind.name == "replica_join" && k.path == "replica" {
				k.required, k.optional = true, false
			}
			put(one, k.path, keySchema(&k))
			if k.required {
				one.Required = append(one.Required, k.path)
			}
		}
		out.AnyOf = append(out.AnyOf, one)
	}
	return out
}
