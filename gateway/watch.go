package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/sluice-sim/sluice/gateway/vllmmetrics"
	"github.com/sluice-sim/sluice/policies"
)

// maxControlBytes bounds what is read of an engine's answer to the gateway's own questions.
const maxControlBytes = 8 << 20

// ask sends a question of the gateway's own to an engine.
func (g *Gateway) ask(ctx context.Context, r *replica, timeout time.Duration, method, path string, body []byte) ([]byte, int, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://replica"+path, bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	r.address(req)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := g.control.RoundTrip(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxControlBytes))
	return data, resp.StatusCode, err
}

// watchHealth checks a replica's health at every period, and when it is asked to.
func (g *Gateway) watchHealth(ctx context.Context, r *replica) {
	tick := time.NewTicker(seconds(g.cfg.Health.PeriodS))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-r.check:
		}
		g.checkHealth(ctx, r)
	}
}

func (g *Gateway) checkHealth(ctx context.Context, r *replica) {
	r.checks.Add(1)
	timeout := seconds(g.cfg.Health.TimeoutS)
	_, status, err := g.ask(ctx, r, timeout, http.MethodGet, g.cfg.Health.Path, nil)
	if ctx.Err() != nil {
		return
	}
	if err != nil || status != http.StatusOK {
		r.checkErrors.Add(1)
		g.driver.Do(func(b *Batch) { g.checkFailed(b, r, err) })
		return
	}
	sleeps := g.sleeps(ctx, r, timeout)
	models := r.models
	if models == nil {
		models = g.askModels(ctx, r, timeout)
	}
	moves := g.moves(r)
	g.driver.Do(func(b *Batch) {
		r.fails, r.lates, r.models = 0, 0, models
		set := condition(0)
		if sleeps {
			set |= asleep
		}
		if !moves {
			set |= wedged
		}
		r.condition = r.condition&drained | set
		g.settle(b, r)
	})
}

// checkFailed counts a check that failed. An engine that is connected to and only too busy to answer is not down: it keeps
// what it runs and holds, and takes nothing new.
func (g *Gateway) checkFailed(b *Batch, r *replica, err error) {
	switch {
	case err != nil && isDial(err):
		r.fails = g.cfg.Health.FailAfter
	case errors.Is(err, context.DeadlineExceeded):
		if r.lates++; r.lates >= g.cfg.Health.FailAfter {
			g.impose(b, r, late)
		}
		return
	default:
		r.fails++
	}
	if r.fails >= g.cfg.Health.FailAfter {
		g.impose(b, r, unwell)
	}
}

// sleeps asks whether the engine sleeps. Most engines do not answer, and do not sleep.
func (g *Gateway) sleeps(ctx context.Context, r *replica, timeout time.Duration) bool {
	data, status, err := g.ask(ctx, r, timeout, http.MethodGet, "/is_sleeping", nil)
	var x struct {
		Asleep bool `json:"is_sleeping"`
	}
	return err == nil && status == http.StatusOK && json.Unmarshal(data, &x) == nil && x.Asleep
}

// askModels is what the engine serves; nil if it does not say.
func (g *Gateway) askModels(ctx context.Context, r *replica, timeout time.Duration) []string {
	data, status, err := g.ask(ctx, r, timeout, http.MethodGet, "/v1/models", nil)
	var x struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err != nil || status != http.StatusOK || json.Unmarshal(data, &x) != nil {
		return nil
	}
	names := []string{}
	for _, m := range x.Data {
		names = append(names, m.ID)
	}
	return names
}

// moves says whether the turns that run on r do something, as far as can be seen: every one had a byte, or began, not too
// long ago, or else another one did since. A turn whose client has bytes to read waits for the client, not for r.
func (g *Gateway) moves(r *replica) bool {
	limit := policies.Time(seconds(g.cfg.Health.WedgedS))
	if limit == 0 {
		return true
	}
	oldest, newest, n := policies.Never, policies.Time(0), 0
	now := g.clock.Now()
	g.driver.Do(func(b *Batch) {
		b.Leases(r.id, func(a *Attempt) {
			if a.cancel != nil && !a.sending.Load() { // a lease of /decide shows no sign of life
				t := policies.Time(a.touched.Load())
				oldest, newest, n = min(oldest, t), max(newest, t), n+1
			}
		})
	})
	return n == 0 || now-oldest < limit || now-newest < limit/4
}

// scraped is what a scrape brought.
type scraped struct {
	metrics *vllmmetrics.Metrics
	err     error
}

// watchMetrics scrapes a replica at every period if the policies need samples, and when it is asked to. Questions that come
// while a scrape is under way are answered by the next one.
func (g *Gateway) watchMetrics(ctx context.Context, r *replica) {
	tick := time.NewTicker(seconds(g.cfg.Signals.ScrapeS))
	defer tick.Stop()
	for {
		var asked []chan scraped
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if !g.cfg.Signals.Always && !g.needs(policies.NeedsSamples|policies.NeedsProgress) {
				continue
			}
		case x := <-r.scrape:
			asked = append(asked, x)
		}
		for len(r.scrape) > 0 {
			asked = append(asked, <-r.scrape)
		}
		x := g.scrapeNow(ctx, r)
		for _, to := range asked {
			to <- x
		}
	}
}

// needs says whether the policies use any of these signals.
func (g *Gateway) needs(s policies.Signals) bool { return policies.Signals(g.signals.Load())&s != 0 }

// scrapeNow scrapes a replica and brings what it says to the core.
func (g *Gateway) scrapeNow(ctx context.Context, r *replica) scraped {
	r.scrapes.Add(1)
	at := g.clock.Now()
	m, err := g.readMetrics(ctx, r)
	if ctx.Err() != nil {
		return scraped{err: ctx.Err()}
	}
	if err != nil {
		r.scrapeErrors.Add(1)
		g.driver.Do(func(b *Batch) { g.scrapeFailed(b, r) })
		return scraped{err: err}
	}
	g.driver.Do(func(b *Batch) {
		if m.Restarted(&r.counters) {
			g.restarted(b, r)
			r.counters = vllmmetrics.Metrics{}
		}
		for f := range vllmmetrics.NumFigures { // a new process may not have a counter yet
			if v, ok := m.Value(f); ok {
				r.counters.Set(f, v)
			}
		}
		r.sample, r.stale = sampleOf(m, at), false
		if g.needs(policies.NeedsSamples) {
			b.Sampled(r.id, r.sample)
		}
		if g.needs(policies.NeedsProgress) {
			b.Progressed(r.id)
		}
	})
	return scraped{metrics: m}
}

// readMetrics is what a replica's /metrics say, over all its engines.
func (g *Gateway) readMetrics(ctx context.Context, r *replica) (*vllmmetrics.Metrics, error) {
	data, status, err := g.ask(ctx, r, seconds(g.cfg.Signals.ScrapeTimeoutS), http.MethodGet, "/metrics", nil)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("/metrics: status %d", status)
	}
	all, err := vllmmetrics.Parse(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if len(all.Engines) == 0 {
		return nil, errors.New("/metrics: nothing of vLLM in it")
	}
	m := all.Total()
	return &m, nil
}

// sampleOf is what policies see of a scrape that was begun at a moment.
func sampleOf(m *vllmmetrics.Metrics, at policies.Time) policies.Sample {
	s := policies.Sample{At: at}
	if v, ok := m.Value(vllmmetrics.Running); ok {
		s.Has |= policies.HasRunning
		s.Running = int32(min(v, 1<<30))
	}
	if v, ok := m.Value(vllmmetrics.Waiting); ok {
		s.Has |= policies.HasWaiting
		s.Waiting = int32(min(v, 1<<30))
	}
	if v, ok := m.Value(vllmmetrics.Usage); ok {
		s.Has |= policies.HasUsage
		s.Usage = v
	}
	query, ok := m.Value(vllmmetrics.QueryTokens)
	hit, both := m.Value(vllmmetrics.HitTokens)
	if ok && both && query < 1<<62 && hit < 1<<62 {
		s.Has |= policies.HasPrefixCounters
		s.QueryTokens, s.HitTokens = int64(query), int64(hit)
	}
	return s
}

// full is a sample of an engine that can take nothing.
func full(at policies.Time) policies.Sample {
	return policies.Sample{At: at, Has: policies.HasRunning | policies.HasWaiting | policies.HasUsage, Running: 1 << 20, Waiting: 1 << 20, Usage: 1}
}

// scrapeFailed does what the configuration says of a sample that has become too old. It is never taken for zero.
func (g *Gateway) scrapeFailed(b *Batch, r *replica) {
	c := &g.cfg.Signals
	limit := policies.Time(seconds(c.StaleAfterS))
	if c.Stale == "hold-last" {
		limit += policies.Time(seconds(c.HoldS))
	}
	now := b.Now()
	if r.stale || r.sample.Has == 0 && c.Stale != "saturated" || now-r.sample.At < limit || !g.needs(policies.NeedsSamples) {
		return
	}
	r.stale = true
	g.log.Warn("no scrape of a replica for too long", "name", r.cfg.Name, "policy", c.Stale, "age_s", float64(now-r.sample.At)/1e9)
	g.metrics.stale.Inc()
	if c.Stale == "saturated" {
		b.Sampled(r.id, full(now))
	} else {
		b.Sampled(r.id, policies.Sample{At: now})
	}
}

// probe answers what the core asks of a replica. It runs inside Do.
func (g *Gateway) probe(p Probe, v *policies.View) (Answer, bool) {
	r := g.replicas[p.Replica]
	f, _ := p.Attempt.owner.(*flight)
	if x := &r.sample; !p.Prefix && g.cfg.Signals.Probe.Path == "" && x.Has&policies.HasUsage != 0 &&
		g.clock.Now()-x.At <= policies.Time(seconds(g.cfg.Signals.Probe.MaxAgeS)) {
		return Answer{Outcome: policies.ProbeValue, Usage: x.Usage}, false
	}
	if p.Prefix && (g.cfg.Signals.Probe.Path == "" || f == nil || f.tokens == nil) {
		if hit, ok := v.HitTokens(p.Replica, p.Attempt.prompt); ok {
			return Answer{Outcome: policies.ProbeValue, HitTokens: hit, PromptTokens: p.Attempt.prompt.Tokens}, false
		}
		g.metrics.probes.WithLabelValues("prefix", "unsupported").Inc()
		return Answer{Outcome: policies.ProbeUnsupported}, false
	}
	var tokens []int32
	if p.Prefix {
		tokens = f.tokens
	}
	g.work.Go(func() {
		answer := g.askProbe(r, p.Prefix, tokens)
		kind := "usage"
		if p.Prefix {
			kind = "prefix"
		}
		g.metrics.probes.WithLabelValues(kind, answer.Outcome.String()).Inc()
		g.driver.Do(func(b *Batch) { b.Probed(p, answer) })
	})
	return Answer{}, true
}

// askProbe asks an engine, by its probe or else by a scrape.
func (g *Gateway) askProbe(r *replica, prefix bool, tokens []int32) Answer {
	timeout := seconds(g.cfg.Signals.Probe.TimeoutS)
	ctx, cancel := context.WithTimeout(g.ctx, timeout)
	defer cancel()
	if g.cfg.Signals.Probe.Path == "" {
		return g.usageOfScrape(ctx, r)
	}
	body, err := json.Marshal(map[string]any{"tokens": append([]int32{}, tokens...)})
	if err != nil {
		return Answer{Outcome: policies.ProbeUnsupported}
	}
	data, status, err := g.ask(ctx, r, timeout, http.MethodPost, g.cfg.Signals.Probe.Path, body)
	var x struct {
		Resident *int32   `json:"resident_tokens"`
		Usage    *float64 `json:"kv_cache_usage"`
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Answer{Outcome: policies.ProbeTimeout}
	case err != nil || status != http.StatusOK || json.Unmarshal(data, &x) != nil:
		return Answer{Outcome: policies.ProbeUnsupported}
	case prefix && x.Resident != nil && *x.Resident >= 0:
		return Answer{Outcome: policies.ProbeValue, HitTokens: *x.Resident, PromptTokens: int32(len(tokens))}
	case !prefix && x.Usage != nil && *x.Usage >= 0 && *x.Usage <= 1:
		return Answer{Outcome: policies.ProbeValue, Usage: *x.Usage}
	}
	return Answer{Outcome: policies.ProbeUnsupported}
}

func (g *Gateway) usageOfScrape(ctx context.Context, r *replica) Answer {
	reply := make(chan scraped, 1)
	select {
	case r.scrape <- reply:
	case <-ctx.Done():
		return Answer{Outcome: policies.ProbeTimeout}
	}
	select {
	case x := <-reply:
		if x.err == nil {
			if u, ok := x.metrics.Value(vllmmetrics.Usage); ok {
				return Answer{Outcome: policies.ProbeValue, Usage: u}
			}
		}
		return Answer{Outcome: policies.ProbeUnsupported}
	case <-ctx.Done():
		return Answer{Outcome: policies.ProbeTimeout}
	}
}

// modelNames is what /v1/models lists.
func (g *Gateway) modelNames() []string {
	if len(g.cfg.Models) > 0 {
		return g.cfg.Models
	}
	var names []string
	g.driver.Do(func(*Batch) {
		for _, r := range g.replicas {
			names = append(names, r.models...)
		}
	})
	slices.Sort(names)
	return slices.Compact(names)
}
