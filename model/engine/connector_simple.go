package engine

import (
	"fmt"

	"github.com/sluice-sim/sluice/model/kv"
)

// SimpleConfig describes vLLM's SimpleCPUOffloadConnector (spec: vllm 14.3).
type SimpleConfig struct {
	Blocks int32 // that the CPU tier can hold
	Lazy   bool  // blocks are stored when they are about to be evicted, not once they are computed
}

// Transfer is one copy between GPU and CPU, of several requests together. Its slices are valid until it has been
// reported.
type Transfer struct {
	ID       int64   // loads and stores are numbered apart, from 0; -1 is no transfer
	GPU, CPU []int32 // blocks
	Slots    []Slot  // of a load: the requests
	epochs   []uint32
	counts   []int32     // of them, how many blocks
	orphans  []kv.Handle // tables of aborted requests, by request; noTable for the others
}

// Simple is the scheduler's side of vLLM's SimpleCPUOffloadConnector: the CPU tier is a second block pool, and blocks in
// transfer are pinned on both sides.
//
// After Schedule, Load and Store are the transfers that call began, and Flush asks for every transfer begun before to be
// done before this step starts. A done transfer is reported with ReportLoad or ReportStore and taken in with the next
// output; stores alone do not keep the engine stepping.
type Simple struct {
	ledger
	cfg SimpleConfig
	gpu *kv.Reference
	cpu *kv.Reference

	pinned [][]int32  // by slot: CPU blocks found by a lookup and held until it leads to an admission or the next lookup
	loads  []Transfer // under way
	stores []Transfer
	nextLd int64
	nextSt int64
	copied []bool // by GPU block: a store of it is under way
	cursor int32  // lazy: the block of the free queue looked at last, 0 for none
	done   []report

	// What the last Schedule did. Valid until the next call.
	Load, Store Transfer
	Flush       bool
	Evicted     []int32 // CPU blocks
}

type report struct {
	load bool
	id   int64
}

// ConnectSimple puts a CPU tier behind an engine that has not had a request yet. The engine's pool must be a
// kv.Reference, since single blocks are pinned.
func (e *Engine) ConnectSimple(cfg SimpleConfig) *Simple {
	gpu, ok := e.pool.(*kv.Reference)
	if !ok || cfg.Blocks < 1 || e.steps > 0 || e.live > 0 {
		panic(fmt.Sprintf("engine: a simple CPU tier of %d blocks cannot be put behind this engine", cfg.Blocks))
	}
	o := &Simple{cfg: cfg, gpu: gpu, cpu: kv.NewReference(cfg.Blocks, true), copied: make([]bool, gpu.Usable()+1)}
	o.cpu.Record(true, true)
	e.tier, e.ledger = o, &o.ledger
	return o
}

// Pool is the CPU tier's pool.
func (o *Simple) Pool() *kv.Reference { return o.cpu }

// ReportLoad says that a load is done.
func (o *Simple) ReportLoad(id int64) { o.done = append(o.done, report{true, id}) }

// ReportStore says that a store is done.
func (o *Simple) ReportStore(id int64) { o.done = append(o.done, report{false, id}) }

func (o *Simple) begin(*Engine) {
	o.Load, o.Store = Transfer{ID: -1}, Transfer{ID: -1}
	o.Flush = false
	o.Evicted = o.Evicted[:0]
}

func (o *Simple) lookup(e *Engine, s Slot, gpu int32) Lookup {
	o.unpin(s)
	r := &e.requests[s]
	b := e.cfg.BlockTokens
	l := Lookup{Slot: s, GPU: gpu}
	limit := gpu/b + (r.tokens-1-gpu)/b
	for _, x := range r.path {
		for i := max(x.Lo, gpu/b); i < min(x.Hi, limit); i++ {
			c := o.cpu.Find(x.Stream, i)
			if c == 0 {
				o.cpu.Pin(o.pinned[s])
				return l
			}
			o.pinned[s] = append(o.pinned[s], c)
			l.CPU += b
		}
	}
	o.cpu.Pin(o.pinned[s])
	return l
}

// unpin lets go of what a lookup found.
func (o *Simple) unpin(s Slot) {
	for int(s) >= len(o.pinned) {
		o.pinned = append(o.pinned, nil)
	}
	o.cpu.Unpin(o.pinned[s])
	o.pinned[s] = o.pinned[s][:0]
}

func (o *Simple) load(e *Engine, s Slot, l Lookup) {
	b := e.cfg.BlockTokens
	r := &e.requests[s]
	if o.Load.ID < 0 {
		o.Load.ID = o.nextLd
		o.nextLd++
	}
	t := &o.Load
	gpu := o.gpu.Table(r.table)[l.GPU/b : (l.GPU+l.CPU)/b]
	o.gpu.Pin(gpu)
	o.cpu.Pin(o.pinned[s])
	t.GPU = append(t.GPU, gpu...)
	t.CPU = append(t.CPU, o.pinned[s]...)
	o.unpin(s)
	t.Slots, t.epochs = append(t.Slots, s), append(t.epochs, r.epoch)
	t.counts, t.orphans = append(t.counts, l.CPU/b), append(t.orphans, noTable)
}

func (o *Simple) decide(e *Engine, st *Step) {
	o.Flush = len(e.Preempted) > 0
	if o.cfg.Lazy {
		o.storeLazily(e)
	} else {
		o.storeEagerly(e, st)
	}
	for _, x := range o.cpu.Events() {
		if x.Kind == kv.Evicted {
			o.Evicted = append(o.Evicted, x.Block)
		}
	}
	o.cpu.ClearEvents()
	if o.Load.ID >= 0 {
		o.loads = append(o.loads, o.Load)
	}
	if len(o.Store.GPU) > 0 {
		o.Store.ID = o.nextSt
		o.nextSt++
		o.stores = append(o.stores, o.Store)
	}
}

// storeEagerly stores what the requests of this step had computed before it, first those admitted for the first time,
// then those that run, then those that came back.
func (o *Simple) storeEagerly(e *Engine, st *Step) {
	room := o.cpu.Free()
	first := len(st.Entries) - len(e.Admitted)
	for _, a := range e.Admitted {
		if a.Resumed {
			o.side[a.Slot].next = 0
		}
	}
	for round := range 3 {
		for i := range st.Entries {
			group := 1
			if i >= first {
				group = 0
				if e.Admitted[i-first].Resumed {
					group = 2
				}
			}
			if group == round {
				room = o.storeEntry(e, &st.Entries[i], room)
			}
		}
	}
}

// storeEntry stores the blocks of one request, as long as there is room, and returns what is left.
func (o *Simple) storeEntry(e *Engine, x *Entry, room int32) int32 {
	r := &e.requests[x.Slot]
	confirmed := x.Past - int32(r.inFlight)
	if x.Yields && e.cfg.Async {
		confirmed++ // this step's own
	}
	table := o.gpu.Table(r.table)
	d := &o.side[x.Slot]
	first := len(o.Store.GPU)
	for ready := confirmed / e.cfg.BlockTokens; d.next < ready; d.next++ {
		b := table[d.next]
		if s, i, ok := o.gpu.Content(b); ok && !o.copied[b] && o.cpu.Find(s, i) == 0 {
			if room == 0 {
				break
			}
			room--
			o.copied[b] = true
			o.Store.GPU = append(o.Store.GPU, b)
		}
	}
	o.take(o.Store.GPU[first:])
	return room
}

// storeLazily stores what the blocks next in the free queue cache, up to twice what a step can take.
func (o *Simple) storeLazily(e *Engine) {
	room := int(o.cpu.Free())
	if o.cursor != 0 && o.gpu.Held(o.cursor) {
		o.cursor = 0
	}
	last := o.cursor
	covered := int32(0)
	for b := o.gpu.NextFree(o.cursor); b != 0; b = o.gpu.NextFree(b) {
		if covered >= 2*blocksFor(e.cfg.MaxBatchedTokens, e.cfg.BlockTokens) || len(o.Store.GPU) >= room {
			break
		}
		covered++
		last = b
		if s, i, ok := o.gpu.Content(b); ok && o.cpu.Find(s, i) == 0 {
			o.Store.GPU = append(o.Store.GPU, b)
		}
	}
	o.cursor = last
	o.take(o.Store.GPU)
}

// take finds CPU blocks for GPU blocks that are to be stored and pins both.
func (o *Simple) take(gpu []int32) {
	if len(gpu) > 0 {
		o.Store.CPU = o.cpu.Take(int32(len(gpu)), o.Store.CPU)
		o.gpu.Pin(gpu)
	}
}

func (o *Simple) end(_ *Engine, s Slot) { o.unpin(s) }

func (o *Simple) abandon(e *Engine, s Slot) bool {
	r := &e.requests[s]
	for i := range o.loads {
		t := &o.loads[i]
		for k := range t.Slots {
			if t.Slots[k] == s && t.epochs[k] == r.epoch {
				t.orphans[k] = r.table
				return true
			}
		}
	}
	return false
}

func (o *Simple) giveBack(_ *Engine, table kv.Handle) { o.gpu.Release(table) }

func (o *Simple) settle(e *Engine) {
	for _, d := range o.done {
		if d.load {
			o.loaded(e, d.id)
		} else {
			o.stored(d.id)
		}
	}
	o.done = o.done[:0]
}

// loaded lets go of the blocks of a load and lets its requests go on.
func (o *Simple) loaded(e *Engine, id int64) {
	for i := range o.loads {
		t := &o.loads[i]
		if t.ID != id {
			continue
		}
		at := int32(0)
		for _, n := range t.counts {
			o.cpu.Unpin(t.CPU[at : at+n])
			o.gpu.Unpin(t.GPU[at : at+n])
			at += n
		}
		for k, s := range t.Slots {
			if t.orphans[k] != noTable {
				o.gpu.Release(t.orphans[k])
			} else if e.requests[s].epoch == t.epochs[k] {
				o.side[s].arrived = true
			}
		}
		o.loads = append(o.loads[:i], o.loads[i+1:]...)
		return
	}
}

// stored makes what a store copied hittable and lets go of its blocks.
func (o *Simple) stored(id int64) {
	for i := range o.stores {
		t := &o.stores[i]
		if t.ID != id {
			continue
		}
		for k, b := range t.GPU {
			o.copied[b] = false
			s, index, _ := o.gpu.Content(b)
			o.cpu.Fill(t.CPU[k], s, index)
		}
		o.cpu.Unpin(t.CPU)
		o.gpu.Unpin(t.GPU)
		o.stores = append(o.stores[:i], o.stores[i+1:]...)
		return
	}
}

func (o *Simple) asynchronous() bool { return true }

func (o *Simple) busy() bool { return false }

// steady is 0: blocks in transfer are pinned one by one, which a jump does not follow.
func (o *Simple) steady(*Engine) int32 { return 0 }

func (o *Simple) settled(*Engine, Slot) bool { return false }

func (o *Simple) jumped(int32) {}
