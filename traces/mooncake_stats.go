package traces

import (
	"cmp"
	"path/filepath"
	"slices"
)

// StatsMooncake reads a Mooncake file and describes what is recorded. Sessions are the derived ones, unless the rows
// name theirs.
func StatsMooncake(path string, limits Limits) (*Stats, error) {
	f, err := readMooncakeFile(path, limits.orDefault())
	if err != nil {
		return nil, err
	}
	rows := f.rows
	if f.explicit {
		slices.SortStableFunc(rows, func(a, b mcRow) int { return cmp.Compare(a.timeNS, b.timeNS) })
	}
	s := &Stats{Format: FormatMooncake, Name: filepath.Base(path), Sessions: int64(f.sessions), Requests: int64(len(rows)),
		DerivedSessions: !f.explicit}
	cache := newCacheCounter(mcBlock)
	cache.namespace(f.nodes)
	turns := make([]int64, f.sessions)
	perMinute := map[int64]int64{}
	var in, out, gap []int64
	for i := range rows {
		r := &rows[i]
		cache.request(r.path, r.in, r.timeNS, r.session)
		in, out = append(in, r.in), append(out, r.out)
		switch r.out {
		case 0:
			s.OutputZero++
		case 1:
			s.OutputOne++
		}
		if r.parent >= 0 {
			s.WithParent++
			gap = append(gap, r.gapNS)
		}
		turns[r.session]++
		minute := r.timeNS / 60e9
		perMinute[minute]++
		s.MaxPerMinute = max(s.MaxPerMinute, perMinute[minute])
	}
	for _, n := range turns {
		if n > 1 {
			s.MultiTurn++
		}
	}
	first, last := float64(rows[0].timeNS)/1e9, float64(rows[len(rows)-1].timeNS)/1e9
	span := float64(rows[len(rows)-1].timeNS-rows[0].timeNS) / 1e9
	s.FirstTime, s.LastTime, s.Span = &first, &last, &span
	if span > 0 {
		rate := float64(len(rows)) / span
		s.Rate = &rate
	}
	s.InputTokens, s.OutputTokens = newDist(in, 1), newDist(out, 1)
	s.Gap, s.TurnsPerSession = newDist(gap, 1e9), newDist(turns, 1)
	s.Cache = cache.finish()
	return s, nil
}
