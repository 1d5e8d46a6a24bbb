package scenarios

import (
	"strconv"
	"strings"

	"github.com/sluice-sim/sluice/policies"
)

// entry is one key of a resolved scenario.
type entry struct {
	key  key
	text string
}

// entries lists every key that has an effect, with its value, in the order of the declaration.
func (s *Scenario) entries() []entry {
	var out []entry
	add := func(k key) {
		if k.unless == nil || k.unless(s) == "" {
			out = append(out, entry{k, k.format(k.load(s))})
		}
	}
	for i := range declaration {
		d := &declaration[i]
		if d.unless != nil && d.unless(s) != "" {
			continue
		}
		for _, k := range d.keys {
			add(k)
		}
		if d.choice == nil {
			continue
		}
		c := d.choice
		add(key{path: join(d.path, c.name), kind: textKey, load: func(s *Scenario) value { return value{text: c.at(s).Name} }})
		for _, knob := range c.find(c.at(s).Name) {
			add(knobKey(d.path, c.at, knob))
		}
	}
	return out
}

// find is the knobs of a name that has been checked.
func (c *choiceSection) find(name string) []policies.Knob {
	for _, o := range c.options() {
		if o.name == name {
			return o.knobs
		}
	}
	return nil
}

// Resolved is the canonical form: YAML with every default written out, always in the same order. Parse reads it back to a
// scenario with the same digest.
func (s *Scenario) Resolved() []byte {
	var b strings.Builder
	var open []string
	for _, e := range s.entries() {
		parts := strings.Split(e.key.path, ".")
		sections, leaf := parts[:len(parts)-1], parts[len(parts)-1]
		same := 0
		for same < len(open) && same < len(sections) && open[same] == sections[same] {
			same++
		}
		for i := same; i < len(sections); i++ {
			b.WriteString(strings.Repeat("  ", i) + sections[i] + ":\n")
		}
		open = sections
		text := e.text
		if e.key.kind == textKey || e.key.kind == enumKey || e.key.kind == sharesKey {
			text = quoteText(text)
		}
		b.WriteString(strings.Repeat("  ", len(sections)) + leaf + ": " + text + "\n")
	}
	return []byte(b.String())
}

// Value is the text of a key's value, ok false when the key has no effect in this scenario.
func (s *Scenario) Value(path string) (text string, ok bool) {
	for _, e := range s.entries() {
		if e.key.path == path {
			return e.text, true
		}
	}
	return "", false
}

// quoteText writes text as a YAML scalar that reads back as the same text.
func quoteText(s string) string {
	plain := s != ""
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || !(c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.' || c == '/')) {
			plain = false
		}
	}
	switch strings.ToLower(s) {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf":
		plain = false
	}
	if plain {
		return s
	}
	return strconv.Quote(s)
}
