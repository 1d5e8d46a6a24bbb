package figures

import (
	"cmp"
	"slices"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/results"
)

// lateTurn is the first turn of a thread that counts as late: by then its history is most of its prompt.
const lateTurn = 10

// measure is a sink that collects the summary and what the summary does not hold.
type measure struct {
	*results.Collector
	turns []turnSpan
	late  []float64 // turn latencies, s

	admitted, open, owned int64 // turns: all, for want of pressure, for a window
	ownedPrompt, ownedHit int64 // tokens of the turns admitted for a window
}

// turnSpan is when a turn of a session arrived, was in the engine and ended, and the tokens that it leaves behind.
type turnSpan struct {
	session, number        int32
	arrival, sent, done    int64 // ps
	context, sharedContext int64 // tokens; shared: found in other sessions' prompts at the first turn
}

// Turn implements results.Sink.
func (m *measure) Turn(t *results.Turn) error {
	if t.Final && t.Outcome == results.Finished {
		m.turns = append(m.turns, turnSpan{t.Session, t.Number, t.ArrivalPS, t.SentPS, t.DonePS,
			int64(t.PromptTokens) + int64(t.OutputTokens), int64(t.CeilingTokens)})
		m.admitted++
		switch t.AdmitReason {
		case policies.Open.String():
			m.open++
		case policies.ReservedSession.String():
			m.owned++
			m.ownedPrompt += int64(t.PromptTokens)
			m.ownedHit += int64(t.HitGPU) + int64(t.HitCPU) + int64(t.HitGlobal)
		}
		if t.Number >= lateTurn {
			m.late = append(m.late, results.Seconds(t.DonePS-t.ArrivalPS))
		}
	}
	return m.Collector.Turn(t)
}

// occupancy integrates over a window given in seconds: duty is the share of the sessions' time during which a turn is in
// the engine; demand is the tokens that the sessions under way hold, those that they share counted once for none.
func (m *measure) occupancy(from, to float64) (duty, demand float64) {
	slices.SortFunc(m.turns, func(a, b turnSpan) int {
		return cmp.Or(cmp.Compare(a.session, b.session), cmp.Compare(a.number, b.number))
	})
	overlap := func(a, b int64) float64 {
		return max(0, min(results.Seconds(b), to)-max(results.Seconds(a), from))
	}
	busy, alive, shared := 0.0, 0.0, int64(0)
	for i := range m.turns {
		t := &m.turns[i]
		if i == 0 || m.turns[i-1].session != t.session {
			shared = t.sharedContext
		}
		until := t.done
		if i+1 < len(m.turns) && m.turns[i+1].session == t.session {
			until = m.turns[i+1].arrival
		}
		busy += overlap(t.sent, t.done)
		alive += overlap(t.arrival, until)
		demand += overlap(t.arrival, until) * float64(t.context-shared)
	}
	return busy / alive, demand / (to - from)
}

// observation is what one run showed, by column name. A column that the run does not have is absent.
type observation map[string]float64

// column is a measured figure: a metric of the summary or one of measure's own.
type column struct {
	name, label string
	metric      string
}

// columns declares what figures can measure. Metrics are those of the results, in the window of tables.
var columns = []column{
	{"total_tps", "total TPS [tok/s]", "total_tps"},
	{"hit_rate", "hit rate", "hit_rate"},
	{"recomputed", "recomputed share of prefill", "thrash_index"},
	{"kv_usage", "mean KV usage", "kv_usage_mean"},
	{"gate_wait_s", "mean gate wait [s]", "gate_wait_s.mean"},
	{"max_wait_s", "longest gate wait [s]", "gate.max_wait_s"},
	{"ttft_p95_s", "TTFT p95 [s]", "ttft_s.p95"},
	{"session_p50_s", "session time p50 [s]", "session_time_s.p50"},
	{"session_p95_s", "session time p95 [s]", "session_time_s.p95"},
	{"usage_probes", "usage probes", "gate.usage_probes"},
	{"prefix_probes", "prefix probes", "gate.prefix_probes"},
	{"late_p95_s", "late turns, p95 [s]", ""},
	{"held", "share of turns held at the gate", ""},
	{"open", "share of turns admitted without pressure", ""},
	{"window", "share of turns admitted for a window", ""},
	{"window_hit_rate", "hit rate of the turns admitted for a window", ""},
	{"duty", "LLM duty cycle", ""},
	{"demand", "demand / KV capacity", ""},
}

// observe reads the columns of a finished run.
func (m *measure) observe(totals *results.Totals) (observation, error) {
	s := m.Summary(totals)
	o := observation{}
	for _, c := range columns {
		if c.metric == "" {
			continue
		}
		v, err := s.Metric(c.metric)
		if err != nil {
			return nil, err
		}
		if v != nil {
			o[c.name] = *v
		}
	}
	if n := len(m.late); n >= 100 { // five samples lie above p95
		slices.Sort(m.late)
		o["late_p95_s"] = m.late[(n*95+99)/100-1]
	}
	if m.admitted > 0 {
		o["open"], o["window"] = float64(m.open)/float64(m.admitted), float64(m.owned)/float64(m.admitted)
	}
	if m.ownedPrompt > 0 {
		o["window_hit_rate"] = float64(m.ownedHit) / float64(m.ownedPrompt)
	}
	if w := s.Table(); w != nil {
		if w.Turns > 0 {
			o["held"] = float64(w.HeldTurns) / float64(w.Turns)
		}
		if len(m.turns) > 0 && w.Length > 0 {
			duty, demand := m.occupancy(w.Start, w.End)
			o["duty"], o["demand"] = duty, demand/float64(s.Cluster.KVTokens*int64(s.Cluster.Replicas))
		}
	}
	return o, nil
}

func findColumn(name string) (column, bool) {
	i := slices.IndexFunc(columns, func(c column) bool { return c.name == name })
	if i < 0 {
		return column{}, false
	}
	return columns[i], true
}
