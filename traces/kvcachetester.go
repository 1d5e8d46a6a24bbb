package traces

import (
	"path/filepath"
	"slices"

	"github.com/sluice-sim/sluice/prefix"
)

// FormatKVCacheTester names the session files of the kv-cache-tester project: one JSON object per Claude Code
// conversation, with chained prefix hashes of 64-token blocks that mean nothing outside their file.
const FormatKVCacheTester = "kv-cache-tester"

// Notes of the kv-cache-tester reader.
const (
	noteOutput0      = "output of 0 tokens run as 1"
	noteNegativeGap  = "negative tool gap set to 0"
	noteCapped       = "tool gap capped"
	noteOverlap      = "overlapping call, dispatched with its predecessor still running"
	noteThreadMedian = "missing api_time, median of the thread used for the tool gap"
	noteFileMedian   = "missing api_time, median of the file used for the tool gap"
	noteTraceMedian  = "missing api_time, median of the trace used for the tool gap"
	noteNoService    = "no service times in the trace, turn waits for dispatch plus recorded distance and for completion"
	noteBackward     = "call out of time order, sorted"
	noteOrphan       = "subagent before the first call of its parent, started with the session"
	noteModelSwitch  = "model switch within a thread, content starts anew"
	noteShared       = "session joined to a shared prefix"
	noteEmptyThread  = "subagent without calls left out"
)

// ReadKVCacheTester reads one session file, plain or gzip-ed, or all of a folder in order of name. Every call becomes a
// turn; subagents become threads of their session that run beside it as recorded. Faults of the input are InputErrors.
func ReadKVCacheTester(path string, opt Options) (*Trace, error) {
	opt, err := opt.checked()
	if err != nil {
		return nil, err
	}
	paths, err := kvPaths(path)
	if err != nil {
		return nil, err
	}
	b := newKVBuilder(filepath.Base(filepath.Clean(path)), opt)
	if err := readKVFiles(paths, opt.Limits, b.addFile); err != nil {
		return nil, err
	}
	return b.finish(), nil
}

// sharedKey is what sessions have in common when they share a system prompt.
type sharedKey struct {
	model     string
	tool, sys int64
}

// kvBuilder turns files into sessions. Content is built file by file, so that the ids of one file at a time are in
// memory; dependencies need the medians of the whole trace and come last.
type kvBuilder struct {
	opt    Options
	trace  *Trace
	models map[string]int32
	shared map[sharedKey]prefix.StreamID
	files  []*kvFile
	turnOf [][][]int32 // by file, thread, call: index of the turn in its session
	notes  tally
}

func newKVBuilder(name string, opt Options) *kvBuilder {
	return &kvBuilder{
		opt:    opt,
		trace:  &Trace{Name: name, Tree: &prefix.Tree{}, Report: Report{Format: FormatKVCacheTester}},
		models: map[string]int32{},
		shared: map[sharedKey]prefix.StreamID{},
		notes:  tally{},
	}
}

// kvModel is the content of one file under one model.
type kvModel struct {
	content *content
	used    map[sharedKey]bool // shared prefixes that the file has joined
}

// addFile builds the content and the turns of one session and lets go of the file's ids.
func (b *kvBuilder) addFile(f *kvFile) error {
	b.notes.add(noteBackward, f.backward)
	turnOf := make([][]int32, len(f.threads))
	tails := make([]map[string]*tail, len(f.threads))
	lastModel := make([]string, len(f.threads))
	for t := range f.threads {
		turnOf[t] = make([]int32, len(f.threads[t].calls))
		tails[t] = map[string]*tail{}
		if len(f.threads[t].calls) == 0 && t > 0 {
			b.notes.add(noteEmptyThread, 1)
		}
	}
	models := map[string]*kvModel{}
	order := f.order()
	s := Session{Name: f.name, StartNS: Unknown, Group: -1, Threads: int32(len(f.threads)), Turns: make([]Turn, 0, len(order))}
	base := f.at(order[0]).startNS
	for _, ref := range order {
		c := f.at(ref)
		m := models[c.model]
		if m == nil {
			m = &kvModel{content: newContent(b.trace.Tree, kvBlock, b.opt.OutputReuse, f.nodes), used: map[sharedKey]bool{}}
			models[c.model] = m
		}
		if last := lastModel[ref.thread]; last != "" && last != c.model {
			b.notes.add(noteModelSwitch, 1)
		}
		lastModel[ref.thread] = c.model
		out := c.out
		if out == 0 {
			out = 1
			b.notes.add(noteOutput0, 1)
		}
		th := &f.threads[ref.thread]
		root := func() prefix.StreamID { return b.root(m, sharedKey{c.model, th.tool, th.sys}, c.in) }
		t := m.content.add(c.path, int32(c.in), int32(out), tails[ref.thread][c.model], root)
		tails[ref.thread][c.model] = t
		turnOf[ref.thread][ref.call] = int32(len(s.Turns))
		s.Turns = append(s.Turns, Turn{
			Thread: ref.thread, Number: ref.call + 1, Model: b.model(c.model),
			Prompt: t.prompt, OutputTokens: int32(out),
			StartNS: c.startNS - base, DurationNS: c.apiNS,
		})
		c.path = nil
	}
	b.trace.Sessions = append(b.trace.Sessions, s)
	b.files = append(b.files, f)
	b.turnOf = append(b.turnOf, turnOf)
	r := &b.trace.Report
	r.Files++
	r.Bytes += f.bytes
	r.Sessions++
	r.Turns += int64(len(order))
	return nil
}

func (b *kvBuilder) model(name string) int32 {
	i, ok := b.models[name]
	if !ok {
		i = int32(len(b.trace.Models))
		b.trace.Models = append(b.trace.Models, name)
		b.models[name] = i
	}
	return i
}

// root makes the stream of a prompt that shares nothing known within its file. The first such prompt of a system prompt
// joins the sessions with the same one; a later one differs from the first in its first block, so it stays apart.
func (b *kvBuilder) root(m *kvModel, key sharedKey, in int64) prefix.StreamID {
	n := min((key.tool+key.sys)/kvBlock, in/kvBlock) * kvBlock
	if b.opt.SharedPrefix != SharedAuto || n == 0 || m.used[key] {
		return b.trace.Tree.Root()
	}
	m.used[key] = true
	s, ok := b.shared[key]
	if !ok {
		s = b.trace.Tree.Root()
		b.shared[key] = s
	}
	b.notes.add(noteShared, 1)
	return b.trace.Tree.Fork(prefix.Prefix{Stream: s, Tokens: int32(n)})
}

// finish adds the dependencies and applies the choice of models.
func (b *kvBuilder) finish() *Trace {
	var all []int64
	for _, f := range b.files {
		for t := range f.threads {
			all = appendServices(all, f.threads[t].calls)
		}
	}
	overall := median(all)
	for i, f := range b.files {
		d := newKVDeps(b, i, f, overall)
		d.build(&b.trace.Sessions[i])
	}
	b.trace.Report.addNotes(b.notes)
	if b.opt.Models == ModelsMain {
		return dropTurns(b.trace, reasonOtherModel, otherModel)
	}
	return b.trace
}

const reasonOtherModel = "other model"

// otherModel says whether a turn's model is not the one that the session's root thread calls most, the earlier on a tie.
func otherModel(s *Session) func(*Turn) bool {
	count := map[int32]int{}
	for i := range s.Turns {
		if s.Turns[i].Thread == 0 {
			count[s.Turns[i].Model]++
		}
	}
	main, most := int32(-1), 0
	for i := range s.Turns {
		if m := s.Turns[i].Model; count[m] > most {
			main, most = m, count[m]
		}
	}
	return func(t *Turn) bool { return main >= 0 && t.Model != main }
}

// appendServices appends the recorded service times of the calls.
func appendServices(dst []int64, calls []kvCall) []int64 {
	for i := range calls {
		if calls[i].apiNS != Unknown {
			dst = append(dst, calls[i].apiNS)
		}
	}
	return dst
}

// median sorts v and returns its middle, the mean of the two middle values when their number is even; Unknown when v is
// empty.
func median(v []int64) int64 {
	if len(v) == 0 {
		return Unknown
	}
	slices.Sort(v)
	n := len(v)
	if n%2 == 1 {
		return v[n/2]
	}
	return v[n/2-1] + (v[n/2]-v[n/2-1])/2
}
