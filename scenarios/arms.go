package scenarios

import (
	"fmt"
	"slices"
	"strings"
)

// Named is one arm for each text of the form "name: path=value,path=value": the base with those values, so that each arm
// has knobs of its own. Names must differ; a key that has no effect in its arm is an error.
func Named(base *Scenario, texts []string) ([]Arm, error) {
	var arms []Arm
	var problems Problems
	for _, text := range texts {
		name, sets, ok := strings.Cut(text, ":")
		name = strings.TrimSpace(name)
		source := "--arm " + clip(text)
		switch {
		case !ok || strings.Contains(name, "="):
			problems = append(problems, &Problem{File: base.file, Source: source, Message: `expected "name: path=value,path=value"`})
			continue
		case name == "":
			problems = append(problems, &Problem{File: base.file, Source: source, Message: "the name is empty"})
			continue
		case slices.ContainsFunc(arms, func(a Arm) bool { return a.Name == name }):
			problems = append(problems, &Problem{File: base.file, Source: source, Message: fmt.Sprintf("there is another arm %s", clip(name))})
			continue
		}
		arm := Arm{Name: name}
		given := make([]setting, 0, 4)
		for _, set := range strings.Split(sets, ",") {
			g, message := parseOverride("--arm "+clip(name)+":", strings.TrimSpace(set))
			if message == "" && slices.ContainsFunc(arm.Varied, func(v Varied) bool { return v.Path == g.path }) {
				message = "is given twice"
			}
			if message != "" {
				problems = append(problems, g.problem(base, message))
				continue
			}
			given = append(given, g)
			arm.Varied = append(arm.Varied, Varied{g.path, g.text})
		}
		var err error
		if arm.Scenario, err = base.with(given, nil); err != nil {
			return nil, err
		}
		arms = append(arms, arm)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return arms, nil
}
