package traces

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Stats describes a trace as recorded, before anything is repaired, capped or dropped. Times are seconds. Parts that the
// source cannot give are left out. Percentiles interpolate linearly between order statistics, index (n-1)*q; those of
// the reuse interval are nearest rank. (trace manifest: how the statistics are computed)
type Stats struct {
	Format    string `json:"format"`
	Name      string `json:"name"`
	Sessions  int64  `json:"sessions"`
	Requests  int64  `json:"requests"`
	Sequences int64  `json:"sequences,omitempty"` // main threads and subagents
	Subagents int64  `json:"subagents,omitempty"`

	InputTokens  *Dist `json:"input_tokens,omitempty"`
	OutputTokens *Dist `json:"output_tokens,omitempty"`
	OutputZero   int64 `json:"output_zero"` // requests with output 0
	OutputOne    int64 `json:"output_one"`

	Types  []Count `json:"types,omitempty"`
	Models []Count `json:"models,omitempty"`
	Stops  []Count `json:"stops,omitempty"`

	TurnsPerSession  *Dist `json:"turns_per_session,omitempty"` // of the main thread, where subagents are known
	TurnsPerSubagent *Dist `json:"turns_per_subagent,omitempty"`
	FirstInput       *Dist `json:"first_input_tokens,omitempty"` // of the main thread
	FinalInput       *Dist `json:"final_input_tokens,omitempty"`
	ToolTokens       *Dist `json:"tool_tokens,omitempty"`
	SystemTokens     *Dist `json:"system_tokens,omitempty"`

	Gap         *Dist `json:"gap_s,omitempty"`        // start to start inside a sequence, or to the derived parent
	Idle        *Dist `json:"idle_s,omitempty"`       // gap less the previous service time, where that is known
	ServiceTime *Dist `json:"service_s,omitempty"`    // api_time
	Think       *Dist `json:"think_s,omitempty"`      // as recorded
	TTFT        *Dist `json:"ttft_s,omitempty"`       // as recorded
	Duration    *Dist `json:"duration_s,omitempty"`   // of sessions, first start to last end
	ToolGap     *Dist `json:"tool_gap_s,omitempty"`   // longest wait after a completion, of turns that have one
	NoService   int64 `json:"no_service,omitempty"`   // requests without service time
	NoThink     int64 `json:"no_think,omitempty"`     // requests without think time
	MaxOverlap  int64 `json:"max_overlap,omitempty"`  // calls of one session at once
	Overlapping int64 `json:"overlapping,omitempty"`  // sessions with calls that overlap in time
	Steps       int64 `json:"steps,omitempty"`        // pairs of neighbours in a sequence
	Extends     int64 `json:"extends,omitempty"`      // steps whose prompt holds all full blocks of the one before
	LastBlock   int64 `json:"last_block,omitempty"`   // steps where only the last of them differs
	Breaks      int64 `json:"breaks,omitempty"`       // steps where more differs
	Unrelated   int64 `json:"unrelated,omitempty"`    // breaks with nothing in common
	Halved      int64 `json:"input_halved,omitempty"` // steps to less than half the input

	Span            *float64 `json:"span_s,omitempty"`
	FirstTime       *float64 `json:"first_s,omitempty"`
	LastTime        *float64 `json:"last_s,omitempty"`
	Rate            *float64 `json:"requests_per_s,omitempty"`
	MaxPerMinute    int64    `json:"max_per_60s,omitempty"` // in one bin floor(t/60 s)
	MultiTurn       int64    `json:"sessions_with_followers,omitempty"`
	WithParent      int64    `json:"requests_with_parent,omitempty"`
	DerivedSessions bool     `json:"derived_sessions,omitempty"`

	Cache           *CacheStats `json:"infinite_cache,omitempty"`
	FileTokenHit    *Dist       `json:"file_token_hit,omitempty"`
	CeilingTokenHit *float64    `json:"ceiling_token_hit,omitempty"` // of SessionCeiling over all turns

	Files  []FileStats `json:"files,omitempty"`
	Report *Report     `json:"report,omitempty"`
}

// Count is how many requests have a value.
type Count struct {
	Value string `json:"value"`
	N     int64  `json:"n"`
}

// Dist describes a set of numbers.
type Dist struct {
	N    int64    `json:"n"`
	Min  float64  `json:"min"`
	P50  float64  `json:"p50"`
	P90  float64  `json:"p90"`
	P99  float64  `json:"p99"`
	Max  float64  `json:"max"`
	Mean *float64 `json:"mean,omitempty"` // nil for reuse intervals; Sum too
	Sum  *float64 `json:"sum,omitempty"`
}

// newDist describes v, whose numbers are in units of 1/scale, and sorts it; nil when v is empty.
func newDist(v []int64, scale float64) *Dist {
	billions, rest := int64(0), int64(0) // a sum of nanoseconds may exceed an int64
	for _, x := range v {
		billions += x / 1e9
		rest += x % 1e9
	}
	return describe(v, float64(float64(billions)*1e9)+float64(rest), scale)
}

// floatDist describes v and sorts it; nil when v is empty.
func floatDist(v []float64) *Dist {
	total := 0.0
	for _, x := range v {
		total += x
	}
	return describe(v, total, 1)
}

func describe[T int64 | float64](v []T, total, scale float64) *Dist {
	if len(v) == 0 {
		return nil
	}
	slices.Sort(v)
	at := func(q float64) float64 {
		pos := float64(len(v)-1) * q
		i := min(int(pos), len(v)-2)
		if i < 0 {
			return float64(v[0]) / scale
		}
		f := pos - float64(i)
		return (float64(v[i]) + float64(f*float64(v[i+1]-v[i]))) / scale
	}
	sum := total / scale
	mean := sum / float64(len(v))
	return &Dist{N: int64(len(v)), Min: float64(v[0]) / scale, P50: at(.5), P90: at(.9), P99: at(.99),
		Max: float64(v[len(v)-1]) / scale, Mean: &mean, Sum: &sum}
}

// counted lists a tally in order of value.
func (t tally) counted() []Count {
	var out []Count
	for _, n := range t.notes() {
		out = append(out, Count{n.Note, n.Count})
	}
	return out
}

// Rows returns the statistics as pairs of name and text, in the order in which people read them.
func (s *Stats) Rows() [][2]string {
	t := table{}
	t.text("format", s.Format)
	t.text("name", s.Name)
	t.count("sessions", s.Sessions)
	t.count("requests", s.Requests)
	t.count("sequences", s.Sequences)
	t.count("subagents", s.Subagents)
	t.dist("input tokens", s.InputTokens)
	t.dist("output tokens", s.OutputTokens)
	t.count("output 0 / 1", s.OutputZero, s.OutputOne)
	t.counts("type", s.Types)
	t.counts("model", s.Models)
	t.counts("stop", s.Stops)
	t.dist("turns per session", s.TurnsPerSession)
	t.dist("turns per subagent", s.TurnsPerSubagent)
	t.dist("first input tokens", s.FirstInput)
	t.dist("final input tokens", s.FinalInput)
	t.dist("tool tokens", s.ToolTokens)
	t.dist("system tokens", s.SystemTokens)
	t.dist("gap s", s.Gap)
	t.dist("idle s", s.Idle)
	t.dist("service s", s.ServiceTime)
	t.dist("think s", s.Think)
	t.dist("ttft s", s.TTFT)
	t.dist("tool gap s", s.ToolGap)
	t.dist("session length s", s.Duration)
	t.count("without service time", s.NoService)
	t.count("without think time", s.NoThink)
	t.count("overlapping sessions, most calls at once", s.Overlapping, s.MaxOverlap)
	t.count("steps", s.Steps)
	t.count("  extend", s.Extends)
	t.count("  last block differs", s.LastBlock)
	t.count("  break, with nothing in common", s.Breaks, s.Unrelated)
	t.count("  to less than half the input", s.Halved)
	t.float("span s", s.Span)
	t.float("requests per s", s.Rate)
	t.count("most requests in 60 s", s.MaxPerMinute)
	t.count("sessions with followers", s.MultiTurn)
	t.count("requests with a parent", s.WithParent)
	if c := s.Cache; c != nil {
		t.count("blocks, unique", c.Blocks, c.UniqueBlocks)
		t.count("prefix hit blocks, vLLM's", c.PrefixHitBlocks, c.VLLMHitBlocks)
		t.float("block hit ratio, infinite cache", c.BlockHit)
		t.float("token hit ratio, infinite cache", c.TokenHit)
		t.float("share of hits inside a sequence", c.IntraShare)
		t.dist("reuse interval s", c.ReuseInterval)
	}
	t.dist("token hit ratio by file", s.FileTokenHit)
	t.float("token hit ceiling, outputs included", s.CeilingTokenHit)
	if s.Report != nil {
		for _, d := range s.Report.Dropped {
			t.count("dropped: "+d.Reason, d.Turns)
		}
		for _, n := range s.Report.Notes {
			t.count("note: "+n.Note, n.Count)
		}
	}
	return t
}

// table collects rows and leaves out what is missing.
type table [][2]string

func (t *table) text(name, v string) {
	if v != "" {
		*t = append(*t, [2]string{name, v})
	}
}

func (t *table) count(name string, v ...int64) {
	s, any := "", false
	for i, n := range v {
		if i > 0 {
			s += " / "
		}
		s += strconv.FormatInt(n, 10)
		any = any || n != 0
	}
	if any {
		t.text(name, s)
	}
}

func (t *table) counts(name string, v []Count) {
	for _, c := range v {
		if c.Value == "" {
			c.Value = "(none)"
		}
		t.count(name+" "+c.Value, c.N)
	}
}

func (t *table) float(name string, v *float64) {
	if v != nil {
		t.text(name, short(*v))
	}
}

func (t *table) dist(name string, d *Dist) {
	if d == nil {
		return
	}
	s := fmt.Sprintf("n %d, min %s, p50 %s, p90 %s, p99 %s, max %s", d.N, short(d.Min), short(d.P50), short(d.P90), short(d.P99), short(d.Max))
	if d.Sum != nil {
		s += ", sum " + short(*d.Sum)
	}
	t.text(name, s)
}

// short writes a number with as many digits as people can use.
func short(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', 6, 64)
}
