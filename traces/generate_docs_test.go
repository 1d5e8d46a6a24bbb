package traces

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var writeDocs = flag.Bool("write-generator-docs", false, "write docs/generator.md from the presets' declarations")

const generatorDocs = "../docs/generator.md"

const generatorIntro = `# The trace generator

` + "`sluice trace generate PRESET`" + ` writes a trace, and a scenario's ` + "`workload.generate`" + ` makes one as it runs:

` + "```yaml" + `
workload:
  generate: {preset: bailian-agentic, sessions: 2000, fork_share: 0.2}
` + "```" + `

A trace says what sessions do: how long prompts and outputs are, which content they share, how long the tools between
turns take. How sessions arrive is the scenario's business (` + "`arrivals`" + `), so generated sessions have no start time of their
own. Inside a session the recorded start and duration of a turn are estimates, 0.5 s plus 60 output tokens a second, so
that a replay of recorded times works too; the closed replay uses the tool gaps alone.

The seed is the scenario's. Every draw is a hash of (seed, purpose, session, turn), made with arithmetic that is the same
on all machines: the same preset, knobs and seed give the same trace everywhere, and no session's draws depend on
another's. The first n sessions of a larger trace are the trace with n sessions. (In ` + "`swe-rollout`" + ` this holds for prompts,
at the same number of samples.)

Content follows one pattern. System prompts are shared by the sessions that drew them, the more popular ones by more. A
session's prompts grow: each holds the previous prompt, its output, and what was added. A compaction keeps the system
prompt only; an edited history or stripped thinking keeps what comes before the edit. A subagent is a thread with a system
prompt of its own that its parent waits for. A forked session begins with another's prompt.

This page is written from the declarations by ` + "`go test ./traces -run TestGeneratorDocs -write-generator-docs`" + `.
`

func TestGeneratorDocs(t *testing.T) {
	var b strings.Builder
	b.WriteString(generatorIntro)
	for _, p := range Presets() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\nSource: %s.\n\n", p.Name, p.Doc, p.Source)
		b.WriteString("| knob | default | allowed | unit | what it is |\n|---|---|---|---|---|\n")
		for _, k := range p.Knobs {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", k.Name, k.Default, k.Range(), k.Unit, k.Doc)
		}
	}
	if *writeDocs {
		if err := os.WriteFile(generatorDocs, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(generatorDocs)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != b.String() {
		t.Errorf("%s does not agree with the declarations: run go test ./traces -run TestGeneratorDocs -write-generator-docs", generatorDocs)
	}
}
