package fakevllm

import (
	"sync"
	"time"

	"github.com/sluice-sim/sluice/gateway/kvevents"
	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/model/kv"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/prefix"
)

// core is one engine with its clock: vLLM's EngineCore process. One goroutine steps it. It keeps the times of the model
// exactly, and lets real time only decide when a step's outcome is seen: a goroutine that wakes late makes no step longer,
// and input that came while a step ran is taken in when vLLM would have taken it in.
type core struct {
	cfg   *Config
	clock clock
	meter *meter

	mu      sync.Mutex
	loop    *engine.Loop
	law     *latency.Law
	names   content
	owner   []*request // by slot
	inbox   []*request // submitted and not taken in, by arrival
	aborts  []*request // to abort before the next output is processed
	calls   []func()   // to be run between steps
	live    map[*request]bool
	factor  float64 // of a step's time
	asleep  bool
	stopped bool

	now     int64 // of the engine: the end of the last step, or when it took its last input
	flight  [2]int64
	depth   int
	freeAt  int64 // when the last step in flight ends
	blocked bool  // waits for the oldest step in flight
	late    int64 // by how much the end of the last step was seen late
	events  []kvevents.Event
	gauges  gauges

	wake chan struct{} // has one when there is input
	quit chan struct{}
	done chan struct{}
}

// gauges are what vLLM says of its last finished step.
type gauges struct {
	running, waiting, deferred int
	usage                      float64
	late                       int64
}

func newCore(cfg *Config, law *latency.Law, clk clock, m *meter) *core {
	pool := kv.NewExtent(cfg.Blocks, cfg.Engine.PrefixCaching)
	pool.Record(true, true)
	c := &core{
		cfg: cfg, clock: clk, meter: m, law: law, names: newContent(cfg.Engine.BlockTokens), factor: 1, live: map[*request]bool{},
		loop: engine.NewLoop(engine.New(&cfg.Engine, pool)),
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go c.run()
	return c
}

// killed is why a request ended whose engine is gone.
const killed = "killed"

// stop ends the goroutine and every request.
func (c *core) stop() {
	c.mu.Lock()
	if !c.stopped {
		c.stopped = true
		close(c.quit)
		for r := range c.live {
			r.ended, r.reason = true, killed
			r.notify()
		}
	}
	c.mu.Unlock()
	<-c.done
}

// submit gives work to the engine.
func (c *core) submit(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return false
	}
	r.arrival = c.clock.now()
	r.path = c.names.name(r.hashes, r.tokens, r.salt != "")
	r.hashes, r.tokens = nil, nil
	c.inbox = append(c.inbox, r)
	c.live[r] = true
	c.poke()
	return true
}

// abort ends a request that nobody waits for any more.
func (c *core) abort(r *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !r.ended {
		c.aborts = append(c.aborts, r)
		c.poke()
	}
}

// between runs f between two steps and returns when it has run; false if the engine has stopped.
func (c *core) between(f func()) bool {
	ran := make(chan struct{})
	c.mu.Lock()
	c.calls = append(c.calls, func() { f(); close(ran) })
	c.poke()
	c.mu.Unlock()
	select {
	case <-ran:
		return true
	case <-c.done:
		return false
	}
}

// poke wakes the goroutine if it is idle.
func (c *core) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run steps the engine until stop.
func (c *core) run() {
	defer close(c.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		end, idle := c.iterate()
		if idle {
			select {
			case <-c.wake:
			case <-c.quit:
				return
			}
			continue
		}
		timer.Reset(c.clock.until(end))
		select {
		case <-timer.C:
		case <-c.quit:
			return
		}
	}
}

// iterate is one iteration of vLLM's loop, or the rest of one that waited for a step. It returns when the step ends that is
// to be waited for, or that there is nothing to do.
func (c *core) iterate() (end int64, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return 0, true
	}
	if c.blocked {
		if c.clock.now() < c.flight[0] {
			return c.flight[0], false
		}
		c.stepEnded()
	}
	for {
		c.takeInputs()
		outcome, scheduled, _ := c.loop.Advance()
		if scheduled != nil {
			c.scheduled(scheduled)
		}
		switch outcome {
		case engine.Blocked:
			c.blocked = true
			return c.flight[0], false
		case engine.Idle:
			if len(c.inbox) == 0 || c.asleep {
				c.measure()
				c.rebase()
				return 0, true
			}
			c.now = max(c.now, c.inbox[0].arrival)
		}
	}
}

// rebase starts the clock again where nothing refers to it, long before it ends.
func (c *core) rebase() {
	if c.now > 1e18 && len(c.live) == 0 {
		c.clock.start, c.now, c.freeAt = time.Now(), 0, 0
	}
}

// takeInputs is what vLLM does before each iteration: everything that arrived until then.
func (c *core) takeInputs() {
	c.applyAborts()
	for _, f := range c.calls {
		f()
	}
	c.calls = c.calls[:0]
	n := 0
	for ; n < len(c.inbox) && !c.asleep && c.inbox[n].arrival <= c.now; n++ {
		r := c.inbox[n]
		r.slot = c.loop.Add(engine.Request{
			ID: r.id, Prompt: c.prefixOf(r), MaxTokens: r.maxTokens, StopAfter: r.stop, Priority: r.priority, Arrival: r.id, Path: r.path,
		})
		r.inEngine = true
		for int(r.slot) >= len(c.owner) {
			c.owner = append(c.owner, nil)
		}
		c.owner[r.slot] = r
	}
	c.inbox = c.inbox[:copy(c.inbox, c.inbox[n:])]
}

// prefixOf names a prompt as the engine wants it: its length, and a stream that its path leads through.
func (c *core) prefixOf(r *request) prefix.Prefix {
	p := prefix.Prefix{Stream: prefix.None, Tokens: int32(len(r.prompt))}
	if n := len(r.path); n > 0 {
		p.Stream = r.path[n-1].Stream
	}
	return p
}

func (c *core) applyAborts() {
	for _, r := range c.aborts {
		if r.ended {
			continue
		}
		if r.inEngine {
			c.loop.Abort(r.slot)
			c.owner[r.slot] = nil
		} else {
			for i := range c.inbox {
				if c.inbox[i] == r {
					c.inbox = append(c.inbox[:i], c.inbox[i+1:]...)
					break
				}
			}
		}
		c.end(r, "abort")
	}
	c.aborts = c.aborts[:0]
}

// end is the end of a request, whichever way it came.
func (c *core) end(r *request, reason string) {
	r.ended, r.reason = true, reason
	c.names.release(r.path)
	r.path = nil
	delete(c.live, r)
	c.meter.ended(r, c.now)
	r.notify()
}

// scheduled accounts for a step that was put in flight and gives it its time.
func (c *core) scheduled(st *engine.Step) {
	for _, a := range c.loop.Admitted {
		r := c.owner[a.Slot]
		if r.cached < 0 {
			r.cached, r.admitted = a.Hit, c.now
			c.meter.admitted(r)
		}
	}
	for _, s := range c.loop.Preempted {
		c.owner[s].preempted++
		c.meter.preemptions.Inc()
	}
	c.noteContent()
	start := max(c.now, c.freeAt)
	c.freeAt = start
	if st.Tokens > 0 {
		c.freeAt += int64(float64(c.law.Picoseconds(st.Shape)) * c.factor)
		c.meter.iteration.Observe(float64(st.Tokens))
	}
	c.flight[c.depth] = c.freeAt
	c.depth++
}

// stepEnded processes the output of the oldest step in flight.
func (c *core) stepEnded() {
	c.blocked = false
	c.late = c.clock.now() - c.flight[0]
	c.now = max(c.now, c.flight[0])
	c.flight[0] = c.flight[1]
	c.depth--
	c.applyAborts()
	c.loop.Complete()
	c.noteContent() // before requests that have ended let go of their names
	for _, s := range c.loop.Sampled {
		r := c.owner[s]
		c.meter.token(r, c.now)
		if r.produced == 0 {
			r.first = c.now
		}
		r.produced++
		r.last = c.now
		if n := r.produced; n == 1 || (n-1)%c.cfg.Interval == 0 {
			r.notify()
		}
	}
	for _, f := range c.loop.Finished {
		r := c.owner[f.Slot]
		c.owner[f.Slot] = nil
		c.end(r, f.Reason.String())
	}
	c.publish()
	c.measure()
}

// measure takes the figures that /metrics shows: they stay until the next step has ended.
func (c *core) measure() {
	c.gauges = gauges{
		running: c.loop.Running(), waiting: c.loop.Waiting(), deferred: c.loop.Skipped(), usage: c.loop.Usage(), late: c.late,
	}
	st := c.loop.TakePrefixStats()
	c.meter.prefix(st.Queries, st.Hits)
}

// progress is what there is of a request's answer.
func (c *core) progress(r *request) (produced, cached int32, ended bool, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return r.produced, max(r.cached, 0), r.ended, r.reason
}
