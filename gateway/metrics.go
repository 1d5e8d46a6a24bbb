package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-sim/sluice/policies"
)

// meters is what the gateway counts as it goes. What the driver knows is collected when it is asked for.
type meters struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec // by path and status
	refused  *prometheus.CounterVec // by reason
	probes   *prometheus.CounterVec // by kind and outcome
	bases    *prometheus.CounterVec // by basis of the prompt's hashes
	wait     *prometheus.HistogramVec
	reroutes prometheus.Counter
	restarts prometheus.Counter
	stale    prometheus.Counter
	reloads  *prometheus.CounterVec // by outcome
}

func newMeters(g *Gateway) *meters {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_" + name, Help: help})
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_" + name, Help: help}, labels)
	}
	m := &meters{
		registry: prometheus.NewRegistry(),
		requests: vec("requests_total", "Requests that have been answered.", "path", "status"),
		refused:  vec("refused_total", "Requests that the gateway answered itself with an error.", "reason"),
		probes:   vec("probes_total", "Probes of engines that were answered.", "kind", "outcome"),
		bases:    vec("prompts_total", "Prompts by what was hashed of them.", "basis"),
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_queue_wait_seconds", Help: "Wait at the gate.", Buckets: prometheus.ExponentialBuckets(0.0001, 4, 12),
		}, []string{"verdict"}),
		reroutes: counter("reroutes_total", "Turns that were sent elsewhere because their engine failed before the first byte."),
		restarts: counter("replica_restarts_total", "Restarts of engines that were noticed."),
		stale:    counter("stale_samples_total", "Times that the samples of an engine became too old."),
		reloads:  vec("reloads_total", "Times that the configuration was read again.", "outcome"),
	}
	m.registry.MustRegister(m.requests, m.refused, m.probes, m.bases, m.wait, m.reroutes, m.restarts, m.stale, m.reloads, &collector{g})
	return m
}

func (m *meters) waited(v Verdict) {
	verdict := "refused"
	if v.Kind == Go {
		verdict = "admitted"
	}
	m.wait.WithLabelValues(verdict).Observe(v.Waited.Seconds())
}

// collector collects what the driver knows.
type collector struct{ g *Gateway }

var (
	descAttempts  = prometheus.NewDesc("sluice_attempts_total", "Attempts of turns by what became of them.", []string{"outcome"}, nil)
	descLive      = prometheus.NewDesc("sluice_leases_live", "Leases that live.", nil, nil)
	descWaiting   = prometheus.NewDesc("sluice_turns_waiting", "Turns that wait at the gate.", nil, nil)
	descImbalance = prometheus.NewDesc("sluice_lease_imbalance", "Attempts and leases that are unaccounted for: admitted - finished - failed - cancelled - live and the like. Anything but 0 is a fault.", nil, nil)
	descSessions  = prometheus.NewDesc("sluice_sessions_live", "Sessions that live.", nil, nil)
	descSteps     = prometheus.NewDesc("sluice_core_steps_total", "Steps of the decision core.", nil, nil)
	descLogLost   = prometheus.NewDesc("sluice_decision_log_lost_steps_total", "Steps that are missing in the decision log.", nil, nil)
	descCoreOK    = prometheus.NewDesc("sluice_core_ok", "0 when the decision core has failed.", nil, nil)
	descState     = prometheus.NewDesc("sluice_replica_state", "0 down, 1 up, 2 draining.", []string{"replica"}, nil)
	descInFlight  = prometheus.NewDesc("sluice_replica_leases", "Leases on a replica.", []string{"replica"}, nil)
	descAge       = prometheus.NewDesc("sluice_replica_sample_age_seconds", "Age of a replica's last sample; absent while there is none.", []string{"replica"}, nil)
	descScrapes   = prometheus.NewDesc("sluice_replica_scrapes_total", "Scrapes of a replica.", []string{"replica", "outcome"}, nil)
	descKV        = prometheus.NewDesc("sluice_replica_kv_batches_total", "Batches of KV events of a replica.", []string{"replica"}, nil)
	descResets    = prometheus.NewDesc("sluice_replica_kv_resets_total", "Times that what was known of a replica's blocks became void.", []string{"replica"}, nil)
	descKVLinked  = prometheus.NewDesc("sluice_replica_kv_connected", "1 while the KV events of a replica are subscribed to; absent where none are configured.", []string{"replica"}, nil)
	descKVOdd     = prometheus.NewDesc("sluice_replica_kv_malformed_total", "Messages of a replica's publisher that are no batches of KV events.", []string{"replica"}, nil)
	descRecorded  = prometheus.NewDesc("sluice_recorder_turns_total", "Turns that the recorder took, or dropped and why; absent where nothing is recorded.", []string{"outcome"}, nil)
	descRecOpen   = prometheus.NewDesc("sluice_recorder_open_turns", "Turns of sessions that have not ended, in the recorder's memory.", nil, nil)
	descRecFiles  = prometheus.NewDesc("sluice_recorder_files_total", "Files of the recorder.", []string{"outcome"}, nil)
	descContent   = prometheus.NewDesc("sluice_content", "What is kept of prompts.", []string{"what"}, nil)
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	a := c.g.driver.Audit()
	for outcome, n := range map[string]int64{
		"arrived": a.Arrived, "admitted": a.Admitted, "finished": a.Finished, "failed": a.Failed, "cancelled": a.Cancelled, "superseded": a.Superseded,
		"rejected": a.Rejected, "gave_up": a.GaveUp, "expired": a.Expired, "abandoned": a.Abandoned,
	} {
		count(descAttempts, prometheus.CounterValue, float64(n), outcome)
	}
	count(descLive, prometheus.GaugeValue, float64(a.Live))
	count(descWaiting, prometheus.GaugeValue, float64(a.Waiting))
	count(descImbalance, prometheus.GaugeValue, float64(a.Imbalance()))
	count(descSessions, prometheus.GaugeValue, float64(a.Sessions))
	count(descSteps, prometheus.CounterValue, float64(a.Steps))
	count(descLogLost, prometheus.CounterValue, float64(a.LogErrors))
	ok := 1.0
	if c.g.driver.Err() != nil {
		ok = 0
	}
	count(descCoreOK, prometheus.GaugeValue, ok)
	for _, r := range c.g.replicaStates() {
		count(descState, prometheus.GaugeValue, float64(r.state), r.Name)
		count(descInFlight, prometheus.GaugeValue, float64(r.Leases), r.Name)
		if r.SampleAge != nil {
			count(descAge, prometheus.GaugeValue, *r.SampleAge, r.Name)
		}
		p := c.g.replicas[r.id]
		failed := p.scrapeErrors.Load()
		count(descScrapes, prometheus.CounterValue, float64(p.scrapes.Load()-failed), r.Name, "ok")
		count(descScrapes, prometheus.CounterValue, float64(failed), r.Name, "failed")
		count(descKV, prometheus.CounterValue, float64(p.kvEvents.Load()), r.Name)
		count(descResets, prometheus.CounterValue, float64(p.kvResets.Load()), r.Name)
		if kv := p.kv.Load(); kv != nil {
			s, linked := kv.Stats(), 0.0
			if s.Connected {
				linked = 1
			}
			count(descKVLinked, prometheus.GaugeValue, linked, r.Name)
			count(descKVOdd, prometheus.CounterValue, float64(s.Malformed), r.Name)
		}
	}
	if c.g.records != nil {
		s := c.g.records.Stats()
		for outcome, n := range map[string]int64{"taken": s.Turns, "queue_full": s.DroppedQueue, "memory_full": s.DroppedOpen, "without_output": s.DroppedOther} {
			count(descRecorded, prometheus.CounterValue, float64(n), outcome)
		}
		count(descRecOpen, prometheus.GaugeValue, float64(s.OpenTurns))
		count(descRecFiles, prometheus.CounterValue, float64(s.Files), "written")
		count(descRecFiles, prometheus.CounterValue, float64(s.Failed), "failed")
	}
	for what, n := range c.g.contentCounts() {
		count(descContent, prometheus.GaugeValue, float64(n), what)
	}
}

// replicaState is a replica as it is shown.
type replicaState struct {
	id    policies.ReplicaID
	state policies.ReplicaState

	Name      string         `json:"name"`
	State     string         `json:"state"`
	Why       []string       `json:"why"`
	Leases    int32          `json:"leases"`
	Queued    int64          `json:"queued_prompt_tokens"`
	Decoding  int64          `json:"decoding_tokens"`
	Sample    map[string]any `json:"sample"`       // figures that are unknown are absent
	SampleAge *float64       `json:"sample_age_s"` // null while there is no sample
}

func (g *Gateway) replicaStates() []replicaState {
	out := make([]replicaState, len(g.replicas))
	g.driver.Do(func(b *Batch) {
		v := b.View()
		for i, r := range g.replicas {
			s := &out[i]
			*s = replicaState{
				id: r.id, state: r.state, Name: r.cfg.Name, State: stateName(r.state), Why: r.condition.names(), Leases: v.InFlight(r.id),
				Queued: v.QueuedTokens(r.id), Decoding: v.DecodeTokens(r.id), Sample: map[string]any{},
			}
			x := &r.sample
			if x.Has == 0 {
				continue
			}
			age := float64(b.Now()-x.At) / 1e9
			s.SampleAge = &age
			if x.Has&policies.HasRunning != 0 {
				s.Sample["running"] = x.Running
			}
			if x.Has&policies.HasWaiting != 0 {
				s.Sample["waiting"] = x.Waiting
			}
			if x.Has&policies.HasUsage != 0 {
				s.Sample["kv_usage"] = x.Usage
			}
			if x.Has&policies.HasPrefixCounters != 0 {
				s.Sample["prefix_query_tokens"], s.Sample["prefix_hit_tokens"] = x.QueryTokens, x.HitTokens
			}
		}
	})
	return out
}

// contentCounts is what is kept of prompts.
func (g *Gateway) contentCounts() map[string]int64 {
	var out map[string]int64
	g.driver.Do(func(*Batch) {
		s := g.table.Stats()
		out = map[string]int64{
			"streams": s.Streams, "held": s.Held, "blocks": s.Blocks, "idle_blocks": s.IdleBlocks, "resident_blocks": s.ResidentBlocks,
			"released": s.Released, "full": s.Full, "unplaced": s.Unplaced, "ignored": s.Ignored,
		}
	})
	return out
}
