package golden

import (
	"slices"

	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/model/kv"
)

// worker is the recorder's model of what copies between GPU and CPU.
type worker interface {
	// scheduled notes what a schedule call of iteration t decided and lets the worker run; report tells the engine what
	// was done with the oldest step in flight.
	scheduled(r *replay, t int64, st *engine.Step)
	report()
	state() []int64 // of the CPU tier, the field cpu
	takeExternal() engine.PrefixStats
}

// connect puts the recorded CPU tier behind the engine.
func (r *replay) connect(o *Offload) {
	if o.Connector == simpleConnector {
		r.worker = &simpleWorker{cfg: o, tier: r.loop.ConnectSimple(engine.SimpleConfig{Blocks: o.NumCPUBlocks - 1, Lazy: o.Lazy})}
		return
	}
	r.worker = &offloadWorker{cfg: o, tables: map[int64][]int32{}, tier: r.loop.Connect(engine.OffloadConfig{
		CPUConfig:      kv.CPUConfig{Chunks: o.NumCPUBlocks, ARC: o.EvictionPolicy == "arc", StoreThreshold: o.StoreThreshold, Places: true},
		BlocksPerChunk: o.BlocksPerChunk, PromptOnly: o.PromptOnly,
	})}
}

// note records one kind of thing that the connector or the worker did.
func (r *replay) note(field string, v []any) {
	r.put("off."+field, v)
	r.sums["off."+field] += int64(len(v))
}

// lookups notes the questions to the CPU tier.
func (r *replay) lookups(all []engine.Lookup) {
	var ext []any
	for _, l := range all {
		cpu, async := any(l.CPU), int32(0)
		if l.Retry {
			cpu = nil
		} else if l.CPU > 0 {
			async = 1
		}
		ext = append(ext, []any{r.request[l.Slot], l.GPU, cpu, async})
	}
	r.note("ext", ext)
}

// received notes the requests whose load is done.
func (r *replay) received(ids []int64) {
	slices.Sort(ids)
	var recv []any
	for _, id := range ids {
		recv = append(recv, id)
	}
	r.note("recv", recv)
}

// offloadWorker is vLLM's offloading worker: it submits the stores of a step with the next one, or at once where
// something is to be finished, and a transfer ends a fixed number of iterations after its submission.
type offloadWorker struct {
	cfg       *Offload
	tier      *engine.Offload
	waiting   []transfer // stores decided and not submitted
	submitted []transfer
	flight    [][]engine.JobID  // done with each step in flight
	tables    map[int64][]int32 // blocks of requests, with the reference pool, that were last scheduled
}

type transfer struct {
	job     engine.JobID
	request int64
	load    bool
	ends    int64 // iteration
}

// run is the worker's part of iteration t; it returns what is done.
func (w *offloadWorker) run(t int64, loads, stores []transfer, flush []engine.JobID) (done []transfer) {
	if len(flush) > 0 {
		kept := stores[:0]
		for _, s := range stores {
			if slices.Contains(flush, s.job) {
				w.waiting = append(w.waiting, s)
			} else {
				kept = append(kept, s)
			}
		}
		stores = kept
	}
	for _, s := range w.waiting {
		s.ends = t + w.cfg.StoreLatency
		w.submitted = append(w.submitted, s)
	}
	w.waiting = append(w.waiting[:0], stores...)
	for _, l := range loads {
		l.ends = t + w.cfg.LoadLatency
		w.submitted = append(w.submitted, l)
	}
	left := w.submitted[:0]
	for _, s := range w.submitted {
		if s.ends <= t || slices.Contains(flush, s.job) {
			done = append(done, s)
		} else {
			left = append(left, s)
		}
	}
	w.submitted = left
	slices.SortFunc(done, func(a, b transfer) int { return int(a.job - b.job) })
	ids := []engine.JobID{}
	for _, d := range done {
		ids = append(ids, d.job)
	}
	w.flight = append(w.flight, ids)
	return done
}

func (w *offloadWorker) report() {
	for _, id := range w.flight[0] {
		w.tier.Report(id)
	}
	w.flight = w.flight[1:]
}

func (w *offloadWorker) scheduled(r *replay, t int64, st *engine.Step) {
	o := w.tier
	if r.ref != nil {
		for _, x := range st.Entries {
			id := r.request[x.Slot]
			w.tables[id] = append(w.tables[id][:0], r.ref.Table(r.loop.Table(x.Slot))...)
		}
	}
	r.lookups(o.Lookups)
	var load, store, flush, cev, sfail []any
	var loads, stores []transfer
	for _, j := range o.Loads {
		id := r.request[j.Slot]
		r.bind(j.Slot)
		loads = append(loads, transfer{job: j.ID, request: id, load: true})
		gpu := []int32{}
		if r.ref != nil {
			gpu = append(gpu, r.ref.Table(r.loop.Table(j.Slot))[j.First:j.First+j.Blocks]...)
		}
		load = append(load, []any{int64(j.ID), id, append([]int32{}, j.CPU...), gpu})
	}
	for _, j := range o.Stores {
		id := r.names[name{j.Slot, j.Epoch}]
		stores = append(stores, transfer{job: j.ID, request: id})
		gpu := []int32{}
		if r.ref != nil {
			b := w.cfg.BlocksPerChunk
			for _, x := range j.Chunks {
				gpu = append(gpu, w.tables[id][x.Lo*b:x.Hi*b]...)
			}
		}
		store = append(store, []any{int64(j.ID), id, gpu, append([]int32{}, j.CPU...)})
	}
	for _, id := range o.Flush {
		flush = append(flush, int64(id))
	}
	for _, c := range o.Evicted {
		cev = append(cev, c)
	}
	for _, x := range o.Refused {
		sfail = append(sfail, []any{r.names[name{x.Slot, x.Epoch}], x.Chunks})
	}
	var done []any
	var received []int64
	for _, d := range w.run(t, loads, stores, o.Flush) {
		done = append(done, int64(d.job))
		if d.load {
			received = append(received, d.request)
		}
	}
	r.note("load", load)
	r.note("store", store)
	r.note("flush", flush)
	r.note("done", done)
	r.received(received)
	r.note("cev", cev)
	r.note("sfail", sfail)
}

func (w *offloadWorker) state() []int64 {
	t := w.tier.Tier()
	return []int64{int64(t.Used()), int64(t.Evictable()), int64(t.Pending())}
}

func (w *offloadWorker) takeExternal() engine.PrefixStats { return w.tier.TakeExternalStats() }

// external notes the statistics of lookups in the CPU tier.
func (r *replay) external() {
	p := r.worker.takeExternal()
	if x := [6]int64{p.Requests, p.Queries, p.Hits, p.PreemptedRequests, p.PreemptedQueries, p.PreemptedHits}; x != [6]int64{} {
		r.got["xpc"] = text(x[:])
	}
}

// offloadTotals compares the sums of the transfers; sfail counts chunks, the others entries.
func (r *replay) offloadTotals(v any) bool {
	m, _ := v.(map[string]any)
	names := make([]string, 0, len(m))
	for k := range m {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		if want, got := text(m[k]), text(r.sums["off."+k]); want != got {
			r.differ(-1, "totals.offload."+k, want, got)
			return false
		}
		r.res.Fields++
	}
	return true
}
