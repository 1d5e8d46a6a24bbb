package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-sim/sluice/nearest"
)

// pathKind is what a path names.
type pathKind uint8

const (
	notKnown pathKind = iota
	isSection
	isLeaf
)

// paths is every path of every scenario, whatever its choices are: leaves in the order of the declaration.
type paths struct {
	kind   map[string]pathKind
	leaves []string
}

var allPaths = sync.OnceValue(func() paths {
	p := paths{kind: map[string]pathKind{}}
	for i := range declaration {
		d := &declaration[i]
		leaves := d.leaves()
		p.leaves = append(p.leaves, leaves...)
		if d.path != "" {
			p.kind[d.path] = isSection
		}
		for _, leaf := range leaves {
			p.kind[leaf] = isLeaf
			for _, above := range parents(leaf) {
				p.kind[above] = isSection
			}
		}
	}
	return p
})

// Paths is every path that an override can set in some scenario, in the order of the declaration. A section with a short
// form stands before its keys.
func Paths() []string {
	var out []string
	for i := range declaration {
		d := &declaration[i]
		if d.short != "" {
			out = append(out, d.path)
		}
		out = append(out, d.leaves()...)
	}
	return out
}

// lookup says what a path names in any scenario.
func lookup(path string) pathKind { return allPaths().kind[path] }

// leaves is the paths of all keys that a section can have.
func (d *section) leaves() []string {
	var out []string
	for i := range d.keys {
		out = append(out, d.keys[i].path)
	}
	if d.choice == nil {
		return out
	}
	out = append(out, join(d.path, d.choice.name))
	for _, o := range d.choice.options() {
		for _, knob := range o.knobs {
			if p := join(d.path, knob.Name); !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// children is the names directly below a section, in order.
func children(path string) []string {
	var out []string
	for _, p := range allPaths().leaves {
		rest := p
		if path != "" {
			if !strings.HasPrefix(p, path+".") {
				continue
			}
			rest = p[len(path)+1:]
		}
		name, _, _ := strings.Cut(rest, ".")
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// shortFor is the key that a plain value of a section stands for, "" if it stands for none.
func shortFor(path string) string {
	for i := range declaration {
		if declaration[i].path == path {
			return declaration[i].short
		}
	}
	return ""
}

// unknownKey is the message for a path that names nothing, with the nearest one that does.
func unknownKey(path string) string {
	parent, name := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		parent, name = path[:i], path[i+1:]
	}
	if lookup(parent) != isSection && parent != "" {
		return "unknown key" + didYouMean(path, allPaths().leaves)
	}
	if n := nearest.Name(name, children(parent)); n != "" {
		return "unknown key; did you mean " + join(parent, n) + "?"
	}
	for _, p := range allPaths().leaves {
		if strings.HasSuffix(p, "."+name) {
			return "unknown key here; " + name + " belongs in " + strings.TrimSuffix(p, "."+name)
		}
	}
	where := "the top level"
	if parent != "" {
		where = parent
	}
	const most = 16
	names := children(parent)
	if len(names) > most {
		return fmt.Sprintf("unknown key; the page on scenarios lists the %d keys of %s", len(names), where)
	}
	return fmt.Sprintf("unknown key; the keys of %s are %s", where, strings.Join(names, ", "))
}

// parents is the sections above a path, outermost first: a and a.b for a.b.c.
func parents(path string) []string {
	var out []string
	for i := range path {
		if path[i] == '.' {
			out = append(out, path[:i])
		}
	}
	return out
}
