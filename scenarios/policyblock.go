package scenarios

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// ParsePolicy decodes the policy block of another file, a gateway's configuration: the same keys, defaults and errors as
// in a scenario. name and source are those of the whole file, for messages; block is the value of its key policy, nil if
// it has none. The error is Problems.
func ParsePolicy(name string, source []byte, block *yaml.Node) (Policy, error) {
	s := &Scenario{file: name, lines: strings.Split(string(source), "\n")}
	f := flattener{scenario: s}
	if block != nil {
		f.entry(&setting{path: "policy", line: block.Line, column: block.Column, strict: true}, block)
	}
	r := resolver{problems: f.problems, last: map[string]int{}, used: map[string]bool{}}
	r.out = &Scenario{file: s.file, lines: s.lines, given: f.out}
	for i := range f.out {
		r.last[f.out[i].path] = i
	}
	for i := range declaration {
		if strings.HasPrefix(declaration[i].path, "policy.") {
			r.section(&declaration[i])
		}
	}
	r.unused()
	if len(r.problems) > 0 {
		return Policy{}, r.problems.sorted()
	}
	return r.out.Policy, nil
}
