package gateway

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"

	"github.com/sluice-sim/sluice/gateway/kvevents"
	"github.com/sluice-sim/sluice/gateway/vllmmetrics"
	"github.com/sluice-sim/sluice/policies"
)

// condition is what keeps a replica from taking turns. A replica without any takes turns.
type condition uint8

const (
	unwell    condition = 1 << iota // its health check failed, or nobody listens
	suspected                       // a request got no answer and its health was not checked since
	asleep                          // it says that it sleeps
	wedged                          // turns run on it that do not move
	drained                         // an operator drains it
	late                            // its health check is not answered in time, though it can be connected to
)

// names of conditions, for people.
func (c condition) names() []string {
	names := []string{}
	for i, n := range []string{"unwell", "suspected", "asleep", "wedged", "drained", "late"} {
		if c>>i&1 != 0 {
			names = append(names, n)
		}
	}
	return names
}

// replica is one engine. What is not atomic is read and written inside Do.
type replica struct {
	id     policies.ReplicaID
	cfg    *ReplicaConfig
	url    *url.URL
	key    string // bearer token, "" to pass the client's on
	check  chan struct{}
	scrape chan chan scraped // asks for a scrape at once

	condition condition
	state     policies.ReplicaState // as the core was told
	fails     int64                 // checks in a row
	lates     int64
	models    []string
	sample    policies.Sample     // the last one, as the core was told
	stale     bool                // the core was told that nothing is known, or that the replica is full
	counters  vllmmetrics.Metrics // the last value of each

	scrapes, scrapeErrors, checks, checkErrors, kvEvents, kvResets atomic.Int64

	kv atomic.Pointer[kvevents.Subscriber] // nil while none follows
}

func newReplica(id policies.ReplicaID, c *ReplicaConfig) (*replica, error) {
	u, err := url.Parse(strings.TrimSuffix(c.URL, "/"))
	if err != nil {
		return nil, err
	}
	r := &replica{id: id, cfg: c, url: u, condition: unwell, check: make(chan struct{}, 1), scrape: make(chan chan scraped, 1024)}
	if c.APIKeyEnv != "" {
		if r.key = os.Getenv(c.APIKeyEnv); r.key == "" {
			return nil, fmt.Errorf("replica %s: the environment variable %s, which api_key_env names, is empty", c.Name, c.APIKeyEnv)
		}
	}
	return r, nil
}

// address directs a request to the replica.
func (r *replica) address(req *http.Request) {
	req.URL.Scheme, req.URL.Host = r.url.Scheme, r.url.Host
	req.URL.Path = r.url.Path + req.URL.Path
	req.URL.RawPath = ""
	req.Host = r.url.Host
	if r.key != "" {
		req.Header.Set("Authorization", "Bearer "+r.key)
		req.Header.Del("X-Api-Key")
	}
}

// settle tells the core what the replica's condition comes to.
func (g *Gateway) settle(b *Batch, r *replica) {
	state := policies.Up
	switch {
	case r.condition&unwell != 0:
		state = policies.Down
	case r.condition != 0:
		state = policies.Draining
	}
	if state == r.state {
		return
	}
	g.log.Info("replica", "name", r.cfg.Name, "state", stateName(state), "why", r.condition.names())
	was := r.state
	switch r.state = state; state {
	case policies.Up:
		b.Up(r.id)
	case policies.Draining:
		if was == policies.Down { // a replica that is down cannot drain; it stays so until it is well
			r.state = policies.Down
			return
		}
		b.Draining(r.id)
	case policies.Down:
		b.Down(r.id)
		r.sample, r.stale = policies.Sample{}, false
		b.addFacts(g.table.Clear(r.id, nil))
	}
}

func stateName(s policies.ReplicaState) string {
	return [...]string{"down", "up", "draining"}[s]
}

// impose and lift change one condition.
func (g *Gateway) impose(b *Batch, r *replica, c condition) {
	r.condition |= c
	g.settle(b, r)
}

func (g *Gateway) lift(b *Batch, r *replica, c condition) {
	r.condition &^= c
	g.settle(b, r)
}

func (g *Gateway) down(b *Batch, id policies.ReplicaID) {
	g.replicas[id].fails = g.cfg.Health.FailAfter
	g.impose(b, g.replicas[id], unwell)
}

func (g *Gateway) suspect(b *Batch, id policies.ReplicaID) { g.impose(b, g.replicas[id], suspected) }

// checkSoon has a replica's health checked at once.
func (g *Gateway) checkSoon(id policies.ReplicaID) {
	select {
	case g.replicas[id].check <- struct{}{}:
	default:
	}
}

// restarted tells the core that the replica's process is a new one.
func (g *Gateway) restarted(b *Batch, r *replica) {
	g.log.Warn("replica restarted", "name", r.cfg.Name)
	b.Restarted(r.id)
	b.addFacts(g.table.Clear(r.id, nil))
	g.metrics.restarts.Inc()
}
