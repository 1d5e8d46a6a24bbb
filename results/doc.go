package results

import (
	"fmt"
	"io"
	"reflect"
	"strings"
)

const docHead = `# Metrics

This page is printed from the declarations in ` + "`results/`" + `; ` + "`go test ./results`" + ` checks it and
` + "`go test ./results -run TestDoc -update`" + ` writes it.

A run leaves a folder:

| file | content |
|---|---|
| ` + "`summary.json`" + ` | every metric below, not rounded |
| ` + "`turns.parquet`" + ` | one row per attempt of a turn |
| ` + "`sessions.parquet`" + ` | one row per session |
| ` + "`replicas.parquet`" + ` | one row per replica and interval |
| ` + "`scenario.yaml`" + ` | the scenario as resolved |

A comparison leaves a folder with ` + "`compare.json`" + ` (arms, varied knobs, seeds, summaries) and such a folder per arm and
seed below ` + "`arms/`" + `. The same inputs give the same bytes.

Units are in the names: ` + "`_s`" + ` seconds, ` + "`_tps`" + ` tokens per second, ` + "`_tokens`" + ` tokens, ` + "`_share`" + ` and ` + "`_rate`" + `
fractions. A number that does not exist is null, never zero. A metric marked *distribution* has ` + "`.n`, `.mean`, `.p50`, `.p75`,\n`.p90`, `.p95`, `.p99` and `.max`" + ` below it: exact, with linear interpolation between ranks (numpy's default); pXX is null when
n(1-XX) < 5, that is when fewer than five samples lie above it.

With several seeds, tables hold the mean over the seeds and the mean paired difference to the first arm, with a 95 %
confidence interval by Student's t over the seeds. Sessions of one run interfere, so they are not resampled.

Sums over turns use each turn's last attempt; rates count the tokens of all attempts, since the cluster produced them.

`

// WriteDoc prints the metrics page: the definition of every entry of summary.json and of every Parquet column.
func WriteDoc(w io.Writer) error {
	var b strings.Builder
	b.WriteString(docHead)
	b.WriteString("## Metrics of a window\n\n`whole` and `steady` in `summary.json`. A turn belongs to the window in which\n" +
		"its first attempt arrived, a token to the one in which it was produced.\n\n")
	metricTable(&b, WindowMetrics())
	b.WriteString("\n## Metrics of a run\n\n")
	metricTable(&b, RunMetrics())
	for _, file := range []struct {
		name string
		row  reflect.Type
	}{{TurnsFile, reflect.TypeFor[turnColumns]()}, {SessionsFile, reflect.TypeFor[sessionColumns]()},
		{ReplicasFile, reflect.TypeFor[sampleColumns]()}} {
		fmt.Fprintf(&b, "\n## Columns of %s\n\n| column | content |\n|---|---|\n", file.name)
		for i := range file.row.NumField() {
			tag := file.row.Field(i).Tag
			if column, _, _ := strings.Cut(tag.Get("parquet"), ","); column != "" {
				fmt.Fprintf(&b, "| `%s` | %s |\n", column, tag.Get("doc"))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func metricTable(b *strings.Builder, metrics []Metric) {
	b.WriteString("| metric | definition |\n|---|---|\n")
	for _, m := range metrics {
		kind := ""
		if m.Dist {
			kind = " (*distribution*)"
		}
		fmt.Fprintf(b, "| `%s` | %s%s |\n", m.Name, m.Doc, kind)
	}
}
