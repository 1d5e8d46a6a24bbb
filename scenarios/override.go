package scenarios

import (
	"fmt"
	"slices"
	"strings"
)

// Apply is the scenario with overrides of the form "path=value", checked again; s stays as it is. A section that has a
// name takes it in short: policy.router=sticky. An override that chooses another gate, router, preset, process or
// workload silently drops what was given for the old one.
func (s *Scenario) Apply(sets []string) (*Scenario, error) {
	given := make([]setting, 0, len(sets))
	var problems Problems
	for _, set := range sets {
		g, message := parseOverride("--set", set)
		if message != "" {
			problems = append(problems, g.problem(s, message))
			continue
		}
		given = append(given, g)
	}
	return s.with(given, problems)
}

// parseOverride splits and finds "path=value".
func parseOverride(flag, set string) (setting, string) {
	path, text, ok := strings.Cut(set, "=")
	g := setting{path: strings.TrimSpace(path), text: text, override: flag + " " + clip(set), strict: true}
	if !ok {
		return g, "expected path=value"
	}
	full, message := fullPath(g.path)
	g.path = full
	return g, message
}

// fullPath is the path of the key that an override names, with short forms expanded.
func fullPath(path string) (full, message string) {
	switch lookup(path) {
	case notKnown:
		return path, unknownKey(path)
	case isSection:
		short := shortFor(path)
		if short == "" {
			return path, "is a section; set one of " + strings.Join(children(path), ", ")
		}
		return join(path, short), ""
	}
	return path, ""
}

// with adds settings to those given and resolves again.
func (s *Scenario) with(given []setting, problems Problems) (*Scenario, error) {
	next := *s
	next.given = slices.Clone(s.given)
	for i := range next.given {
		if old := &next.given[i]; old.chosen == "" {
			old.chosen = s.chosenFor(old.path)
		}
	}
	for _, g := range given {
		section := chooser(g.path)
		for i := range next.given {
			if old := &next.given[i]; section != "" && strings.HasPrefix(old.path, section) {
				old.strict = false
			}
		}
	}
	next.given = append(next.given, given...)
	return next.resolve(problems)
}

// chosenFor is the name in effect in the choice section that a knob belongs to, "" for other keys.
func (s *Scenario) chosenFor(path string) string {
	for i := range declaration {
		if d := &declaration[i]; d.choice != nil && strings.HasPrefix(path, d.path+".") && path != join(d.path, d.choice.name) {
			return d.choice.at(s).Name
		}
	}
	return ""
}

// chooser is the prefix of the keys whose meaning depends on path, "" if none do.
func chooser(path string) string {
	if strings.HasPrefix(path, "workload.") {
		return "workload."
	}
	for i := range declaration {
		if d := &declaration[i]; d.short != "" && path == join(d.path, d.short) {
			return d.path + "."
		}
	}
	return ""
}

// Arm is one scenario of a comparison.
type Arm struct {
	Name     string // the varied values, such as "sticky" or "sticky,0.85"
	Scenario *Scenario
	Varied   []Varied // the keys that tell it from the other arms; those without effect in it are left out
}

// Varied is a varied key and an arm's value of it.
type Varied struct{ Path, Value string }

// maxArms bounds a grid.
const maxArms = 10_000

// variation is one --vary, parsed.
type variation struct {
	path   string
	values []string
}

// Grid is one arm for every combination of the values of varies, each of the form "path=value,value"; the last one
// changes fastest. In an arm whose gate or router has no such knob a varied knob is left out, and arms that become equal
// are one. Without varies the grid is the base alone, named after its router.
func Grid(base *Scenario, varies []string) ([]Arm, error) {
	if len(varies) == 0 {
		return []Arm{{Name: base.Policy.Router.Name, Scenario: base}}, nil
	}
	vs, err := parseVaries(base, varies)
	if err != nil {
		return nil, err
	}
	total := 1
	for _, v := range vs {
		if total *= len(v.values); total > maxArms {
			return nil, fmt.Errorf("--vary asks for more than %d arms", maxArms)
		}
	}
	var arms []Arm
	seen := map[string]bool{}
	effective := make([]bool, len(vs))
	for n := range total {
		sc, err := combination(base, vs, n)
		if err != nil {
			return nil, err
		}
		arm := Arm{Scenario: sc}
		var names []string
		for i, v := range vs {
			if _, ok := sc.Value(v.path); ok {
				effective[i] = true
				value := v.values[index(vs, i, n)]
				names = append(names, value)
				arm.Varied = append(arm.Varied, Varied{v.path, value})
			}
		}
		arm.Name = strings.Join(names, ",")
		if digest := sc.Digest(); !seen[digest] {
			seen[digest] = true
			arms = append(arms, arm)
		}
	}
	for i, v := range vs {
		if !effective[i] {
			return nil, fmt.Errorf("--vary %s: the key has no effect in any arm", v.path)
		}
	}
	return arms, nil
}

// index is which value of variation i combination n takes.
func index(vs []variation, i, n int) int {
	for j := len(vs) - 1; j > i; j-- {
		n /= len(vs[j].values)
	}
	return n % len(vs[i].values)
}

func combination(base *Scenario, vs []variation, n int) (*Scenario, error) {
	given := make([]setting, len(vs))
	for i, v := range vs {
		text := v.values[index(vs, i, n)]
		given[i] = setting{path: v.path, text: text, override: "--vary " + v.path + "=" + clip(text), strict: true}
		for _, other := range vs {
			if section := chooser(other.path); section != "" && other.path != v.path && strings.HasPrefix(v.path, section) {
				given[i].strict = false
			}
		}
	}
	return base.with(given, nil)
}

func parseVaries(base *Scenario, varies []string) ([]variation, error) {
	var out []variation
	var problems Problems
	for _, text := range varies {
		g, message := parseOverride("--vary", text)
		v := variation{path: g.path}
		for _, x := range strings.Split(g.text, ",") {
			x = strings.TrimSpace(x)
			switch {
			case message != "":
			case x == "":
				message = "expected path=value,value,... without empty values"
			case slices.Contains(v.values, x):
				message = fmt.Sprintf("the value %s is given twice", clip(x))
			}
			v.values = append(v.values, x)
		}
		if slices.ContainsFunc(out, func(o variation) bool { return o.path == v.path }) && message == "" {
			message = "is varied twice"
		}
		if message != "" {
			problems = append(problems, g.problem(base, message))
		}
		out = append(out, v)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return out, nil
}

// Bounds is two arms that say how far a policy is from the best possible, with everything else as in base: the oracle
// router (exact residency, exact load, true output lengths; greedy), and the same with an infinite cache on every replica.
func Bounds(base *Scenario) ([]Arm, error) {
	oracle, err := base.Apply([]string{"policy.router=oracle"})
	if err != nil {
		return nil, err
	}
	infinite, err := oracle.Apply([]string{"cluster.infinite_cache=true"})
	if err != nil {
		return nil, err
	}
	return []Arm{{Name: "oracle", Scenario: oracle}, {Name: "infinite-cache", Scenario: infinite}}, nil
}
