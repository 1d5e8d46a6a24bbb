package fakevllm

import (
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	var list []map[string]any
	for _, name := range append([]string{s.cfg.Name}, s.cfg.Alias...) {
		list = append(list, map[string]any{
			"id": name, "object": "model", "created": s.created, "owned_by": "sluice", "root": s.cfg.Name, "parent": nil, "max_model_len": s.cfg.Engine.MaxModelLen,
		})
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": list})
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if n := s.Faults().HealthStatus; n != 0 {
		w.WriteHeader(n)
	}
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	f := s.Faults()
	switch {
	case f.MetricsHang:
		s.hang(r)
	case f.MetricsStatus != 0:
		w.WriteHeader(f.MetricsStatus)
	default:
		s.mu.Lock()
		registry := s.meter.registry
		s.mu.Unlock()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	}
}

// flag reads a boolean query parameter.
func flag(r *http.Request, name string) bool {
	v, _ := strconv.ParseBool(r.URL.Query().Get(name))
	return v
}

// resetPrefixCache forgets the cache unless requests hold blocks; with reset_running_requests these are preempted first. vLLM
// answers 200 either way; the body, which vLLM has not, says whether it was done.
func (s *Server) resetPrefixCache(w http.ResponseWriter, r *http.Request) {
	done := false
	c := s.engine()
	if !c.between(func() { done = c.reset(flag(r, "reset_running_requests")) }) {
		unavailable("the engine has stopped").write(w)
		return
	}
	writeJSON(w, http.StatusOK, map[string]bool{"reset": done})
}

// reset forgets the prefix cache, between two steps.
func (c *core) reset(preempt bool) bool {
	done := c.loop.Reset(preempt)
	c.noteContent()
	c.publish()
	return done
}

// sleep aborts what is under way, forgets the cache, and lets requests wait until wakeUp.
func (s *Server) sleep(w http.ResponseWriter, _ *http.Request) {
	c := s.engine()
	ok := c.between(func() {
		c.asleep = true
		c.aborts = slices.SortedFunc(maps.Keys(c.live), func(a, b *request) int { return int(a.id - b.id) })
		c.applyAborts()
		c.reset(false)
	})
	if !ok {
		unavailable("the engine has stopped").write(w)
	}
}

func (s *Server) wakeUp(w http.ResponseWriter, _ *http.Request) {
	c := s.engine()
	if !c.between(func() { c.asleep = false }) {
		unavailable("the engine has stopped").write(w)
	}
}

func (s *Server) isSleeping(w http.ResponseWriter, _ *http.Request) {
	c := s.engine()
	c.mu.Lock()
	asleep := c.asleep
	c.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]bool{"is_sleeping": asleep})
}

// KVEventAddrs is where KV events are published and where lost ones can be asked for; "" is nowhere.
func (s *Server) KVEventAddrs() (events, replay string) {
	if s.publisher == nil {
		return "", ""
	}
	return s.publisher.Addr(), s.publisher.ReplayAddr()
}
