package studies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-sim/sluice/results"
)

// columns of the comparison; difference says where the paired difference is shown too.
var columns = []struct {
	metric, title string
	difference    bool
}{
	{goodMetric, "Within the SLO, tok/s", true},
	{"total_tps", "Total, tok/s", true},
	{"slo.attainment", "SLO attainment, %", false},
	{"hit_rate", "Hit rate, %", false},
	{"ttft_s.p50", "TTFT p50, s", false},
	{ttftMetric, "TTFT p95, s", true},
	{"tpot_s.p50", "TPOT p50, ms", false},
	{"work.max_mean", "Work max/mean", false},
}

// write is the section: the comparison, its command, and what every setting gave.
func write(picks []string, tuning [][]tried, c *results.Comparison) string {
	var b strings.Builder
	table := c.Table()
	order := ranked(table)
	toBest := againstBest(c, order)
	fmt.Fprintf(&b, `All routers on the bundled scenario %s (`+"`sluice scenarios %s`"+`): generated coding agents on eight replicas whose KV
cache is a little too small for them. Each has the tuning that was best for it: of the settings in the second table, at most
%d for each router and the defaults among them, the one with the most tokens (input and output) a second within the SLO on
seed %d; with the lowest p95 of the time to first token among equals. Seed 3 was looked at to decide what to try. The
comparison is of %d other seeds, %d to %d.
`+"`make routers`"+` does it all again and writes this section.

Means over the seeds; in brackets the paired difference to %s with its 95 %% interval, in percent of it. The order is that of
the tokens within the SLO; "to the first" is the paired difference of these to the first router of the table. An interval that
holds 0 tells no difference. One scenario at one load says nothing about others.

`, scenario, scenario, mostPerGrid, tuningSeed, seeds, firstSeed, firstSeed+seeds-1, grids[0].router)
	b.WriteString("| Router | Setting |")
	for _, c := range columns {
		b.WriteString(" " + c.title + " |")
		if c.metric == goodMetric {
			b.WriteString(" To the first, % |")
		}
	}
	b.WriteString("\n| --- | --- |" + strings.Repeat(" ---: |", len(columns)+1) + "\n")
	for place, arm := range order {
		fmt.Fprintf(&b, "| %s | %s |", grids[arm].router, words(picks[arm]))
		for _, c := range columns {
			b.WriteString(" " + cell(table, c.metric, arm, c.difference) + " |")
			if c.metric == goodMetric {
				b.WriteString(" " + difference(toBest[place]) + " |")
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("\noracle knows residency, load and output lengths exactly and is greedy: a yardstick, not a bound.\n\n")
	writeCommand(&b, comparison(picks))
	writeTuning(&b, picks, tuning)
	return b.String()
}

// ranked is the arms, best first.
func ranked(table *results.Table) []int {
	good := row(table, goodMetric).Cells
	order := make([]int, len(good))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(*good[b].Value, *good[a].Value) })
	return order
}

// againstBest is the tokens within the SLO of the arms in an order, with the paired differences to the first of them.
func againstBest(c *results.Comparison, order []int) []results.Cell {
	sorted := *c
	sorted.Arms = make([]results.Arm, len(order))
	for place, arm := range order {
		sorted.Arms[place] = c.Arms[arm]
	}
	return row(sorted.Table(), goodMetric).Cells
}

func cell(table *results.Table, metric string, arm int, differs bool) string {
	r := row(table, metric)
	if r == nil || r.Cells[arm].Value == nil {
		return "-"
	}
	c := r.Cells[arm]
	text := results.FormatNumber(*c.Value)
	switch {
	case r.Unit == "%":
		text = fmt.Sprintf("%.1f", *c.Value*100)
	case metric == "tpot_s.p50":
		text = fmt.Sprintf("%.1f", *c.Value*1000)
	}
	if d := difference(c); differs && d != "" {
		text += " (" + d + ")"
	}
	return text
}

// difference is the paired difference of a cell with its interval, in percent; "" where there is none.
func difference(c results.Cell) string {
	if c.Change == nil || c.HalfWidth == nil {
		return ""
	}
	return fmt.Sprintf("%+.1f ± %.1f", *c.Change*100, *c.HalfWidth*100)
}

func writeCommand(b *strings.Builder, args []string) {
	b.WriteString("```sh\nsluice")
	for i, a := range args {
		switch {
		case a == "--arm":
			b.WriteString(" \\\n    --arm")
		case i > 0 && args[i-1] == "--arm":
			b.WriteString(" '" + a + "'")
		default:
			b.WriteString(" " + a)
		}
	}
	b.WriteString("\n```\n")
}

func writeTuning(b *strings.Builder, picks []string, tuning [][]tried) {
	fmt.Fprintf(b, "\nWhat every setting gave on seed %d, the picked one marked. Knobs that a setting does not name have their defaults.\n\n", tuningSeed)
	b.WriteString("| Router | Setting | Within the SLO, tok/s | TTFT p95, s | |\n| --- | --- | ---: | ---: | --- |\n")
	for i := range grids {
		for _, x := range tuning[i] {
			note := ""
			if x.setting == picks[i] {
				note = "picked"
			}
			if grids[i].why != "" {
				note = grids[i].why
			}
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", grids[i].router, words(x.setting), results.FormatNumber(x.good), results.FormatNumber(x.ttft), note)
		}
	}
}
