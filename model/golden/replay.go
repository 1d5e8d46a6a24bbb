package golden

import (
	"encoding/json"
	"fmt"
	"math"
	"sort"

	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/model/kv"
	"github.com/sluice-sim/sluice/prefix"
)

// Difference is the first place where the replay and the recording part.
type Difference struct {
	Step     int64 // iteration; -1 for the totals of the file
	Field    string
	Expected string
	Got      string
}

// Result is what one file came to.
type Result struct {
	Name       string
	Steps      int // compared
	Fields     int // compared
	Difference *Difference
}

// Options chooses the pool to replay with.
type Options struct {
	// Extent replays with the extent pool, which has no block ids: the fields blk and fq and the GPU blocks of off.load
	// and off.store are left out, and of evictions only their number in each iteration is compared.
	Extent bool
}

// VerifyFile replays one golden file. The error is about the file itself; a difference is in the result.
func VerifyFile(path string, opt Options) (Result, error) {
	g, err := Load(path)
	if err != nil {
		return Result{}, err
	}
	res, err := Verify(g, opt)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", path, err)
	}
	return res, nil
}

// replay is the state of one run through a file.
type replay struct {
	g       *File
	opt     Options
	loop    *engine.Loop
	ref     *kv.Reference // nil with the extent pool
	paths   [][]prefix.Segment
	prompts []prefix.Prefix
	slot    []engine.Slot // by request, -1 when it is not live
	epoch   []uint32
	request []int64 // by slot
	names   map[name]int64
	table   []int64 // request by pool handle
	adds    int64
	flight  []int64 // iterations of the steps in flight
	resets  int
	res     Result
	got     map[string]string // what this iteration produced, by field; absent means empty
	evicted int
	sums    map[string]int64
	pcSums  [6]int64
	worker  worker // nil without a CPU tier
}

// name is a request by slot and epoch; unlike the slot alone it still means the request after its end.
type name struct {
	slot  engine.Slot
	epoch uint32
}

// Verify replays a golden file.
func Verify(g *File, opt Options) (Result, error) {
	if opt.Extent && g.Offload != nil && g.Offload.Connector == simpleConnector {
		return Result{}, fmt.Errorf("the simple connector pins single blocks, which the extent pool does not have; replay it with the reference pool")
	}
	r := &replay{g: g, opt: opt, sums: map[string]int64{}, names: map[name]int64{}, res: Result{Name: g.Name}}
	r.setUp()
	for i := range g.Steps {
		st := &g.Steps[i]
		if err := r.step(st); err != nil {
			return r.res, fmt.Errorf("step t=%d: %w", st.T, err)
		}
		if r.res.Difference != nil {
			return r.res, nil
		}
		r.res.Steps++
	}
	r.totals()
	return r.res, nil
}

func (r *replay) setUp() {
	c := &r.g.Config
	var tree content
	for i := range r.g.Requests {
		q := &r.g.Requests[i]
		seq, prompt := q.tokens()
		s := tree.add(seq)
		r.prompts = append(r.prompts, prefix.Prefix{Stream: s, Tokens: prompt})
		r.paths = append(r.paths, tree.tree.Segments(prefix.Prefix{Stream: s, Tokens: int32(len(seq))}, c.BlockSize, nil))
		r.slot = append(r.slot, -1)
		r.epoch = append(r.epoch, 0)
	}
	var pool kv.Pool
	if r.opt.Extent {
		pool = kv.NewExtent(c.NumBlocks-1, c.PrefixCaching)
	} else {
		r.ref = kv.NewReference(c.NumBlocks-1, c.PrefixCaching)
		pool = r.ref
	}
	pool.Record(true, true)
	r.loop = engine.NewLoop(engine.New(&engine.Config{
		BlockTokens: c.BlockSize, MaxNumSeqs: c.MaxNumSeqs, MaxBatchedTokens: c.MaxNumBatchedTokens,
		LongPrefillTokens: c.LongPrefillThreshold, MaxModelLen: c.MaxModelLen, ChunkedPrefill: c.ChunkedPrefill,
		PrefixCaching: c.PrefixCaching, ReserveFullISL: c.ReserveFullISL, Watermark: c.Watermark,
		Priority: c.Policy == "priority", Async: c.AsyncScheduling,
	}, pool))
	if o := r.g.Offload; o != nil {
		r.connect(o)
	}
}

// step replays one recorded iteration and compares it.
func (r *replay) step(st *Step) error {
	r.got = map[string]string{}
	r.evicted = 0
	if err := r.inputs(st); err != nil {
		return err
	}
	outcome, scheduled, _ := r.loop.Advance()
	if scheduled != nil {
		r.scheduled(st.T, scheduled)
	}
	if raw, ok := st.Fields["mid"]; ok {
		var ids []int64
		if err := json.Unmarshal(raw, &ids); err != nil {
			return fmt.Errorf("mid: %w", err)
		}
		for _, id := range ids {
			if err := r.abort(id); err != nil {
				return err
			}
		}
	}
	if outcome == engine.Blocked {
		r.updated()
	}
	r.endState()
	return r.compare(st)
}

func (r *replay) inputs(st *Step) error {
	raw, ok := st.Fields["in"]
	if !ok {
		return nil
	}
	var in [][]any
	if err := json.Unmarshal(raw, &in); err != nil {
		return fmt.Errorf("in: %w", err)
	}
	var got []any
	for _, x := range in {
		what, id, err := input(x)
		if err != nil {
			return err
		}
		switch what {
		case "add":
			if id >= int64(len(r.g.Requests)) {
				return fmt.Errorf("in: request %d is not in the file", id)
			}
			got = append(got, []any{"add", id, r.loop.Hit(r.paths[id], r.prompts[id].Tokens)})
			r.add(id, st.T)
		case "abort":
			if err := r.abort(id); err != nil {
				return err
			}
			got = append(got, []any{"abort", id})
		case "reset":
			done := r.loop.Reset(id != 0)
			if done {
				r.resets++
			}
			if both, _ := x[2].(float64); both != 0 && r.worker != nil {
				if r.loop.Offload() == nil {
					return fmt.Errorf("in: reset of the tier behind a simple connector, which verify does not replay")
				}
				r.loop.ResetTier()
			}
			got = append(got, append(append([]any{}, x[:3]...), done))
		}
	}
	r.got["in"] = text(got)
	return nil
}

func input(x []any) (what string, id int64, err error) {
	if len(x) >= 2 {
		what, _ = x[0].(string)
		f, ok := x[1].(float64)
		want := map[string]int{"add": 3, "abort": 2, "reset": 4}[what]
		if ok && f >= 0 && f < 1<<31 && len(x) == want {
			return what, int64(f), nil
		}
	}
	return "", 0, fmt.Errorf("in: %v is not an add, abort or reset", x)
}

func (r *replay) add(id, t int64) {
	q := &r.g.Requests[id]
	arrival := t*1_000_000 + r.adds
	if q.ArrivalAt != nil {
		arrival = int64(math.Round(*q.ArrivalAt * 1e6))
	}
	r.adds++
	stop := int32(0)
	if q.EOSAt != nil {
		stop = *q.EOSAt + 1
	}
	s := r.loop.Add(engine.Request{
		ID: id, Prompt: r.prompts[id], MaxTokens: q.MaxTokens, StopAfter: stop,
		Priority: q.Priority, Arrival: arrival, Path: r.paths[id],
	})
	r.slot[id], r.epoch[id] = s, r.loop.Epoch(s)
	for int(s) >= len(r.request) {
		r.request = append(r.request, -1)
	}
	r.request[s] = id
	r.names[name{s, r.epoch[id]}] = id
	r.sums["requests"]++
}

// abort ends a request; an unknown or finished id is no error.
func (r *replay) abort(id int64) error {
	if id < 0 || id >= int64(len(r.slot)) {
		return fmt.Errorf("abort: request %d is not in the file", id)
	}
	r.sums["aborted"]++
	if s := r.slot[id]; s >= 0 && r.loop.Epoch(s) == r.epoch[id] {
		r.loop.Abort(s)
	}
	return nil
}

// scheduled notes what a schedule call did.
func (r *replay) scheduled(t int64, st *engine.Step) {
	r.flight = append(r.flight, t)
	n := [][]int64{}
	for _, x := range st.Entries {
		n = append(n, []int64{r.request[x.Slot], int64(x.Tokens)})
		r.sums["scheduled_tokens"] += int64(x.Tokens)
	}
	r.got["n"] = text(n)
	var fresh, resumed, pre []any
	var blkNew, blkRun, blkRes []any
	admitted := map[engine.Slot]bool{}
	for _, a := range r.loop.Admitted {
		admitted[a.Slot] = true
		id := r.request[a.Slot]
		r.bind(a.Slot)
		if a.Resumed {
			resumed = append(resumed, []int64{id, int64(a.Hit)})
			blkRes = r.blocks(blkRes, id, a.Slot, 0)
		} else {
			fresh = append(fresh, []int64{id, int64(a.Hit)})
			blkNew = r.blocks(blkNew, id, a.Slot, 0)
		}
	}
	for _, s := range r.loop.Preempted {
		pre = append(pre, r.request[s])
	}
	r.sums["preemptions"] += int64(len(pre))
	for _, x := range st.Entries {
		if !admitted[x.Slot] {
			blkRun = r.blocks(blkRun, r.request[x.Slot], x.Slot, r.held(x))
		}
	}
	r.put("new", fresh)
	r.put("res", resumed)
	r.put("pre", pre)
	r.put("blk", append(append(blkNew, blkRun...), blkRes...))
	if r.worker != nil {
		r.worker.scheduled(r, t, st)
	}
}

// held is how many blocks a running request held before this step gave it more.
func (r *replay) held(x engine.Entry) int32 {
	b := r.g.Config.BlockSize
	return (x.Past + b - 1) / b
}

func (r *replay) blocks(to []any, id int64, s engine.Slot, from int32) []any {
	if r.ref == nil {
		return to
	}
	if t := r.ref.Table(r.loop.Table(s)); int(from) < len(t) {
		to = append(to, []any{id, append([]int32{}, t[from:]...)})
	}
	return to
}

// bind remembers which request a pool table belongs to.
func (r *replay) bind(s engine.Slot) {
	h := r.loop.Table(s)
	for int(h) >= len(r.table) {
		r.table = append(r.table, -1)
	}
	r.table[h] = r.request[s]
}

// updated processes the oldest step in flight.
func (r *replay) updated() {
	if r.g.Config.AsyncScheduling {
		r.got["up"] = text(r.flight[0])
	}
	r.flight = r.flight[1:]
	if r.worker != nil {
		r.worker.report()
	}
	r.loop.Complete()
	var fin []any
	for _, f := range r.loop.Finished {
		fin = append(fin, []any{r.request[f.Slot], f.Reason.String()})
	}
	r.sums["finished"] += int64(len(fin))
	r.put("fin", fin)
	p := r.loop.TakePrefixStats()
	pc := [6]int64{p.Requests, p.Queries, p.Hits, p.PreemptedRequests, p.PreemptedQueries, p.PreemptedHits}
	if pc != [6]int64{} {
		r.got["pc"] = text(pc[:])
	}
	for i := range pc {
		r.pcSums[i] += pc[i]
	}
	if r.worker != nil {
		r.external()
	}
	if r.resets > 0 {
		r.got["pcreset"] = "1"
		r.resets = 0
	}
}

func (r *replay) endState() {
	var ev []any
	p := r.loop.Pool()
	for _, e := range p.Events() {
		switch e.Kind {
		case kv.Stored:
			r.sums["stored_blocks"] += int64(e.Hi - e.Lo)
			if last := len(ev) - 1; e.More {
				x := ev[last].([]any)
				x[3] = x[3].(int32) + e.Hi - e.Lo
			} else {
				ev = append(ev, []any{"s", r.table[e.Handle], e.Lo, e.Hi - e.Lo})
			}
		case kv.Evicted:
			r.sums["evicted_blocks"] += int64(e.Hi - e.Lo)
			r.evicted += int(e.Hi - e.Lo)
			if r.ref != nil {
				ev = append(ev, []any{"r", e.Block})
			}
		}
	}
	p.ClearEvents()
	r.put("ev", ev)
	r.got["q"] = text([]int{r.loop.Running(), r.loop.Waiting(), r.loop.Skipped()})
	r.got["free"] = text(p.Free())
	r.got["usage"] = text(r.loop.Usage())
	r.got["ch"] = text(p.Cached())
	if r.ref != nil {
		r.got["fq"] = text(r.ref.QueueCRC())
	}
	if r.worker != nil {
		r.got["cpu"] = text(r.worker.state())
	}
	r.sums["iterations"]++
}

func (r *replay) put(field string, v []any) {
	if len(v) > 0 {
		r.got[field] = text(v)
	}
}

// compare checks every field of the iteration, those that are absent on one side included.
func (r *replay) compare(st *Step) error {
	names := map[string]bool{}
	for f := range st.Fields {
		names[f] = f != "t" && f != "mid"
	}
	for f := range r.got {
		names[f] = true
	}
	order := make([]string, 0, len(names))
	for f, ok := range names {
		if ok {
			order = append(order, f)
		}
	}
	sort.Strings(order)
	for _, f := range order {
		want, err := expected(st.Fields[f], f)
		if err != nil {
			return err
		}
		if r.ref == nil {
			switch f {
			case "blk", "fq":
				continue
			case "off.load", "off.store":
				if want, err = withoutBlocks(st.Fields[f], f); err != nil {
					return err
				}
			case "ev":
				var n int
				if want, n, err = storesOnly(st.Fields[f]); err != nil {
					return err
				}
				if n != r.evicted {
					r.differ(st.T, "ev", fmt.Sprintf("%d evictions", n), fmt.Sprintf("%d evictions", r.evicted))
					return nil
				}
			}
		}
		r.res.Fields++
		if got := r.got[f]; got != want {
			r.differ(st.T, f, want, got)
			return nil
		}
	}
	return nil
}

func (r *replay) differ(step int64, field, want, got string) {
	show := func(s string) string {
		if s == "" {
			return "nothing"
		}
		return s
	}
	r.res.Difference = &Difference{Step: step, Field: field, Expected: show(want), Got: show(got)}
}

// totals compares the sums over the file.
func (r *replay) totals() {
	r.sums["last_t"] = r.g.Steps[len(r.g.Steps)-1].T
	pc := text(r.pcSums[:])
	names := make([]string, 0, len(r.g.Totals))
	for k := range r.g.Totals {
		names = append(names, k)
	}
	sort.Strings(names)
	for _, k := range names {
		if k == "offload" {
			if !r.offloadTotals(r.g.Totals[k]) {
				return
			}
			continue
		}
		got := text(r.sums[k])
		if k == "pc" {
			got = pc
		}
		if want := text(r.g.Totals[k]); want != got {
			r.differ(-1, "totals."+k, want, got)
			return
		}
		r.res.Fields++
	}
}
