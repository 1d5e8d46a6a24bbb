package sim

import (
	"cmp"
	"errors"
	"io"
	"slices"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/traces"
)

// feed hands out the sessions of the source in the order in which they start, each when it is needed. Where that is not
// the order of the source, the source is held in memory.
type feed struct {
	cursor  traces.Cursor // nil when order says it
	held    *traces.Trace
	order   []int32
	threads []int32 // by session: threads of the sessions before it
	thread  int32   // threads of the sessions that cursor has handed out
	taken   int     // sessions handed out
	total   int
	start   int64  // of the next session, where arrivals have a rate
	next    pulled // the session that starts next by the clock
	waiting []pulled
	gone    int // of waiting, from the front
}

// pulled is a session that has not started.
type pulled struct {
	number  int32
	thread  int32 // its first, dense over all sessions
	session *traces.Session
}

// openFeed plans the order of the sessions.
func (r *run) openFeed() error {
	a, f := &r.cfg.Arrivals, &r.feed
	f.total = r.survey.Sessions
	if !a.Shuffle && (a.Process != Recorded || r.survey.InOrder) {
		var err error
		f.cursor, err = r.source.Open()
		return err
	}
	var err error
	if f.held, err = traces.Hold(r.source); err != nil {
		return err
	}
	f.order, f.threads = make([]int32, f.total), make([]int32, f.total)
	thread := int32(0)
	for i := range f.order {
		f.order[i], f.threads[i] = int32(i), thread
		thread += f.held.Sessions[i].Threads
	}
	if a.Shuffle {
		for i := f.total - 1; i > 0; i-- {
			j := exact.UniformInt(exact.Hash2(r.cfg.Seed, purposeOrder, uint64(i)), int64(i+1))
			f.order[i], f.order[j] = f.order[j], f.order[i]
		}
	}
	if a.Process == Recorded {
		slices.SortFunc(f.order, func(x, y int32) int {
			return cmp.Or(cmp.Compare(f.held.Sessions[x].StartNS, f.held.Sessions[y].StartNS), cmp.Compare(x, y))
		})
	}
	return nil
}

func (f *feed) close() error {
	if f.cursor == nil {
		return nil
	}
	return f.cursor.Close()
}

// left is how many sessions have not been handed out.
func (f *feed) left() int { return f.total - f.taken }

// pull takes the next session; there is one.
func (f *feed) pull() (pulled, error) {
	f.taken++
	if f.cursor == nil {
		n := f.order[f.taken-1]
		return pulled{n, f.threads[n], &f.held.Sessions[n]}, nil
	}
	s, err := f.cursor.Next()
	if errors.Is(err, io.EOF) {
		err = errors.New("the sessions end sooner than before; the trace was changed while it was read")
	}
	if err != nil {
		return pulled{}, err
	}
	x := pulled{int32(f.taken - 1), f.thread, s}
	f.thread += s.Threads
	return x, nil
}

// take removes session number from those that wait for their start.
func (f *feed) take(number int32) pulled {
	i := f.gone + slices.IndexFunc(f.waiting[f.gone:], func(x pulled) bool { return x.number == number })
	x := f.waiting[i]
	f.waiting[i], f.waiting[f.gone] = f.waiting[f.gone], pulled{}
	if f.gone++; f.gone == len(f.waiting) {
		f.waiting, f.gone = f.waiting[:0], 0
	}
	return x
}
