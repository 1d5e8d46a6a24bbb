package scenarios

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-sim/sluice/policies"
)

// resolve decodes s.given into a new Scenario. Problems found before are reported together with its own.
func (s *Scenario) resolve(before Problems) (*Scenario, error) {
	r := resolver{problems: before, last: map[string]int{}, used: map[string]bool{}}
	r.out = &Scenario{file: s.file, dir: s.dir, lines: s.lines, given: s.given}
	for i := range s.given {
		r.last[s.given[i].path] = i
	}
	r.source()
	for i := range declaration {
		r.section(&declaration[i])
	}
	r.unused()
	if len(r.problems) == 0 {
		r.check()
	}
	if len(r.problems) > 0 {
		return nil, r.problems.sorted()
	}
	return r.out, nil
}

type resolver struct {
	out      *Scenario
	last     map[string]int // index of the setting that counts, by path
	used     map[string]bool
	problems Problems
}

// source decides between workload.trace and workload.generate: the one given last, where the file may give only one.
func (r *resolver) source() {
	for i := range r.out.given {
		g := &r.out.given[i]
		for _, source := range []string{"trace", "generate"} {
			if !strings.HasPrefix(g.path, "workload."+source+".") {
				continue
			}
			if old := r.out.Workload.Source; old != "" && old != source && g.override == "" {
				r.report(g, "a scenario has either workload.trace or workload.generate, not both")
				r.used[g.path] = true
				continue
			}
			r.out.Workload.Source = source
		}
	}
	if r.out.Workload.Source == "" {
		r.problems = append(r.problems, &Problem{File: r.out.file, Key: "workload",
			Message: "missing: give workload.trace (a recorded trace) or workload.generate (a generator preset)"})
	}
}

func (r *resolver) section(d *section) {
	if d.unless != nil {
		if why := d.unless(r.out); why != "" {
			r.drop(d.leaves(), why)
			return
		}
	}
	for i := range d.keys {
		r.key(&d.keys[i])
	}
	if d.choice != nil {
		r.choice(d)
	}
}

// drop reports settings without effect, except those that an override made so.
func (r *resolver) drop(paths []string, why string) {
	for _, p := range paths {
		if i, ok := r.last[p]; ok && !r.used[p] {
			r.used[p] = true
			if g := &r.out.given[i]; g.strict {
				r.report(g, why)
			}
		}
	}
}

func (r *resolver) key(k *key) {
	if k.unless != nil {
		if why := k.unless(r.out); why != "" {
			r.drop([]string{k.path}, why)
			return
		}
	}
	i, ok := r.last[k.path]
	switch {
	case ok:
		r.used[k.path] = true
		r.given(k, &r.out.given[i])
	case k.required:
		r.problems = append(r.problems, &Problem{File: r.out.file, Key: k.path, Message: "missing: " + k.doc})
	default:
		v, _ := k.decode(k.def)
		k.store(r.out, v)
	}
}

func (r *resolver) given(k *key, g *setting) {
	if message := wrongTag(k, g); message != "" {
		r.report(g, message)
		return
	}
	v, message := k.decode(g.text)
	if message != "" && k.isNotBuilt() {
		message = "not built yet: the only value is " + k.def
	}
	if message != "" {
		r.report(g, message)
		return
	}
	k.store(r.out, v)
}

// wrongTag compares the YAML type of a value in the file with the key's; an override has none.
func wrongTag(k *key, g *setting) string {
	if g.tag == "" {
		return ""
	}
	want := map[kind][]string{
		intKey: {"!!int"}, floatKey: {"!!int", "!!float"}, boolKey: {"!!bool"}, faultsKey: {"!!seq"},
		enumKey: {"!!str"}, textKey: {"!!str"}, sharesKey: {"!!str"},
	}[k.kind]
	switch {
	case slices.Contains(want, g.tag):
		return ""
	case g.tag == "!!null" && k.optional:
		return ""
	case g.tag == "!!null":
		return "has no value; give one or delete the line"
	case k.kind == enumKey:
		return fmt.Sprintf("expected one of %s, found %q", strings.Join(k.enum, ", "), clip(g.text))
	case k.kind == textKey || k.kind == sharesKey:
		return fmt.Sprintf("expected text, found %s; put it in quotes", clip(g.text))
	case g.tag == "!!str":
		return fmt.Sprintf("expected %s, found the text %q", k.want(), clip(g.text))
	}
	return fmt.Sprintf("expected %s, found %s", k.want(), clip(g.text))
}

// choice decodes the name of a choice section and the knobs of what it names.
func (r *resolver) choice(d *section) {
	c, options := d.choice, d.choice.options()
	names := make([]string, len(options))
	for i := range options {
		names[i] = options[i].name
	}
	before := len(r.problems)
	r.key(&key{path: join(d.path, c.name), kind: enumKey, def: c.def, required: c.def == "", enum: names, doc: d.doc,
		store: func(s *Scenario, v value) { c.at(s).Name = v.text }})
	if len(r.problems) > before {
		for _, p := range d.leaves() { // without the name nothing can be said about the knobs
			r.used[p] = true
		}
		return
	}
	chosen := c.at(r.out)
	chosen.Params = policies.Params{}
	o := options[slices.Index(names, chosen.Name)]
	for _, p := range d.leaves() { // what was given for another name has gone with it
		if i, ok := r.last[p]; ok && r.out.given[i].chosen != "" && r.out.given[i].chosen != chosen.Name {
			delete(r.last, p)
			r.used[p] = true
		}
	}
	for _, knob := range o.knobs {
		k := knobKey(d.path, c.at, knob)
		r.key(&k)
	}
	for _, p := range d.leaves() {
		r.drop([]string{p}, fmt.Sprintf("%s has no such key%s", chosen.Name, whoHas(options, strings.TrimPrefix(p, d.path+"."))))
	}
}

func whoHas(options []option, knob string) string {
	var names []string
	for _, o := range options {
		if slices.ContainsFunc(o.knobs, func(k policies.Knob) bool { return k.Name == knob }) {
			names = append(names, o.name)
		}
	}
	return "; it belongs to " + strings.Join(names, ", ")
}

// unused reports every setting that no section took.
func (r *resolver) unused() {
	for i := range r.out.given {
		if g := &r.out.given[i]; !r.used[g.path] {
			r.used[g.path] = true
			r.report(g, unknownKey(g.path))
		}
	}
}

// check is the conditions that hold between keys.
func (r *resolver) check() {
	s := r.out
	r.checkFaults()
	if i := strings.IndexFunc(s.Name, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-')
	}); i >= 0 || strings.HasPrefix(s.Name, ".") || len(s.Name) > 64 {
		r.at("name", "expected at most 64 letters, digits, '.', '_' and '-', not starting with '.'; it names a folder")
	}
	e := &s.Cluster.Engine
	if e.NumGPUBlocksOverride > 0 && e.KVCacheMemoryBytes > 0 {
		r.at("cluster.engine.kv_cache_memory_bytes", "num_gpu_blocks_override sets the KV cache already; keep one of the two")
	}
	if e.MaxNumBatchedTokens > 0 && e.MaxNumBatchedTokens < e.MaxNumSeqs {
		r.at("cluster.engine.max_num_batched_tokens", fmt.Sprintf("%d is below max_num_seqs %d; vLLM refuses that", e.MaxNumBatchedTokens, e.MaxNumSeqs))
	}
	if !e.EnableChunkedPrefill && e.MaxNumBatchedTokens > 0 && e.MaxModelLen > e.MaxNumBatchedTokens {
		r.at("cluster.engine.max_num_batched_tokens", fmt.Sprintf("%d is below max_model_len %d, and enable_chunked_prefill is false; vLLM refuses that", e.MaxNumBatchedTokens, e.MaxModelLen))
	}
}

// at reports a problem at a key, which may have its default.
func (r *resolver) at(path, message string) {
	if i, ok := r.last[path]; ok {
		r.report(&r.out.given[i], message)
		return
	}
	r.problems = append(r.problems, &Problem{File: r.out.file, Key: path, Message: message})
}

func (r *resolver) report(g *setting, message string) {
	r.problems = append(r.problems, g.problem(r.out, message))
}
