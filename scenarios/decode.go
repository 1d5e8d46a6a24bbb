package scenarios

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxFileBytes bounds a scenario file.
const maxFileBytes = 1 << 20

// setting is one leaf that the file or an override gives.
type setting struct {
	path     string
	text     string
	tag      string // YAML tag; "" in an override, whose text is read as the key's type
	override string // "--set a=b"; "" for the file
	line     int    // of the key
	column   int
	strict   bool   // false once a later override may have made it meaningless, such as the rate of another process
	chosen   string // in a choice section: the name it was given for; "" until a later override comes
}

// problem is an error at the setting's place.
func (g *setting) problem(s *Scenario, message string) *Problem {
	p := &Problem{File: s.file, Source: g.override, Line: g.line, Column: g.column, Key: g.path, Message: message}
	if g.override == "" {
		p.Excerpt = excerpt(s.lines, g.line, g.column)
	}
	return p
}

// Load reads and checks a scenario file. The error is Problems when the file could be read.
func Load(path string) (*Scenario, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: found no such file, expected a scenario; `sluice scenarios` lists those that need no file", path)
	}
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s is a folder, not a scenario file", path)
	}
	if info.Size() > maxFileBytes {
		return nil, fmt.Errorf("%s has %d bytes; a scenario file has at most %d", path, info.Size(), maxFileBytes)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(path, filepath.Dir(path), data)
}

// Parse checks a scenario that is not read from a file; name stands in messages. Relative paths in it are relative to the
// current folder.
func Parse(name string, data []byte) (*Scenario, error) { return parse(name, "", data) }

func parse(name, dir string, data []byte) (*Scenario, error) {
	s := &Scenario{file: name, dir: dir}
	if len(data) > maxFileBytes {
		return nil, Problems{{File: name, Message: fmt.Sprintf("has %d bytes; a scenario has at most %d", len(data), maxFileBytes)}}
	}
	s.lines = strings.Split(string(data), "\n")
	var doc yaml.Node
	if err := yaml.Load(data, &doc); err != nil {
		return nil, Problems{syntaxProblem(s, err)}
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, Problems{{File: name, Message: "expected a mapping of keys such as workload, arrivals, cluster and policy at the top"}}
	}
	f := flattener{scenario: s}
	f.mapping("", doc.Content[0])
	s.given = f.out
	return s.resolve(f.problems)
}

// syntaxProblem is what the YAML reader found, with its place.
func syntaxProblem(s *Scenario, err error) *Problem {
	p := &Problem{File: s.file, Message: "not YAML: " + err.Error()}
	var all *yaml.LoadErrors
	var one *yaml.LoadError
	switch {
	case errors.As(err, &all) && len(all.Errors) > 0:
		one = all.Errors[0]
	case errors.As(err, &one):
	default:
		return p
	}
	p.Message = "not YAML: " + strings.TrimPrefix(one.Message, "yaml: ")
	if strings.Contains(one.Message, "no documents") {
		p.Message = "is empty: a scenario needs at least workload, arrivals and cluster (`sluice scenarios demo` prints one)"
	}
	if one.Mark.Line > 0 {
		p.Line, p.Column = one.Mark.Line, max(one.Mark.Column, 1)
		p.Excerpt = excerpt(s.lines, p.Line, p.Column)
	}
	return p
}

// flattener turns the YAML tree into settings and reports what no declaration can explain.
type flattener struct {
	scenario *Scenario
	out      []setting
	problems Problems
}

// mapping walks the keys below a section, which is "" for the top.
func (f *flattener) mapping(section string, n *yaml.Node) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		g := setting{line: k.Line, column: k.Column, path: join(section, clip(k.Value)), strict: true}
		if k.Kind != yaml.ScalarNode || k.Value == "" || strings.ContainsAny(k.Value, ".") {
			g.path = section
			f.report(&g, "expected a plain key")
			continue
		}
		if first, dup := seen[k.Value]; dup {
			f.report(&g, fmt.Sprintf("given twice; the first is in line %d", first))
			continue
		}
		seen[k.Value] = k.Line
		f.entry(&g, v)
	}
}

func (f *flattener) entry(g *setting, v *yaml.Node) {
	d := lookup(g.path)
	switch {
	case d == notKnown:
		f.report(g, unknownKey(g.path))
	case v.Kind == yaml.AliasNode:
		f.report(g, "aliases are not supported; write the value out")
	case v.Kind == yaml.MappingNode && d == isSection:
		f.mapping(g.path, v)
	case v.Kind == yaml.MappingNode:
		f.report(g, "expected a value, found a mapping")
	case v.Kind == yaml.SequenceNode && len(v.Content) == 0 && d == isLeaf:
		g.text, g.tag = "[]", v.Tag
		f.out = append(f.out, *g)
	case v.Kind == yaml.SequenceNode && g.path == "faults":
		f.faults(g, v)
	case v.Kind == yaml.SequenceNode:
		f.report(g, "expected a value, found a list")
	case d == isSection && v.Tag == "!!null": // a section whose keys are all commented out
	case d == isSection && shortFor(g.path) == "":
		f.report(g, fmt.Sprintf("expected a mapping of keys, found %q; its keys are %s", clip(v.Value), strings.Join(children(g.path), ", ")))
	default:
		if d == isSection {
			g.path = join(g.path, shortFor(g.path))
		}
		g.text, g.tag = v.Value, v.Tag
		f.out = append(f.out, *g)
	}
}

// faults takes the list of faults as one setting.
func (f *flattener) faults(g *setting, v *yaml.Node) {
	before := len(f.problems)
	list := decodeFaults(v, func(at *yaml.Node, path, message string) {
		f.report(&setting{path: path, line: at.Line, column: at.Column}, message)
	})
	if len(f.problems) > before {
		list = nil
	}
	g.text, g.tag = formatFaults(list), v.Tag
	f.out = append(f.out, *g)
}

func (f *flattener) report(g *setting, message string) {
	f.problems = append(f.problems, g.problem(f.scenario, message))
}

func join(section, name string) string {
	if section == "" {
		return name
	}
	return section + "." + name
}
