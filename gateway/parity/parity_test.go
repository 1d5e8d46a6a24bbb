// Package parity holds the proof that a gateway decides as the simulator does: clients go through a gateway to fake engines,
// in scaled time; what the gateway's recorder wrote is run offline through the same policy and the same model of an engine;
// and every placement is compared.
//
// Placements can differ where two facts race: a turn ended just before another arrived in one world and just after it in
// the other. Such a difference is explained when what the router knew differs in both worlds, and only by facts that lie
// within the slack of the decision. Any other difference fails.
package parity

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/catalog"
)

var (
	full  = flag.Bool("parity", false, "the long comparison, of make parity")
	speed = flag.Float64("parity-speed", 4, "how many times faster than in reality the fake engines are")
)

// The bands within which the two worlds must agree. Real time in which a machine is busy with other things is model time
// that the simulator does not have.
const (
	slackRealNS   = 60e6 // between two facts that race, in real time
	latencyBand   = 0.25 // of the mean time of a turn
	hitRateBand   = 0.02 // of the share of prompt tokens found
	differentBand = 0.2  // of the decisions may race
)

func TestParity(t *testing.T) {
	if raced {
		t.Skip("real time and model time cannot be compared under the race detector")
	}
	n := 12
	if *full {
		n = 60
	}
	for _, router := range []string{"sticky", "least-requests", "lmetric"} {
		t.Run(router, func(t *testing.T) {
			w := newWorld(t, *speed, n)
			l, there, c := w.run(t, router)
			for c.latency > 1+latencyBand/2 && w.speed > *speed/8 {
				t.Logf("at speed %v a turn takes %.3f times as long as offline: the machine is busy with other things; half as fast again", w.speed, c.latency)
				w.speed /= 2
				l, there, c = w.run(t, router)
			}
			t.Log(c)
			for _, d := range c.unexplained {
				t.Error("unexplained: " + d)
			}
			if share := float64(len(c.explained)-c.followed) / float64(c.compared); share > differentBand {
				t.Errorf("%.0f %% of the decisions raced, at most %.0f %% may", 100*share, 100*differentBand)
			}
			if math.Abs(c.latency-1) > latencyBand {
				t.Errorf("a turn takes %.3f times as long as offline, at most %v may be between", c.latency, latencyBand)
			}
			if math.Abs(c.hitsLive-c.hitsOffline) > hitRateBand {
				t.Errorf("%.4f of the prompts' tokens are found, offline %.4f; at most %v may be between", c.hitsLive, c.hitsOffline, hitRateBand)
			}
			if other := "round-robin"; router == "least-requests" && len(w.compare(t, router, there, w.simulate(t, other, l, there.turns)).unexplained) == 0 {
				t.Errorf("offline, %s decides like %s; the comparison sees nothing", other, router)
			}
		})
	}
}

// run goes through both worlds.
func (w *world) run(t *testing.T, router string) (*live, *history, *comparison) {
	l := w.runLive(t, router)
	there := w.relive(t, router, l.log)
	return l, there, w.compare(t, router, there, w.simulate(t, router, l, there.turns))
}

// remembers are the routers that keep in mind where they sent a session. They cannot be led: after a race they go on each in
// its own way.
var remembers = map[string]bool{"sticky": true}

// comparison is what came of it.
type comparison struct {
	router                 string
	compared               int
	explained, unexplained []string
	followed               int     // of explained, those that only go on as the turn before did
	grounds                int     // decisions whose grounds differ, with the same outcome or not
	latency                float64 // mean time of a turn against offline
	hitsLive, hitsOffline  float64 // share of prompt tokens found
}

func (c *comparison) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d decisions compared, %d differ (%d where facts race, %d unexplained); grounds differ in %d; a turn takes %.3f times as long as offline; hit rate %.4f, offline %.4f",
		c.router, c.compared, len(c.explained)+len(c.unexplained), len(c.explained), len(c.unexplained), c.grounds, c.latency, c.hitsLive, c.hitsOffline)
	for _, d := range c.explained {
		b.WriteString("\n  race: " + d)
	}
	return b.String()
}

func (w *world) compare(t *testing.T, router string, live, offline *history) *comparison {
	t.Helper()
	d, err := catalog.FindRouter(router)
	check(t, err)
	needs := d.Signals(d.Resolve(nil))
	x := &comparer{live: live, offline: offline, slack: int64(slackRealNS * w.speed), scrape: int64(scrapeRealS * w.speed * 1e9),
		hits: needs&policies.NeedsKVEvents != 0, samples: needs&policies.NeedsSamples != 0}
	c := &comparison{router: router}
	byTurn := map[key]*decision{}
	for i := range offline.decisions {
		byTurn[offline.decisions[i].turn] = &offline.decisions[i]
	}
	parted := map[policies.SessionID][2]policies.ReplicaID{} // where a race sent a session, and where offline
	for i := range live.decisions {
		a := &live.decisions[i]
		b := byTurn[a.turn]
		if b == nil {
			t.Fatalf("turn %v was not decided offline", a.turn)
		}
		if p, q := live.turns[a.turn], offline.turns[a.turn]; p.prompt != q.prompt || p.output != q.output {
			t.Fatalf("turn %v has %d and %d tokens, in the recording %d and %d", a.turn, p.prompt, p.output, q.prompt, q.output)
		}
		c.compared++
		racing, other := x.grounds(a, b)
		if len(racing)+len(other) > 0 {
			c.grounds++
		}
		if a.said == b.said {
			continue
		}
		line := fmt.Sprintf("session %d, turn %d at %.3f s: to %d, offline to %d", a.turn.session, a.turn.number, float64(a.at)/1e9, a.said, b.said)
		apart := [2]policies.ReplicaID{a.said, b.said}
		switch before, ok := parted[a.turn.session]; {
		case len(racing) > 0 && len(other) == 0:
			c.explained = append(c.explained, line+"; "+strings.Join(racing, "; "))
			parted[a.turn.session] = apart
		case ok && before == apart && remembers[router]:
			c.explained = append(c.explained, line+"; as the turn before")
			c.followed++
		default:
			c.unexplained = append(c.unexplained, line+"; racing "+strings.Join(racing, "; ")+"; not racing "+strings.Join(other, "; "))
		}
	}
	if len(offline.decisions) != len(live.decisions) {
		t.Errorf("%d decisions, offline %d", len(live.decisions), len(offline.decisions))
	}
	c.latency = live.meanNS() / offline.meanNS()
	c.hitsLive, c.hitsOffline = live.hitRate(), offline.hitRate()
	return c
}

func (h *history) meanNS() float64 {
	sum := 0.0
	for _, m := range h.turns {
		sum += float64(m.finished - m.arrived)
	}
	return sum / float64(len(h.turns))
}

func (h *history) hitRate() float64 {
	hit, prompt := 0.0, 0.0
	for _, m := range h.turns {
		hit += float64(m.hit)
		prompt += float64(m.prompt)
	}
	return hit / prompt
}

type comparer struct {
	live, offline *history
	slack         int64
	scrape        int64 // between two samples
	hits          bool  // the router goes by what is resident
	samples       bool  // and by samples
}

// grounds says in what the knowledge of two decisions about the same turn differs: by facts that race with the decision,
// and otherwise.
func (x *comparer) grounds(a, b *decision) (racing, other []string) {
	add := func(what string, offsets ...int64) {
		slices.Sort(offsets)
		line := fmt.Sprintf("%s (%+.0f ms)", what, float64(offsets[0])/1e6)
		if offsets[0] <= x.slack {
			racing = append(racing, line)
		} else {
			other = append(other, line)
		}
	}
	for r := range policies.ReplicaID(len(a.leases)) {
		turns := map[key]bool{}
		for k := range a.leases[r] {
			turns[k] = true
		}
		for k := range b.leases[r] {
			turns[k] = true
		}
		for _, k := range sorted(turns) {
			decodesA, inA := a.leases[r][k]
			decodesB, inB := b.leases[r][k]
			name := fmt.Sprintf("%d/%d on %d", k.session, k.number, r)
			switch p, q := x.live.turns[k], x.offline.turns[k]; {
			case inA != inB:
				add(name+" runs in one only", x.near(p.finished, a.at), x.near(q.finished, b.at), x.near(p.arrived, a.at), x.near(q.arrived, b.at))
			case decodesA != decodesB:
				add(name+" decodes in one only", x.near(p.first, a.at), x.near(q.first, b.at))
			}
		}
		if x.hits && a.hits[r] != b.hits[r] {
			add(fmt.Sprintf("%d tokens resident on %d, offline %d", a.hits[r], r, b.hits[r]), x.change(x.live, r, a.at), x.change(x.offline, r, b.at))
		}
		if x.samples && a.batch[r] != b.batch[r] && len(turns) == len(a.leases[r]) && len(turns) == len(b.leases[r]) {
			add(fmt.Sprintf("a batch of %d sampled on %d, offline %d", a.batch[r], r, b.batch[r]), max(0, x.change(x.live, r, a.at)-x.scrape), max(0, x.change(x.offline, r, b.at)-x.scrape))
		}
	}
	return racing, other
}

// near is how far a moment is from a decision.
func (x *comparer) near(moment, at int64) int64 {
	if moment < 0 {
		return math.MaxInt64
	}
	return max(moment-at, at-moment)
}

// change is how far a decision is from the nearest moment at which what r holds and runs changed: a turn came there, had its
// prompt computed meanwhile, got its first token or ended.
func (x *comparer) change(h *history, r policies.ReplicaID, at int64) int64 {
	nearest := int64(math.MaxInt64)
	for _, m := range h.turns {
		if m.replica != r {
			continue
		}
		if m.arrived <= at && at <= m.first {
			return 0
		}
		nearest = min(nearest, x.near(m.arrived, at), x.near(m.first, at), x.near(m.finished, at))
	}
	return nearest
}

func sorted(turns map[key]bool) []key {
	var list []key
	for k := range turns {
		list = append(list, k)
	}
	slices.SortFunc(list, func(a, b key) int {
		if a.session != b.session {
			return int(a.session) - int(b.session)
		}
		return int(a.number) - int(b.number)
	})
	return list
}
