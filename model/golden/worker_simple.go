package golden

import "github.com/sluice-sim/sluice/model/engine"

// simpleWorker is the worker of vLLM's simple connector: copies begin with the step that decides them, and end in order,
// a fixed number of iterations later or when all are to be finished.
type simpleWorker struct {
	cfg           *Offload
	tier          *engine.Simple
	loads, stores []copying
	flight        [][]copied // done with each step in flight
}

type copying struct {
	id       int64
	ends     int64 // iteration
	requests []int64
}

type copied struct {
	load bool
	id   int64
}

func (w *simpleWorker) scheduled(r *replay, t int64, _ *engine.Step) {
	o := w.tier
	r.lookups(o.Lookups)
	var done, cev []any
	var received []int64
	var finished []copied
	until := func(at int64) {
		for len(w.loads) > 0 && w.loads[0].ends <= at {
			received = append(received, w.loads[0].requests...)
			finished = append(finished, copied{true, w.loads[0].id})
			w.loads = w.loads[1:]
		}
		for len(w.stores) > 0 && w.stores[0].ends <= at {
			done = append(done, w.stores[0].id)
			finished = append(finished, copied{false, w.stores[0].id})
			w.stores = w.stores[1:]
		}
	}
	if o.Flush {
		until(1 << 62)
		r.got["off.flush"] = "1"
		r.sums["off.flush"]++
	}
	if l := &o.Load; l.ID >= 0 {
		var ids []int64
		for _, s := range l.Slots {
			r.bind(s)
			ids = append(ids, r.request[s])
		}
		w.loads = append(w.loads, copying{l.ID, t + w.cfg.LoadLatency, ids})
		r.got["off.load"] = text([]any{l.ID, l.CPU, l.GPU})
		r.sums["off.load"]++
	}
	if s := &o.Store; s.ID >= 0 {
		w.stores = append(w.stores, copying{s.ID, t + w.cfg.StoreLatency, nil})
		r.got["off.store"] = text([]any{s.ID, s.GPU, s.CPU})
		r.sums["off.store"]++
	}
	until(t)
	for _, b := range o.Evicted {
		cev = append(cev, b)
	}
	r.note("done", done)
	r.received(received)
	r.note("cev", cev)
	w.flight = append(w.flight, finished)
}

func (w *simpleWorker) report() {
	for _, c := range w.flight[0] {
		if c.load {
			w.tier.ReportLoad(c.id)
		} else {
			w.tier.ReportStore(c.id)
		}
	}
	w.flight = w.flight[1:]
}

func (w *simpleWorker) state() []int64 {
	p := w.tier.Pool()
	return []int64{int64(p.Free()), p.Cached(), int64(p.QueueCRC())}
}

func (w *simpleWorker) takeExternal() engine.PrefixStats { return w.tier.TakeExternalStats() }
