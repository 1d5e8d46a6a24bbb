package recorder

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-sim/sluice/gateway/content"
	"github.com/sluice-sim/sluice/prefix"
	"github.com/sluice-sim/sluice/traces"
)

// file is the trace that is being put together.
type file struct {
	block    int32
	begun    time.Time
	tree     *prefix.Tree
	known    map[content.Step]held // by stream of the gateway's tree (Upto is 0)
	models   map[string]int32
	names    []string
	sessions []traces.Session
	starts   []int64
	n        int
	dropped  map[string]int64
	notes    map[string]int64
}

// held says which stream of the file has the content of a stream of the gateway, and up to which token.
type held struct {
	stream prefix.StreamID
	upto   int32
}

func newFile(cfg *Config) *file {
	return &file{block: cfg.BlockTokens, begun: time.Now(), tree: &prefix.Tree{}, known: make(map[content.Step]held), models: make(map[string]int32),
		dropped: make(map[string]int64), notes: make(map[string]int64)}
}

func (f *file) turns() int { return f.n }

// What a trace and its report are called.
const (
	traceName    = "recorded"
	reportFormat = "sluice gateway"
)

// The texts of a report. Verify knows them.
var (
	dropReasons  = map[Outcome]string{Finished: "no output", Cut: "no output", NoOutput: "failed or cancelled before any output", Refused: "refused by the gateway"}
	noteCut      = "output cut short by a failure or by the client"
	noteSplit    = "sessions written in part"
	noteHashed   = "prompts hashed by "
	allowedTexts = []string{"no output", "failed or cancelled before any output", "refused by the gateway", noteCut, noteSplit,
		"session given up for want of memory", noteHashed + content.Tokens.String(), noteHashed + content.Bytes.String()}
)

// maxModels bounds the aliases in one file; what goes beyond is called by the last.
const maxModels = 256

// aliasForm is what a model's alias may look like; another is replaced.
var aliasForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:-]{0,63}$`)

func aliasOf(model string) string {
	if aliasForm.MatchString(model) {
		return model
	}
	return "model"
}

// model is the index of an alias.
func (f *file) model(alias string) int32 {
	if m, ok := f.models[alias]; ok {
		return m
	}
	if len(f.names) == maxModels {
		return maxModels - 1
	}
	f.models[alias] = int32(len(f.names))
	f.names = append(f.names, alias)
	return f.models[alias]
}

// add takes a session that has ended.
func (f *file) add(s *session) {
	for outcome, n := range s.early {
		f.dropped[dropReasons[outcome]] += n
	}
	if len(s.turns) == 0 {
		return
	}
	if len(s.turns) >= maxSessionTurns {
		f.notes[noteSplit]++
	}
	prompts := f.place(s.turns)
	order := make([]int, len(s.turns))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.turns[a].start, s.turns[b].start) })
	out := traces.Session{Group: -1}
	w := newWaits(&out, len(s.threads))
	threads := map[int32]int32{} // in order of their first turn, so that the root is 0
	numbers := make([]int32, len(s.threads))
	first := s.turns[order[0]].start
	for _, i := range order {
		t := &s.turns[i]
		thread, ok := threads[t.thread]
		if !ok {
			thread = int32(len(threads))
			threads[t.thread] = thread
		}
		numbers[thread]++
		w.add(traces.Turn{Thread: thread, Number: numbers[thread], Model: f.model(t.model), Prompt: prompts[i], OutputTokens: t.output,
			StartNS: t.start - first, DurationNS: t.end - t.start})
		if t.cut {
			f.notes[noteCut]++
		}
		f.notes[noteHashed+t.basis.String()]++
	}
	out.Threads = int32(len(threads))
	f.sessions, f.starts = append(f.sessions, out), append(f.starts, first)
	f.n += len(out.Turns)
}

// trace is the file as it is written: sessions in order of arrival, times from the first.
func (f *file) trace() *traces.Trace {
	order := make([]int, len(f.sessions))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(f.starts[a], f.starts[b]) })
	tr := &traces.Trace{Name: traceName, Tree: f.tree, Models: f.names}
	for n, i := range order {
		s := f.sessions[i]
		s.Name = "s" + strconv.Itoa(n)
		s.StartNS = f.starts[i] - f.starts[order[0]]
		tr.Sessions = append(tr.Sessions, s)
	}
	tr.Report = traces.Report{Format: reportFormat, Sessions: int64(len(tr.Sessions)), Turns: int64(f.n)}
	for _, reason := range slices.Sorted(maps.Keys(f.dropped)) {
		tr.Report.Turns += f.dropped[reason]
		tr.Report.Dropped = append(tr.Report.Dropped, traces.DropCount{Reason: reason, Turns: f.dropped[reason]})
	}
	for _, note := range slices.Sorted(maps.Keys(f.notes)) {
		tr.Report.Notes = append(tr.Report.Notes, traces.NoteCount{Note: note, Count: f.notes[note]})
	}
	return tr
}
