package routing

import "github.com/sluice-sim/sluice/policies"

// Reads nothing but the ends of turns. Keeps a tree of the prompts that it sent, token by token, and for each replica the
// work that it sent there in a window: prefill of what was not there, and decodes of the mean length. Ties go to the lowest
// replica. What is simplified: prefill costs the same for each token; what a prompt evicts is priced at the share of
// prompt tokens found on the replica in the window instead of by which prompts it evicts; prefixes are not replicated, and
// work that has been placed does not move.
// Source: arXiv 2407.00023 and WukLab/preble; spec: policies 3.12.

// Preble declares the router E2: exploit what is there, or explore.
func Preble() policies.Declaration {
	return policies.Declaration{
		Name: "preble",
		Doc: "Exploits: if more of the prompt was sent to a replica than was not, it goes there. Otherwise it explores: the smallest sum of work in the window, of what would be evicted and of this prompt's prefill. " +
			"When the most loaded has too much more than the least, what is meant for it goes to the least.",
		Source:  "arXiv 2407.00023, WukLab/preble; spec: policies 3.12",
		Missing: "It reads no signal. Without a prefill rate a token takes 0.1 ms; without a KV capacity a replica holds 198,516 tokens; until a turn has finished a turn has 45 output tokens.",
		Omits:   "prefill costs the same for each token, an eviction is priced by the share of prompt tokens found in the window, prefixes are not replicated, and work that has been placed does not move.",
		Knobs: []policies.Knob{
			{Name: "window_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 180}, Min: .001, Max: 1e6, Unit: "s", Doc: "how long work counts after it was sent"},
			{Name: "imbalance", Kind: policies.FloatKnob, Default: policies.Value{Number: 1.5}, Min: 1, Max: 1e9, Doc: "multiple of the least work in the window beyond which the most is too much; a huge one never is"},
			{Name: "warm_up_turns", Kind: policies.IntKnob, Default: policies.Value{Number: 50}, Min: 0, Max: 1e6, Unit: "turns", Doc: "turns for each replica before which nothing is too much"},
			{Name: "prefill_per_s", Kind: policies.FloatKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1e9, Unit: "tokens/s", Doc: "prefill rate; 0 takes the replica's own"},
			{Name: "tpot_s", Kind: policies.FloatKnob, Default: policies.Value{Number: .15}, Min: 0, Max: 60, Unit: "s", Doc: "time that an output token is taken to cost"},
			{Name: "kv_tokens", Kind: policies.IntKnob, Default: policies.Value{Number: 0}, Min: 0, Max: 1e12, Unit: "tokens", Doc: "tokens that a replica holds; 0 takes the replica's own"},
		},
		NewRouter: newPreble,
	}
}

type preble struct {
	window    policies.Time
	imbalance float64
	warmUp    int64
	rate      float64 // tokens per second
	tpot      float64 // s
	capacity  int64   // tokens
	resident  residency

	turns   int64
	outputs int64 // output tokens of finished turns
	ends    int64

	sent  []sentWork // of the window, from first on
	first int
	sums  []windowSums // by replica
}

// sentWork is a turn in the window.
type sentWork struct {
	at      policies.Time
	replica policies.ReplicaID
	windowSums
}

// windowSums is what turns in the window add up to.
type windowSums struct {
	work        policies.Time
	prompt, hit int64 // tokens
}

func newPreble(e policies.Env, p policies.Params) policies.Router {
	m := &preble{
		window: policies.Time(p["window_s"].Number * float64(policies.Second)), imbalance: p["imbalance"].Number, warmUp: int64(p["warm_up_turns"].Number),
		rate: firstPositive(p["prefill_per_s"].Number, e.Capability.PrefillTokensPerSec, 10000), tpot: p["tpot_s"].Number,
		capacity: int64(firstPositive(p["kv_tokens"].Number, float64(e.Capability.KVTokens), 198516)),
	}
	m.resident.sent = policies.NewApproxIndex(1, m.capacity, policies.Never)
	return m
}

func (m *preble) Observe(_ policies.Time, _ *policies.View, f *policies.Fact) {
	m.resident.observe(f)
	if f.Kind == policies.Finished {
		m.outputs, m.ends = m.outputs+int64(f.OutputTokens), m.ends+1
	}
}

func (m *preble) Route(now policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	to, why, hit := m.choose(now, v, t)
	if to == policies.NoReplica {
		return to, why
	}
	m.resident.sent.Insert(now, v, t.Prompt, to)
	m.turns++
	sums := windowSums{m.prefill(int64(t.Prompt.Tokens-hit)) + m.decode(), int64(t.Prompt.Tokens), int64(hit)}
	m.sent = append(m.sent, sentWork{now, to, sums})
	m.sums[to].add(sums, 1)
	return to, why
}

func (m *preble) Peek(now policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	to, _, _ := m.choose(now, v, t)
	return to
}

// choose also says how much of the prompt was sent to the replica before.
func (m *preble) choose(now policies.Time, v *policies.View, t *policies.Turn) (to policies.ReplicaID, why policies.Reason, hit int32) {
	for len(m.sums) < v.Replicas() {
		m.sums = append(m.sums, windowSums{})
	}
	m.leaveWindow(now)
	up := v.Up()
	if len(up) == 0 {
		return policies.NoReplica, policies.NoReplicaUp, 0
	}
	hits := m.resident.hits(now, v, t.Prompt)
	home, light, heavy := up[0], up[0], up[0]
	for _, r := range up[1:] {
		if hits[r] > hits[home] || hits[r] == hits[home] && m.sums[r].work < m.sums[home].work {
			home = r
		}
		if m.sums[r].work < m.sums[light].work {
			light = r
		}
		if m.sums[r].work > m.sums[heavy].work {
			heavy = r
		}
	}
	to, why = home, policies.HomeHit
	if !exploits(hits[home], t.Prompt.Tokens) {
		to, why = m.explore(up, hits, t.Prompt.Tokens), policies.BestScore
	}
	if to == heavy && m.turns >= m.warmUp*int64(len(up)) && float64(m.sums[heavy].work) > m.imbalance*float64(m.sums[light].work) {
		to, why = light, policies.Imbalanced
	}
	return to, why, hits[to]
}

// exploits says whether more of a prompt matches than does not.
func exploits(hit, prompt int32) bool { return hit > prompt-hit }

// explore is the smallest sum of work in the window, eviction and prefill.
func (m *preble) explore(up []policies.ReplicaID, hits []int32, prompt int32) policies.ReplicaID {
	best, least := policies.NoReplica, policies.Time(0)
	for _, r := range up {
		cost := m.cost(r, prompt-hits[r])
		if best == policies.NoReplica || cost < least {
			best, least = r, cost
		}
	}
	return best
}

// cost is work in the window, eviction and the prefill of n new tokens on r.
func (m *preble) cost(r policies.ReplicaID, n int32) policies.Time {
	s := &m.sums[r]
	evicted := max(0, m.resident.sent.Tokens(r)+int64(n)-m.capacity)
	return s.work + evictionCost(m.prefill(evicted), s.hit, s.prompt) + m.prefill(int64(n))
}

// evictionCost is what computing again what is evicted will take, if a token of it is asked for as often as tokens were
// found before: hit of prompt.
func evictionCost(again policies.Time, hit, prompt int64) policies.Time {
	if prompt == 0 {
		return 0
	}
	return policies.Time(float64(again) * (float64(hit) / float64(prompt)))
}

func (m *preble) prefill(tokens int64) policies.Time {
	return policies.Time(float64(tokens) / m.rate * float64(policies.Second))
}

// decode is what a turn's decode is taken to cost.
func (m *preble) decode() policies.Time {
	mean := 45.0
	if m.ends > 0 {
		mean = float64(m.outputs) / float64(m.ends)
	}
	return policies.Time(mean * m.tpot * float64(policies.Second))
}

// leaveWindow takes out what was sent too long ago.
func (m *preble) leaveWindow(now policies.Time) {
	for m.first < len(m.sent) && now-m.sent[m.first].at >= m.window {
		w := &m.sent[m.first]
		m.sums[w.replica].add(w.windowSums, -1)
		m.first++
	}
	if m.first > len(m.sent)/2 {
		m.sent = m.sent[:copy(m.sent, m.sent[m.first:])]
		m.first = 0
	}
}

func (s *windowSums) add(w windowSums, by int64) {
	s.work += w.work * policies.Time(by)
	s.prompt += w.prompt * by
	s.hit += w.hit * by
}

// ScoreTerms implements policies.Scored.
func (*preble) ScoreTerms() ([]string, bool) {
	return []string{"hit_tokens", "window_work_s", "held_tokens"}, true
}

// Scores implements policies.Scored: the cost of exploring, in seconds. Where the turn exploits, its hits decide.
func (m *preble) Scores(now policies.Time, v *policies.View, t *policies.Turn, dst []policies.ReplicaScore) []policies.ReplicaScore {
	m.choose(now, v, t)
	hits := m.resident.hits(now, v, t.Prompt)
	for _, r := range v.Up() {
		s := policies.ReplicaScore{Replica: r, Score: float64(m.cost(r, t.Prompt.Tokens-hits[r])) / float64(policies.Second)}
		s.Terms[0], s.Terms[1], s.Terms[2] = float64(hits[r]), float64(m.sums[r].work)/float64(policies.Second), float64(m.resident.sent.Tokens(r))
		dst = append(dst, s)
	}
	return dst
}
