package scenarios

import (
	"fmt"
	"sort"
	"strings"
)

// Problem is one fault of a scenario, with its place.
type Problem struct {
	File    string // "" for a bundled scenario
	Line    int    // from 1; 0 when the fault has no line
	Column  int    // from 1
	Source  string // "--set a.b=c" when an override caused it
	Key     string // full path, such as cluster.engine.block_size
	Message string // what was found, what was expected, what to do
	Excerpt string // the source line
}

// Error gives the place, the key and the message, and below them the source line with a mark.
func (p *Problem) Error() string {
	var b strings.Builder
	switch {
	case p.Source != "":
		fmt.Fprintf(&b, "%s: ", p.Source)
	case p.Line > 0:
		fmt.Fprintf(&b, "%s:%d:%d: ", p.file(), p.Line, p.Column)
	default:
		fmt.Fprintf(&b, "%s: ", p.file())
	}
	if p.Key != "" {
		fmt.Fprintf(&b, "%s: ", p.Key)
	}
	b.WriteString(p.Message)
	if p.Excerpt != "" {
		fmt.Fprintf(&b, "\n%5d | %s\n      | %s^", p.Line, p.Excerpt, strings.Repeat(" ", max(p.Column-1, 0)))
	}
	return b.String()
}

func (p *Problem) file() string {
	if p.File == "" {
		return "scenario"
	}
	return p.File
}

// Problems is all faults of a scenario, in the order of the file, those of overrides last.
type Problems []*Problem

// Error is one problem after the other, separated by newlines.
func (ps Problems) Error() string {
	texts := make([]string, len(ps))
	for i, p := range ps {
		texts[i] = p.Error()
	}
	return strings.Join(texts, "\n")
}

func (ps Problems) sorted() Problems {
	sort.SliceStable(ps, func(i, j int) bool {
		a, b := ps[i], ps[j]
		if (a.Source == "") != (b.Source == "") {
			return a.Source == ""
		}
		if (a.Line == 0) != (b.Line == 0) {
			return a.Line != 0
		}
		if a.Line != b.Line {
			return a.Line < b.Line
		}
		return a.Column < b.Column
	})
	return ps
}

// excerpt is a source line as an error shows it, with tabs as single spaces so that the mark stands below its column.
func excerpt(lines []string, line, column int) string {
	const widest = 120
	if line < 1 || line > len(lines) || column > widest {
		return ""
	}
	text := []rune(strings.ReplaceAll(strings.TrimRight(lines[line-1], "\r"), "\t", " "))
	if len(text) > widest {
		text = append(text[:widest], '…')
	}
	return string(text)
}
