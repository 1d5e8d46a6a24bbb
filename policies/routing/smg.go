package routing

import "github.com/sluice-sim/sluice/policies"

// Reads the ledger's in-flight counts, with the triggers by KV usage samples and, where replicas send them and it may, KV
// events. Keeps a tree of the prompts that it sent, token by token, and how many turns each replica got. The least loaded is the one with the fewest turns in
// flight, then the fewest turns ever, then the lowest. Equal hits go to the fewest in flight, then to the smallest tree.
// Trees are cut when they grow too large, not every two minutes. Source: lightseekorg/smg, model_gateway/src/policies/cache_aware.rs; spec: policies 3.7.

// SMGCacheAware declares the cache-aware router of the SGLang model gateway, with the defaults of its command line.
func SMGCacheAware() policies.Declaration {
	return policies.Declaration{
		Name:      "smg-cache-aware",
		Doc:       "Takes the replica that was sent the longest prefix of the prompt if that is long enough, otherwise the least loaded; and the least loaded while loads are too far apart.",
		Source:    "lightseekorg/smg, cache_aware.rs; spec: policies 3.7",
		Needs:     policies.NeedsKVEvents | policies.NeedsSamples,
		NeedsWith: smgSignals,
		Missing: "Without KV events, or with index tree, it goes by what it sent where. With index events a replica that sends none is taken to hold what was sent there. " +
			"A replica whose KV usage is unknown neither makes usages too far apart nor too high.",
		Omits: "the tree is of tokens, and is cut when it grows too large instead of every two minutes.",
		Knobs: []policies.Knob{
			{Name: "cache_threshold", Kind: policies.FloatKnob, Default: policies.Value{Number: .3}, Min: 0, Max: 1, Unit: "fraction", Doc: "part of the prompt that must be exceeded for a match to count; not with events"},
			{Name: "balance_abs_threshold", Kind: policies.IntKnob, Default: policies.Value{Number: 64}, Min: 0, Max: 1e6, Unit: "turns", Doc: "loads are too far apart if largest - smallest exceeds this"},
			{Name: "balance_rel_threshold", Kind: policies.FloatKnob, Default: policies.Value{Number: 1.5}, Min: 0, Max: 1e6, Doc: "and the largest exceeds this multiple of the smallest"},
			{Name: "usage_overload_threshold", Kind: policies.FloatKnob, Default: policies.Value{Number: 1}, Min: 0, Max: 1, Unit: "fraction", Doc: "loads count as too far apart, too, if the KV usage of a replica exceeds this; 1 is never"},
			{Name: "usage_spread_threshold", Kind: policies.FloatKnob, Default: policies.Value{Number: 1}, Min: 0, Max: 1, Unit: "fraction", Doc: "and if the largest usage exceeds the smallest by more; 1 is never"},
			{Name: "max_tree_tokens", Kind: policies.IntKnob, Default: policies.Value{Number: 1 << 26}, Min: 1, Max: 1e12, Unit: "tokens", Doc: "tokens remembered for each replica; the least recently sent are forgotten first"},
			{Name: "index", Kind: policies.EnumKnob, Default: policies.Value{Text: "tree"}, Enum: []string{"tree", "events"}, Doc: "what says where a prefix is: what was sent, or KV events"},
		},
		NewRouter: func(_ policies.Env, p policies.Params) policies.Router {
			return &smg{
				threshold: p["cache_threshold"].Number, abs: int32(p["balance_abs_threshold"].Number), rel: p["balance_rel_threshold"].Number,
				overload: p["usage_overload_threshold"].Number, spread: p["usage_spread_threshold"].Number,
				resident: residency{events: smgEvents(p), sent: policies.NewApproxIndex(1, int64(p["max_tree_tokens"].Number), policies.Never)},
			}
		},
	}
}

// smgEvents says whether the knobs have KV events say where a prefix is.
func smgEvents(p policies.Params) bool { return p["index"].Text == "events" }

// smgSignals is what is read with the knobs p.
func smgSignals(p policies.Params) policies.Signals {
	needs := policies.Signals(0)
	if smgEvents(p) {
		needs |= policies.NeedsKVEvents
	}
	if p["usage_overload_threshold"].Number < 1 || p["usage_spread_threshold"].Number < 1 {
		needs |= policies.NeedsSamples
	}
	return needs
}

type smg struct {
	threshold float64
	abs       int32
	rel       float64
	overload  float64 // 1 for never
	spread    float64
	resident  residency
	processed []int64 // turns ever, by replica
}

func (m *smg) Observe(_ policies.Time, _ *policies.View, f *policies.Fact) { m.resident.observe(f) }

func (m *smg) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	to, why := m.choose(now, v, t)
	if to != policies.NoReplica {
		m.resident.sent.Insert(now, v, t.Prompt, to) // whatever the reason
		m.processed[to]++
	}
	return to, why
}

func (m *smg) Peek(now policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	to, _ := m.choose(now, v, t)
	return to
}

func (m *smg) choose(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	for len(m.processed) < v.Replicas() {
		m.processed = append(m.processed, 0)
	}
	up := v.Up()
	if len(up) == 0 {
		return policies.NoReplica, policies.NoReplicaUp
	}
	idle, busiest := up[0], v.InFlight(up[0])
	for _, r := range up[1:] {
		f := v.InFlight(r)
		busiest = max(busiest, f)
		if least := v.InFlight(idle); f < least || f == least && m.processed[r] < m.processed[idle] {
			idle = r
		}
	}
	if smgImbalanced(v.InFlight(idle), busiest, m.abs, m.rel) || m.usageImbalanced(v) {
		return idle, policies.Imbalanced
	}
	hits := m.resident.hits(now, v, t.Prompt)
	home := up[0]
	for _, r := range up[1:] {
		if hits[r] > hits[home] || hits[r] == hits[home] && m.lighter(v, r, home) {
			home = r
		}
	}
	if smgMatches(hits[home], t.Prompt.Tokens, m.threshold, m.resident.heard) {
		return home, policies.HomeHit
	}
	return idle, policies.LeastLoaded
}

// usageImbalanced says whether KV usages are too high or too far apart.
func (m *smg) usageImbalanced(v *policies.View) bool {
	if m.overload >= 1 && m.spread >= 1 {
		return false
	}
	least, most := 1.0, 0.0
	for _, r := range v.Up() {
		if s := v.Sample(r); s.Has&policies.HasUsage != 0 {
			least, most = min(least, s.Usage), max(most, s.Usage)
		}
	}
	return most > m.overload || most-least > m.spread
}

// lighter says whether a goes before b among equal hits.
func (m *smg) lighter(v *policies.View, a, b policies.ReplicaID) bool {
	if x, y := v.InFlight(a), v.InFlight(b); x != y {
		return x < y
	}
	return m.resident.sent.Tokens(a) < m.resident.sent.Tokens(b)
}

// smgImbalanced says whether loads are too far apart: by abs and, both, by rel. With nothing on the least loaded abs alone
// decides.
func smgImbalanced(least, most, abs int32, rel float64) bool {
	return most-least > abs && float64(most) > rel*float64(least)
}

// smgMatches says whether a hit of a prompt decides where it goes: any that KV events tell of, otherwise more than a
// threshold of what was sent.
func smgMatches(hit, prompt int32, threshold float64, events bool) bool {
	if events {
		return hit > 0
	}
	return float64(hit)/float64(prompt) > threshold
}

// ScoreTerms implements policies.Scored.
func (*smg) ScoreTerms() ([]string, bool) {
	return []string{"in_flight", "turns_ever", "tree_tokens"}, false
}

// Scores implements policies.Scored: the tokens of the prompt that are there. They decide only where the loads are close
// and the match is long enough; the reason of the route says so.
func (m *smg) Scores(now policies.Time, v *policies.View, t *policies.Turn, dst []policies.ReplicaScore) []policies.ReplicaScore {
	hits := m.resident.hits(now, v, t.Prompt)
	for _, r := range v.Up() {
		s := policies.ReplicaScore{Replica: r, Score: float64(hits[r])}
		s.Terms[0], s.Terms[2] = float64(v.InFlight(r)), float64(m.resident.sent.Tokens(r))
		if int(r) < len(m.processed) {
			s.Terms[1] = float64(m.processed[r])
		}
		dst = append(dst, s)
	}
	return dst
}
