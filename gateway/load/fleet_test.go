package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-sim/sluice/gateway/fakevllm"
	"github.com/sluice-sim/sluice/gateway/kvevents"
	"github.com/sluice-sim/sluice/model/latency"
)

// engine is a fake vLLM process that can be killed and started again at the same addresses.
type engine struct {
	cfg  fakevllm.Config
	addr string

	mu   sync.Mutex
	fake *fakevllm.Server // nil while it is dead
	http *http.Server
	done chan struct{}
}

// newFleet starts n engines with little memory.
func newFleet(t testing.TB, n int) []*engine {
	m, err := latency.FindModel("llama-3.1-8b")
	check(t, err)
	g, err := latency.FindGPU("h100")
	check(t, err)
	c, err := fakevllm.DefaultConfig(latency.Setup{Model: m, GPU: g}, 16)
	check(t, err)
	c.Name, c.Blocks, c.Speed, c.AllowFaults, c.OutputTokens = "m", 600, 50, true, 20
	c.Engine.MaxModelLen = 4096
	fleet := make([]*engine, n)
	for i := range fleet {
		e := &engine{cfg: c, addr: "127.0.0.1:0"}
		e.cfg.KVEvents = &kvevents.PublisherConfig{Endpoint: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0"}
		check(t, e.start())
		t.Cleanup(e.kill)
		fleet[i] = e
	}
	return fleet
}

// start starts an engine that is dead.
func (e *engine) start() (err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fake != nil {
		return nil
	}
	l, err := net.Listen("tcp", e.addr)
	if err != nil {
		return err
	}
	fake, err := fakevllm.New(e.cfg)
	if err != nil {
		_ = l.Close()
		return err
	}
	e.addr = l.Addr().String()
	e.cfg.KVEvents.Endpoint, e.cfg.KVEvents.Replay = fake.KVEventAddrs()
	e.fake, e.http, e.done = fake, &http.Server{Handler: fake}, make(chan struct{})
	go func() {
		defer close(e.done)
		_ = e.http.Serve(l) // ends with Close
	}()
	return nil
}

// kill ends an engine that lives, with all its connections.
func (e *engine) kill() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fake == nil {
		return
	}
	_ = e.http.Close()
	<-e.done
	e.fake.Close()
	e.fake = nil
}

// set puts faults in force, if the engine lives.
func (e *engine) set(t testing.TB, f fakevllm.Faults) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fake != nil {
		if err := e.fake.SetFaults(f); err != nil {
			t.Error(err)
		}
	}
}

// replicas are the engines in a gateway's configuration.
func replicas(fleet []*engine) string {
	var b strings.Builder
	b.WriteString("replicas:\n")
	for i, e := range fleet {
		fmt.Fprintf(&b, "  - {name: r%d, url: \"http://%s\", kv_tokens: %d, block_tokens: 16, kv_events: {endpoint: %q, replay: %q}}\n",
			i, e.addr, int64(e.cfg.Blocks)*16, e.cfg.KVEvents.Endpoint, e.cfg.KVEvents.Replay)
	}
	return b.String()
}

// faults are what happens to an engine for a while.
var faults = []struct {
	name   string
	faults fakevllm.Faults
}{
	{"killed", fakevllm.Faults{}},
	{"restart", fakevllm.Faults{Restart: true, RestartAfterSec: 0.2}},
	{"slow", fakevllm.Faults{LatencyFactor: 40}},
	{"wedged", fakevllm.Faults{LatencyFactor: 5e3}},
	{"metrics hang", fakevllm.Faults{MetricsHang: true}},
	{"metrics fail", fakevllm.Faults{MetricsStatus: 500}},
	{"unwell", fakevllm.Faults{HealthStatus: 503}},
	{"breaks streams off", fakevllm.Faults{DieNext: 5, DieAfterTokens: 3}},
	{"fails", fakevllm.Faults{FailNext: 5}},
	{"no tokens", fakevllm.Faults{TokenizeHang: true}},
	{"no probes", fakevllm.Faults{ResidentHang: true}},
	{"probes fail", fakevllm.Faults{ResidentStatus: 500}},
	{"loses KV events", fakevllm.Faults{LoseKVBatches: 5}},
	{"cuts connections", fakevllm.Faults{Down: true}},
}

// torment lets faults happen to the engines, one after another, until ctx ends, and heals them. It returns how often each
// happened.
func torment(ctx context.Context, t testing.TB, fleet []*engine, seed uint64) map[string]int {
	draw := rand.New(rand.NewPCG(seed, 5))
	happened := map[string]int{}
	var all sync.WaitGroup
	busy := make([]chan struct{}, len(fleet)) // holds one while nothing happens to the engine
	for i := range busy {
		busy[i] = make(chan struct{}, 1)
		busy[i] <- struct{}{}
	}
	for pause(ctx, time.Duration(20+draw.IntN(200))*time.Millisecond) {
		i, f, long := draw.IntN(len(fleet)), faults[draw.IntN(len(faults))], time.Duration(50+draw.IntN(600))*time.Millisecond
		select {
		case <-busy[i]:
		default:
			continue
		}
		happened[f.name]++
		all.Go(func() {
			e := fleet[i]
			defer func() { busy[i] <- struct{}{} }()
			if f.name == "killed" {
				e.kill()
			} else {
				e.set(t, f.faults)
			}
			pause(ctx, long)
			revive(t, e)
		})
	}
	all.Wait()
	return happened
}

// revive ends whatever is wrong with an engine.
func revive(t testing.TB, e *engine) {
	for tries := 0; ; tries++ {
		err := e.start()
		if err == nil {
			break
		}
		if tries == 100 { // another may have been given the port for a moment
			t.Error(err)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	e.set(t, fakevllm.Faults{})
}
