package scenarios

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/scenarios.md anew")

const docsPage = "../docs/scenarios.md"

// TestDocsPage holds docs/scenarios.md equal to what the declarations say.
func TestDocsPage(t *testing.T) {
	intro, err := os.ReadFile("testdata/docs_intro.md")
	if err != nil {
		t.Fatal(err)
	}
	want := string(intro) + keyTables()
	if *update {
		if err := os.WriteFile(docsPage, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(docsPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s differs from the declarations; run: go test ./scenarios -run TestDocsPage -update", docsPage)
	}
}

func keyTables() string {
	var b strings.Builder
	for i := range declaration {
		d := &declaration[i]
		if d.choice != nil {
			choiceTables(&b, d)
			continue
		}
		title := "`" + d.path + "`"
		if d.path == "" {
			title = "`" + d.keys[0].path + "`"
			if len(d.keys) > 1 {
				title = "Top level"
			}
		}
		fmt.Fprintf(&b, "\n### %s\n\n%s\n", title, d.doc)
		if d.short != "" {
			fmt.Fprintf(&b, "A plain value stands for `%s`.\n", d.short)
		}
		keyTable(&b, d.keys)
		if d.keys[0].path == "faults" {
			faultTables(&b)
		}
	}
	return b.String()
}

func faultTables(b *strings.Builder) {
	b.WriteString("\n| kind | what happens | keys beside kind and at_s |\n| --- | --- | --- |\n")
	var keys []key
	for _, k := range faultKinds {
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", k.name, k.doc, strings.Join(k.keys, ", "))
	}
	for _, f := range faultFields {
		keys = append(keys, f.key)
	}
	keyTable(b, keys)
}

func keyTable(b *strings.Builder, keys []key) {
	b.WriteString("\n| key | type | default | range | unit | meaning |\n| --- | --- | --- | --- | --- | --- |\n")
	for i := range keys {
		k := &keys[i]
		allowed, def := k.rangeText(), "`"+k.def+"`"
		if k.kind == enumKey {
			allowed = strings.Join(k.enum, ", ")
		}
		if k.required {
			def = "required"
		}
		kindName := k.kind.String()
		if k.kind == enumKey {
			kindName = "one of"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n", k.path, kindName, def, allowed, k.unit, k.doc)
	}
}

// choiceTables documents the presets of the generator in full; policies have a page of their own.
func choiceTables(b *strings.Builder, d *section) {
	fmt.Fprintf(b, "\n### `%s`\n\n%s\nA plain value stands for `%s`.", d.path, d.doc, d.short)
	if d.choice.def != "" {
		fmt.Fprintf(b, " The default is `%s`.", d.choice.def)
	}
	b.WriteString("\n\n| " + d.choice.name + " | what it is |\n| --- | --- |\n")
	for _, o := range d.choice.options() {
		fmt.Fprintf(b, "| `%s` | %s |\n", o.name, o.doc)
	}
	if d.path != "workload.generate" {
		b.WriteString("\nThe knobs of each are in [policies.md](policies.md).\n")
		return
	}
	for _, o := range d.choice.options() {
		fmt.Fprintf(b, "\n#### Preset `%s`\n", o.name)
		var keys []key
		for _, knob := range o.knobs {
			keys = append(keys, knobKey(d.path, d.choice.at, knob))
		}
		keyTable(b, keys)
	}
}
