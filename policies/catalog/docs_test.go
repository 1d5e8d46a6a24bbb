package catalog_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
)

var update = flag.Bool("update", false, "write docs/policies.md from the declarations")

func TestDocumentationIsWhatTheDeclarationsSay(t *testing.T) {
	path := filepath.Join(root(t), "docs", "policies.md")
	was, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	want := page(comparison(string(was)))
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/policies.md is out of date; write it with: go test ./policies/catalog -update")
	}
}

// The comparison of the routers is written by `make routers`, not from the declarations.
const beginComparison, endComparison = "<!-- begin routers -->\n", "<!-- end routers -->\n"

// comparison is what stands between the marks of the comparison on a page.
func comparison(page string) string {
	_, rest, _ := strings.Cut(page, beginComparison)
	section, _, _ := strings.Cut(rest, endComparison)
	return section
}

func page(comparison string) string {
	var b strings.Builder
	b.WriteString(`# Policies

<!-- Written by "go test ./policies/catalog -update" from the declarations in policies/, and by "make routers". Do not edit. -->

A **gate** decides when a turn may go, a **router** where it goes. Both see the cluster only through facts: their own
ledger of leases, scraped samples, KV events and answers to probes. The same code runs in the simulator and behind a
gateway. A **retention** policy may keep the content of a finished turn against eviction. A scenario chooses them under
` + "`policy.gate`, `policy.router` and `policy.retention`" + `, by name and knobs.

A signal that was never reported is unknown, which is not zero; each policy says what it does then, and what of its source it
leaves out.

## Gates
`)
	for _, d := range catalog.Gates() {
		section(&b, d)
	}
	b.WriteString(`
Reasons in results: ` + reasons(policies.Ungated, policies.ClientLeft) + `.

## Routers
`)
	for _, d := range catalog.Routers() {
		section(&b, d)
	}
	b.WriteString(`
Reasons in results: ` + reasons(policies.InTurn, policies.Hotspot) + `.

## Retention

These pin KV blocks, which needs an engine that can: stock vLLM cannot, and evicts what was used longest ago. The simulator
can, so that it can say what pinning would be worth.
`)
	for _, d := range catalog.Retentions() {
		section(&b, d)
	}
	b.WriteString("\n## Routers compared\n\n" + beginComparison + comparison + endComparison)
	return b.String()
}

func section(b *strings.Builder, d policies.Declaration) {
	fmt.Fprintf(b, "\n### %s\n\n%s\n\nSource: %s. Signals: %s. %s\n", d.Name, d.Doc, d.Source, signals(d.Needs), d.Missing)
	if d.Omits != "" {
		fmt.Fprintf(b, "\nNot as in the source: %s\n", d.Omits)
	}
	if len(d.Knobs) == 0 {
		return
	}
	b.WriteString("\n| Knob | Default | Range | Unit | Meaning |\n| --- | --- | --- | --- | --- |\n")
	for _, k := range d.Knobs {
		def, from := number(k.Default.Number), number(k.Min)+" to "+number(k.Max)
		switch k.Kind {
		case policies.BoolKnob:
			def, from = strconv.FormatBool(k.Default.Bool), "true, false"
		case policies.EnumKnob:
			def, from = k.Default.Text, strings.Join(k.Enum, ", ")
		case policies.IntKnob:
			from += ", whole"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", k.Name, def, from, k.Unit, k.Doc)
	}
}

func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

func signals(s policies.Signals) string {
	var names []string
	for i, name := range []string{"samples", "KV events", "token progress", "probes", "oracle"} {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none beyond the ledger"
	}
	return strings.Join(names, ", ")
}

func reasons(from, to policies.Reason) string {
	var names []string
	for r := from; r <= to; r++ {
		names = append(names, "`"+r.String()+"`")
	}
	return strings.Join(names, ", ")
}
