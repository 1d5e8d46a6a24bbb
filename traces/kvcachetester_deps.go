package traces

import "slices"

// kvResolution is the rounding of the recorded start times: whole seconds.
const kvResolution int64 = 1e9

// kvDeps finds what each turn of a session waits for: the previous call of its thread, the call that spawned its
// subagent, or the subagents that its parent waited for.
type kvDeps struct {
	b       *kvBuilder
	file    *kvFile
	turnOf  [][]int32
	service [][]int64 // by thread and call, estimated where it was not recorded; Unknown when the trace has none
	deps    [][]Dep   // by turn
}

func newKVDeps(b *kvBuilder, i int, f *kvFile, overall int64) *kvDeps {
	d := &kvDeps{b: b, file: f, turnOf: b.turnOf[i], deps: make([][]Dep, f.calls())}
	var all []int64
	for t := range f.threads {
		all = appendServices(all, f.threads[t].calls)
	}
	ofFile := median(all)
	for t := range f.threads {
		calls := f.threads[t].calls
		estimate, note := median(appendServices(nil, calls)), noteThreadMedian
		if estimate == Unknown {
			estimate, note = ofFile, noteFileMedian
		}
		if estimate == Unknown {
			estimate, note = overall, noteTraceMedian
		}
		if estimate == Unknown {
			note = noteNoService
		}
		service := make([]int64, len(calls))
		for c := range calls {
			service[c] = calls[c].apiNS
			if service[c] == Unknown {
				service[c] = estimate
				b.notes.add(note, 1)
			}
		}
		d.service = append(d.service, service)
	}
	return d
}

// end is when a call ended, its start where no service time is known at all.
func (d *kvDeps) end(thread, call int) int64 {
	return d.file.threads[thread].calls[call].startNS + max(0, d.service[thread][call])
}

func (d *kvDeps) build(s *Session) {
	running := make([][]int, len(d.file.threads))
	for t := range d.file.threads {
		running[t] = d.chain(s, t)
	}
	d.spawnAndJoin(running)
	for i := range s.Turns {
		if i > 0 && len(d.deps[i]) == 0 { // keeps its recorded distance from the session's first turn
			d.deps[i] = []Dep{{Turn: 0, On: OnDispatch, DelayNS: d.gap(s.Turns[i].StartNS - s.Turns[0].StartNS)}}
		}
		s.Turns[i].DepLo = int32(len(s.Deps))
		s.Deps = append(s.Deps, d.deps[i]...)
		s.Turns[i].DepHi = int32(len(s.Deps))
	}
}

// gap applies the rules for tool gaps: at least 0, at most the idle cap.
func (d *kvDeps) gap(ns int64) int64 {
	if ns < 0 {
		d.b.notes.add(noteNegativeGap, 1)
		return 0
	}
	if limit := d.b.opt.IdleCapNS; limit > 0 && ns > limit {
		d.b.notes.add(noteCapped, 1)
		return limit
	}
	return ns
}

func (d *kvDeps) add(thread, call int, dep Dep) {
	turn := d.turnOf[thread][call]
	d.deps[turn] = append(d.deps[turn], dep)
}

// chain makes every call of a thread wait for the one before it. It returns the calls that were overlapped and that no
// later call has waited for.
func (d *kvDeps) chain(s *Session, thread int) (running []int) {
	calls, turns := d.file.threads[thread].calls, d.turnOf[thread]
	for i := 1; i < len(calls); i++ {
		before := turns[i-1]
		if d.service[thread][i-1] == Unknown {
			d.add(thread, i, Dep{Turn: before, On: OnDispatch, DelayNS: d.gap(calls[i].startNS - calls[i-1].startNS)})
			d.add(thread, i, Dep{Turn: before, On: OnCompletion})
			continue
		}
		gap := calls[i].startNS - d.end(thread, i-1)
		if gap < -kvResolution && calls[i-1].apiNS != Unknown && !d.holdsOutput(&s.Turns[before], &s.Turns[turns[i]]) {
			d.b.notes.add(noteOverlap, 1)
			d.add(thread, i, Dep{Turn: before, On: OnDispatch, DelayNS: calls[i].startNS - calls[i-1].startNS})
			running = append(running, i-1)
			continue
		}
		d.add(thread, i, Dep{Turn: before, On: OnCompletion, DelayNS: d.gap(gap)})
		running = slices.DeleteFunc(running, func(r int) bool {
			wait := calls[i].startNS - d.end(thread, r)
			if wait < 0 {
				return false
			}
			d.add(thread, i, Dep{Turn: turns[r], On: OnCompletion, DelayNS: d.gap(wait)})
			return true
		})
	}
	return running
}

// holdsOutput says whether the prompt of next holds some of the output of t.
func (d *kvDeps) holdsOutput(t, next *Turn) bool {
	whole := t.Prompt
	whole.Tokens += t.OutputTokens
	return d.b.trace.Tree.Common(whole, next.Prompt) > t.Prompt.Tokens
}

// spawnAndJoin ties the subagents to their parent. A completed one is spawned by the parent's last call that had ended
// when it started and joined by the parent's first call after its end; the parent's own wait then counts from the end of
// the last subagent, for the recorded gap of the parent contains the time it waited. An asynchronous one is spawned only.
func (d *kvDeps) spawnAndJoin(running [][]int) {
	joined := map[int][]int{} // parent call to subagents
	parent := d.file.threads[0].calls
	for t := 1; t < len(d.file.threads); t++ {
		th := &d.file.threads[t]
		if len(th.calls) == 0 {
			continue
		}
		spawn := d.spawning(th)
		if spawn < 0 {
			d.b.notes.add(noteOrphan, 1)
		} else {
			d.add(t, 0, Dep{Turn: d.turnOf[0][spawn], On: OnCompletion, DelayNS: d.gap(max(0, th.calls[0].startNS-d.end(0, spawn)))})
		}
		if th.async {
			continue
		}
		last := d.turnOf[t][len(th.calls)-1]
		for j := spawn + 1; j < len(parent); j++ {
			if parent[j].startNS+kvResolution >= th.endNS && last < d.turnOf[0][j] {
				joined[j] = append(joined[j], t)
				if j == spawn+1 && j > 0 {
					d.waitsForSubagents(j)
				}
				break
			}
		}
	}
	for j := range parent {
		d.join(j, joined[j], running)
	}
}

// spawning is the parent's call whose tool calls started the subagent, -1 for none.
func (d *kvDeps) spawning(th *kvThread) int {
	parent := d.file.threads[0].calls
	started := -1
	for i := range parent {
		if parent[i].startNS > th.startNS {
			break
		}
		started = i
	}
	for i := started; i >= 0; i-- {
		if d.end(0, i) <= th.startNS+kvResolution {
			return i
		}
	}
	return started
}

// waitsForSubagents takes the recorded gap out of the parent's chain: the joins carry it.
func (d *kvDeps) waitsForSubagents(call int) {
	deps := d.deps[d.turnOf[0][call]]
	for i := range deps {
		deps[i].DelayNS = 0
	}
}

// join makes the parent's call wait for subagents: for each the time from its last call to its recorded end, and then
// the parent's own gap after the last of them.
func (d *kvDeps) join(call int, subagents []int, running [][]int) {
	if len(subagents) == 0 {
		return
	}
	lastEnd := d.file.threads[subagents[0]].endNS
	for _, t := range subagents {
		lastEnd = max(lastEnd, d.file.threads[t].endNS)
	}
	own := max(0, d.file.threads[0].calls[call].startNS-lastEnd)
	for _, t := range subagents {
		th := &d.file.threads[t]
		for _, c := range append(running[t], len(th.calls)-1) {
			rest := max(0, th.endNS-d.end(t, c))
			d.add(0, call, Dep{Turn: d.turnOf[t][c], On: OnCompletion, DelayNS: d.gap(rest + own)})
		}
	}
}
