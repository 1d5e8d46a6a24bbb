package scenarios

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Fault is one entry of the faults: what goes wrong, or changes, in the cluster while it runs. Only the fields that its
// kind has count; the others are zero.
type Fault struct {
	Kind     string
	AtS      float64
	ForS     float64 // 0: null, to the end of the run
	Replica  int64   // -1: null, every replica
	DetectS  float64
	Factor   float64
	Share    float64
	Count    int64  // 0: null, no limit
	Releases string // "all" or "cancelled"
	AfterS   float64
}

// faultKind declares a kind of fault and its keys beside kind and at_s.
type faultKind struct {
	name, doc string
	keys      []string
}

var faultKinds = []faultKind{
	{"replica_down", "The replica is cut off: its requests fail, it refuses new ones, and when it is back it has its cache.", []string{"for_s", "replica", "detect_s"}},
	{"replica_restart", "The process of the replica ends: its requests fail, and it comes back with an empty cache and counters of zero. for_s null: at once.", []string{"for_s", "replica", "detect_s"}},
	{"replica_join", "The replica does not exist before at_s.", []string{"replica"}},
	{"replica_drain", "The replica finishes what it has and takes nothing new.", []string{"for_s", "replica"}},
	{"slow_replica", "The steps of the replica take factor times as long.", []string{"for_s", "replica", "factor"}},
	{"error_burst", "The replica fails a share of the requests when they arrive.", []string{"for_s", "replica", "share"}},
	{"scrape_stall", "The metrics of the replica cannot be scraped.", []string{"for_s", "replica"}},
	{"stale_counters", "Scrapes of the replica repeat the values that it had at at_s, with new times.", []string{"for_s", "replica"}},
	{"lost_release", "The gate and the router are not told of the end of a share of the attempts: their leases leak.", []string{"for_s", "share", "count", "releases"}},
	{"client_disconnect", "A share of the clients goes away: of those that wait at at_s at once, of those that come until for_s is over after_s after they came. They come again within clients.retries.", []string{"for_s", "share", "after_s"}},
}

// faultField is a key of a fault.
type faultField struct {
	key
	get func(*Fault) value
	set func(*Fault, value)
}

var faultFields = []faultField{
	faultNumber(key{path: "at_s", required: true, max: 1e7, unit: "s", doc: "When it begins."}, func(f *Fault) *float64 { return &f.AtS }),
	faultNumber(key{path: "for_s", def: "null", optional: true, min: 1e-6, max: 1e7, unit: "s", doc: "How long it lasts. null: to the end of the run."},
		func(f *Fault) *float64 { return &f.ForS }),
	{key{path: "replica", kind: intKey, def: "null", optional: true, max: 65535, doc: "Number of the replica, from 0. null: every one."},
		func(f *Fault) value { return value{integer: f.Replica, null: f.Replica < 0} },
		func(f *Fault, v value) {
			if f.Replica = v.integer; v.null {
				f.Replica = -1
			}
		}},
	faultNumber(key{path: "detect_s", def: "0", max: 1e7, unit: "s", doc: "The policies hear that the replica is down so long after it is; until then they send turns there, which fail."},
		func(f *Fault) *float64 { return &f.DetectS }),
	faultNumber(key{path: "factor", required: true, min: 1e-3, max: 1e6, doc: "Factor of step times."}, func(f *Fault) *float64 { return &f.Factor }),
	faultNumber(key{path: "share", def: "1", max: 1, unit: "fraction", doc: "Probability, drawn for each attempt."}, func(f *Fault) *float64 { return &f.Share }),
	{key{path: "count", kind: intKey, def: "null", optional: true, min: 1, max: 1e15, unit: "leases", doc: "At most so many. null: no limit."},
		func(f *Fault) value { return value{integer: f.Count, null: f.Count == 0} },
		func(f *Fault, v value) { f.Count = v.integer }},
	{key{path: "releases", kind: enumKey, def: "all", enum: []string{"all", "cancelled"}, doc: "Which ends are lost: all, or only those of attempts whose client had gone."},
		func(f *Fault) value { return value{text: f.Releases} },
		func(f *Fault, v value) { f.Releases = v.text }},
	faultNumber(key{path: "after_s", def: "1", max: 1e7, unit: "s", doc: "From the arrival of a client to when it goes."}, func(f *Fault) *float64 { return &f.AfterS }),
}

func faultNumber(k key, at func(*Fault) *float64) faultField {
	k.kind = floatKey
	return faultField{k,
		func(f *Fault) value { return value{number: *at(f), null: k.optional && *at(f) == 0} },
		func(f *Fault, v value) { *at(f) = v.number }}
}

// fields is the keys of a kind, in the order of the canonical form.
func (k *faultKind) fields() []*faultField {
	var out []*faultField
	for i := range faultFields {
		if f := &faultFields[i]; f.path == "at_s" || slices.Contains(k.keys, f.path) {
			out = append(out, f)
		}
	}
	return out
}

func faultKindNames() []string {
	var names []string
	for i := range faultKinds {
		names = append(names, faultKinds[i].name)
	}
	return names
}

func findFaultKind(name string) *faultKind {
	for i := range faultKinds {
		if faultKinds[i].name == name {
			return &faultKinds[i]
		}
	}
	return nil
}

// faultReport is told of a problem at a node; path is that of the entry or of its key.
type faultReport func(at *yaml.Node, path, message string)

// decodeFaults reads the list of faults.
func decodeFaults(list *yaml.Node, report faultReport) []Fault {
	var out []Fault
	for i, n := range list.Content {
		path := fmt.Sprintf("faults[%d]", i)
		if n.Kind != yaml.MappingNode {
			report(n, path, "expected a mapping with kind and at_s, such as {kind: replica_restart, at_s: 60, replica: 0}")
			continue
		}
		out = append(out, decodeFault(n, path, report))
	}
	return out
}

func decodeFault(n *yaml.Node, path string, report faultReport) Fault {
	values := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if values[k.Value] != nil {
			report(k, join(path, clip(k.Value)), "given twice")
		}
		values[k.Value] = n.Content[i+1]
	}
	kindKey := key{kind: enumKey, enum: faultKindNames()}
	text, message := decodeNode(&kindKey, values["kind"])
	kind := findFaultKind(text.text)
	switch {
	case values["kind"] == nil:
		report(n, path, "kind is missing: one of "+strings.Join(faultKindNames(), ", "))
		return Fault{}
	case message != "":
		report(values["kind"], join(path, "kind"), message)
		return Fault{}
	}
	f := Fault{Kind: kind.name}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if name := n.Content[i].Value; name != "kind" && name != "at_s" && !slices.Contains(kind.keys, name) {
			report(n.Content[i], join(path, clip(name)), fmt.Sprintf("%s has no such key; its keys are kind, at_s, %s", kind.name, strings.Join(kind.keys, ", ")))
		}
	}
	for _, field := range kind.fields() {
		v := values[field.path]
		required := field.required || kind.name == "replica_join" && field.path == "replica"
		switch {
		case v == nil && required:
			report(n, join(path, field.path), "missing: "+field.doc)
		case v == nil:
			d, _ := field.decode(field.def)
			field.set(&f, d)
		default:
			x, message := decodeNode(&field.key, v)
			if message != "" {
				report(v, join(path, field.path), message)
				continue
			}
			field.set(&f, x)
		}
	}
	return f
}

// decodeNode reads one scalar strictly.
func decodeNode(k *key, n *yaml.Node) (value, string) {
	switch {
	case n == nil:
		return value{}, ""
	case n.Kind != yaml.ScalarNode:
		return value{}, "expected a value: " + k.want()
	}
	if message := wrongTag(k, &setting{tag: n.Tag, text: n.Value}); message != "" {
		return value{}, message
	}
	return k.decode(n.Value)
}

// decodeFaultsText reads the list from text, as --set gives it, and returns its canonical form.
func decodeFaultsText(text string) (list []Fault, canonical, message string) {
	const expected = "expected a list of faults such as [{kind: replica_restart, at_s: 60, replica: 0}]"
	var doc yaml.Node
	if err := yaml.Load([]byte(text), &doc); err != nil || doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.SequenceNode {
		return nil, "", fmt.Sprintf("%s, found %q", expected, clip(text))
	}
	list = decodeFaults(doc.Content[0], func(_ *yaml.Node, path, m string) {
		if message == "" {
			message = path + ": " + m
		}
	})
	return list, formatFaults(list), message
}

// formatFaults is the canonical form of the list, on one line.
func formatFaults(list []Fault) string {
	var b strings.Builder
	for i := range list {
		f := &list[i]
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("{kind: " + f.Kind)
		if k := findFaultKind(f.Kind); k != nil {
			for _, field := range k.fields() {
				b.WriteString(", " + field.path + ": " + field.format(field.get(f)))
			}
		}
		b.WriteString("}")
	}
	return "[" + b.String() + "]"
}

func faultList() key {
	return key{path: "faults", kind: faultsKey, def: "[]", doc: "What goes wrong, in any order. Each entry has `kind`, `at_s` and the keys of its kind. An override gives the whole list.",
		store: func(s *Scenario, v value) { s.Faults, _, _ = decodeFaultsText(v.text) },
		load:  func(s *Scenario) value { return value{text: formatFaults(s.Faults)} }}
}

// checkFaults holds the faults to the cluster.
func (r *resolver) checkFaults() {
	for i := range r.out.Faults {
		if f := &r.out.Faults[i]; f.Replica >= r.out.Cluster.Replicas {
			r.at("faults", fmt.Sprintf("entry %d is about replica %d; cluster.replicas gives 0 to %d", i, f.Replica, r.out.Cluster.Replicas-1))
		}
	}
}
