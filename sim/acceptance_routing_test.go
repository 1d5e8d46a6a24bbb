package sim

import (
	"slices"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/results"
	"github.com/sluice-sim/sluice/traces"
)

// route makes router the router of c, with knobs.
func route(t testing.TB, c *Config, router string, knobs policies.Params) *Config {
	t.Helper()
	c.Router = policy(t, "router", router)
	if err := c.Router.Check(knobs); err != nil {
		t.Fatal(err)
	}
	c.RouterParams = c.Router.Resolve(knobs)
	return c
}

// perReplica counts the turns of each replica.
func perReplica(out *rows, replicas int) []int {
	n := make([]int, replicas)
	for _, x := range out.turns {
		n[x.Replica]++
	}
	return n
}

// TestZeroLoad is acceptance case AC06, from issue 103 of Infera: two workers, one session after another, each turn after
// the one before, 448 turns in all. Whoever counts what is in flight finds nothing each time and sends all of it to the
// first; tokens that fade are a memory, which mixes; taking turns halves.
func TestZeroLoad(t *testing.T) {
	var sessions [][]call
	for range 64 {
		var calls []call
		for i := range int32(7) {
			calls = append(calls, call{prompt: 2000 + 700*i, output: 100, gapS: 1})
		}
		sessions = append(sessions, calls)
	}
	count := func(router string, knobs policies.Params) []int {
		c := route(t, world(t, chain(sessions...), "none", router), router, knobs)
		c.Replicas, c.Arrivals = 2, Arrivals{Process: Concurrent, Sessions: 1}
		out, _ := simulate(t, c)
		return perReplica(out, 2)
	}
	for _, c := range []struct {
		router string
		knobs  policies.Params
		want   []int
	}{
		{"least-pending-tokens", nil, []int{448, 0}},
		{"least-requests", nil, []int{448, 0}},
		{"round-robin", nil, []int{224, 224}},
	} {
		if got := count(c.router, c.knobs); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.router, got, c.want)
		}
	}
	if got := count("least-pending-tokens", policies.Params{"half_life_s": {Number: 10}}); got[0]+got[1] != 448 || min(got[0], got[1]) < 100 {
		t.Errorf("tokens that fade: %v, want a mixture", got)
	}
}

// TestGroupsOfSamples is acceptance case AC08, from issue 3307 of tpu-inference and 1726 of llm-d-router: four ranks, two
// groups of eight samples of a prompt of 3,584 tokens, all at once. Where any hit wins, each group stays on the rank that
// its first sample went to, and two ranks have nothing to do. By load all four work. Affinity with a bound uses all four
// too, and each computes a group's prompt once, however many samples it gets.
func TestGroupsOfSamples(t *testing.T) {
	const ranks, groups, samples, tokens = 4, 2, 8, 3584
	tr := &traces.Trace{Name: "groups", Tree: &prefix.Tree{}, Models: []string{"m"}}
	for g := range int32(groups) {
		root := tr.Tree.Root()
		for range samples {
			s := traces.Session{Name: "s", StartNS: traces.Unknown, Group: g, Threads: 1}
			s.Turns = []traces.Turn{{Number: 1, Prompt: prefix.Prefix{Stream: tr.Tree.Fork(prefix.Prefix{Stream: root, Tokens: tokens}), Tokens: tokens}, OutputTokens: 500, DurationNS: traces.Unknown}}
			tr.Sessions = append(tr.Sessions, s)
		}
	}
	for _, c := range []struct {
		router string
		knobs  policies.Params
		used   int
	}{
		{"smg-cache-aware", policies.Params{"cache_threshold": {Number: 0}}, 2},
		{"least-requests", nil, 4},
		{"chwbl", nil, 4},
	} {
		x := route(t, world(t, tr, "none", c.router), c.router, c.knobs)
		x.Replicas = ranks
		out, _ := simulate(t, x)
		used := 0
		for _, n := range perReplica(out, ranks) {
			if n > 0 {
				used++
			}
		}
		if used != c.used {
			t.Errorf("%s uses %d ranks, want %d", c.router, used, c.used)
		}
		var got, computed [ranks][groups]int32
		for _, turn := range out.turns {
			got[turn.Replica][turn.Group]++
			computed[turn.Replica][turn.Group] += turn.ComputedTokens
		}
		for r := range ranks {
			for g := range groups {
				n := got[r][g]
				if want := tokens + 16*(n-1); n > 0 && computed[r][g] != want { // a sample that finds all computes the last block
					t.Errorf("%s: rank %d computes %d tokens for %d samples of group %d, want %d", c.router, r, computed[r][g], n, g, want)
				}
			}
		}
	}
}

// spiral is what one router makes of the sessions of AC02.
type spiral struct {
	sessions    []int     // by replica
	hit         []float64 // share of prompt tokens found, by replica
	idle        float64   // share of replica time
	makespanS   float64
	preemptions int64
}

// TestSpiral is acceptance case AC02, from issue 3255 of prime-rl: four replicas and 64 sessions that grow to 60,000 to
// 100,000 tokens, which together fill 0.95 of the cluster's KV. Hashing gives some replica more sessions than it can hold;
// each of its turns evicts what the next one needs, so it computes everything again while others have nothing to do. By how
// much is luck, so most of eight seeds must show it. Placing sessions by load gives each replica what fits.
func TestSpiral(t *testing.T) {
	const replicas, count, fill, seeds = 4, 64, 0.95, 8
	var sessions [][]call
	total := int32(0)
	for i := range int32(count) {
		limit := 60_000 + 40_000*(i*37%count)/count
		var calls []call
		for prompt := limit / 6; prompt < limit; prompt += limit / 6 { // files read
			calls = append(calls, call{prompt: prompt, output: 100, gapS: 2})
		}
		for prompt := limit - 30*300; prompt < limit; prompt += 300 { // steps
			calls = append(calls, call{prompt: prompt, output: 100, gapS: 2})
		}
		total += limit + 100
		sessions = append(sessions, calls)
	}
	tr := chain(sessions...)
	run := func(router string, seed uint64, knobs policies.Params) spiral {
		c := route(t, world(t, tr, "none", router), router, knobs)
		c.Replicas, c.Check, c.Seed = replicas, false, seed
		c.KVBlocks = int32(float64(total) / fill / replicas / 16)
		c.Capability.KVTokens = int64(c.KVBlocks) * 16
		out, totals := simulate(t, c)
		return spiralOf(out, totals, replicas)
	}
	sticky := run("sticky-least-loaded", 1, nil)
	t.Logf("sticky, least loaded: %+v", sticky)
	t.Logf("cache aware: %+v", run("smg-cache-aware", 1, nil))
	spirals, slow := 0, 0
	for seed := range uint64(seeds) {
		hash := run("chwbl", seed, policies.Params{"key": {Text: "thread"}, "load_factor": {Number: 1e9}})
		t.Logf("consistent hash, seed %d: %+v", seed, hash)
		if slices.Min(hash.hit) < .25 && slices.Max(hash.hit) > .85 && hash.idle > .3 {
			spirals++
		}
		if hash.makespanS >= 1.25*sticky.makespanS {
			slow++
		}
	}
	if 2*spirals <= seeds {
		t.Errorf("%d of %d seeds have a replica below 0.25 and one above 0.85 of hits and over 0.3 of idle time, expected most", spirals, seeds)
	}
	if 2*slow <= seeds {
		t.Errorf("with %d of %d seeds hashing takes at least 1.25 times as long as sticky, least loaded; expected most", slow, seeds)
	}
	if worst := slices.Min(sticky.hit); worst <= .85 {
		t.Errorf("sticky, least loaded: hits %.2f, expected over 0.85 everywhere", sticky.hit)
	}
}

func spiralOf(out *rows, totals *results.Totals, replicas int) spiral {
	s := spiral{sessions: make([]int, replicas), hit: make([]float64, replicas), makespanS: float64(totals.EndPS) / 1e12, preemptions: totals.Preemptions}
	prompt, hit := make([]float64, replicas), make([]float64, replicas)
	for _, x := range out.turns {
		prompt[x.Replica] += float64(x.PromptTokens)
		hit[x.Replica] += float64(x.HitGPU)
		if x.Number == 1 {
			s.sessions[x.Replica]++
		}
	}
	busy := 0.0
	for r := range replicas {
		s.hit[r] = hit[r] / prompt[r]
		busy += float64(totals.BusyPS[r])
	}
	s.idle = 1 - busy/float64(totals.EndPS)/float64(replicas)
	return s
}

// staleness is what a burst does to one way of seeing the load.
type staleness struct {
	ttftP90S float64
	spread   float64 // mean over time of the most waiting on a replica less the fewest
}

// TestBurstAndStaleness is acceptance case AC13, from issues 298 and 1598 of llm-d-router and 177 of the vLLM router: eight
// replicas, 800 clients that send 1,000 tokens and get 1,000, again and again. A router that sees the load only as of the
// last scrape sends everything that comes in between to one replica: the longer between scrapes, the longer the queue
// there. The router's own count of what is in flight beats every scrape. The opening burst is left out: nobody knows
// anything then, and it falls on everybody alike.
func TestBurstAndStaleness(t *testing.T) {
	sessions := make([][]call, 4000)
	for i := range sessions {
		// outputs of 1,000 on average, so that the clients do not stay in step
		sessions[i] = []call{{prompt: 1000, output: int32(500 + i*367%1000)}}
	}
	tr := chain(sessions...)
	run := func(router string, scrapePS int64, knobs policies.Params) staleness {
		c := route(t, world(t, tr, "none", router), router, knobs)
		c.Replicas, c.Check, c.Signals.ScrapePS = 8, false, scrapePS
		c.Engine.MaxNumSeqs = 128
		c.Arrivals = Arrivals{Process: Concurrent, Sessions: 800}
		out, _ := simulate(t, c)
		return stalenessOf(out, 8)
	}
	load := policies.Params{"prefix_cache_weight": {Number: 0}, "kv_cache_utilization_weight": {Number: 0}, "queue_weight": {Number: 1}, "running_requests_weight": {Number: 1}}
	local := run("least-requests", 1e12, nil)
	t.Logf("ledger: %+v", local)
	last := staleness{}
	for _, scrape := range []float64{.05, 1, 5, 15} {
		x := run("llm-d", int64(scrape*1e12), load)
		t.Logf("scraped every %v s: %+v", scrape, x)
		if x.ttftP90S <= last.ttftP90S || x.spread <= last.spread {
			t.Errorf("scraped every %v s: %+v, expected both to be more than %+v", scrape, x, last)
		}
		if local.ttftP90S >= x.ttftP90S || local.spread >= x.spread {
			t.Errorf("scraped every %v s: %+v, expected the ledger's %+v to be better", scrape, x, local)
		}
		last = x
	}
}

func stalenessOf(out *rows, replicas int) staleness {
	var ttft []float64
	for _, x := range out.turns {
		if x.ArrivalPS > 0 {
			ttft = append(ttft, float64(x.FirstTokenPS-x.ArrivalPS)/1e12)
		}
	}
	slices.Sort(ttft)
	s := staleness{ttftP90S: ttft[len(ttft)*9/10]}
	waiting := map[int64][]int32{}
	for _, x := range out.samples {
		waiting[x.EndPS] = append(waiting[x.EndPS], x.Waiting)
	}
	moments := 0
	for _, w := range waiting {
		if len(w) == replicas {
			s.spread += float64(slices.Max(w) - slices.Min(w))
			moments++
		}
	}
	s.spread /= float64(max(moments, 1))
	return s
}

// TestEveryRouterServesTheSameTurns runs every router of the catalog on one cluster and one workload, with all invariants
// checked: each finishes every turn, in the same tokens, and finds no more than an infinite cache would.
func TestEveryRouterServesTheSameTurns(t *testing.T) {
	tr := generated(t, "bailian-agentic", map[string]float64{"sessions": 60, "output_cap": 2000})
	turns, prompt := int64(0), int64(0)
	for i := range tr.Sessions {
		for j := range tr.Sessions[i].Turns {
			turns, prompt = turns+1, prompt+int64(tr.Sessions[i].Turns[j].Prompt.Tokens)
		}
	}
	for _, d := range catalog.Routers() {
		c := world(t, tr, "none", d.Name)
		c.Replicas, c.Arrivals, c.KVBlocks = 4, Arrivals{Process: Poisson, RatePerS: 2}, 1<<14
		out, totals := simulate(t, c)
		got, hit, ceiling := int64(0), int64(0), int64(0)
		finished := int64(0)
		for _, x := range out.turns {
			if x.Final && x.Outcome == results.Finished {
				finished++
			}
			got, hit, ceiling = got+int64(x.PromptTokens), hit+int64(x.HitGPU), ceiling+int64(x.CeilingTokens)
		}
		t.Logf("%-20s hits %.3f of prompt tokens, ceiling %.3f, makespan %.1f s", d.Name, float64(hit)/float64(got), float64(ceiling)/float64(got), float64(totals.EndPS)/1e12)
		if finished != turns || got != prompt || hit > ceiling {
			t.Errorf("%s: %d of %d turns finished, %d of %d prompt tokens, hits %d of at most %d", d.Name, finished, turns, got, prompt, hit, ceiling)
		}
	}
}
