package traces

import (
	"cmp"
	"path/filepath"
	"slices"
)

// FileStats are the integers of one session file.
type FileStats struct {
	Name            string  `json:"name"`
	MainRequests    int64   `json:"main_requests"`
	Subagents       int64   `json:"subagents"`
	SubRequests     int64   `json:"sub_requests"`
	InputTokens     int64   `json:"in_tokens"`
	OutputTokens    int64   `json:"out_tokens"`
	Blocks          int64   `json:"blocks"`
	PrefixHitBlocks int64   `json:"prefix_hit_blocks"`
	UniqueBlocks    int64   `json:"unique_blocks"`
	Steps           int64   `json:"pairs"`
	Extends         int64   `json:"extends_full"`
	LastBlock       int64   `json:"last_block_only"`
	Breaks          int64   `json:"prefix_breaks"`
	NoService       int64   `json:"no_api_time"`
	OutputZero      int64   `json:"out_zero"`
	LastMain        float64 `json:"t_last_main"` // start of the last call of the main thread, s
}

// kvCounter collects the statistics of kv-cache-tester files.
type kvCounter struct {
	s                                          Stats
	cache                                      *cacheCounter
	in, out, gap, idle, api, think, ttft       []int64
	main, sub, first, final, tool, sys, length []int64
	fileHit                                    []float64
	types, models, stops                       tally
}

// StatsKVCacheTester reads one session file or a folder of them and describes what is recorded.
func StatsKVCacheTester(path string, limits Limits) (*Stats, error) {
	paths, err := kvPaths(path)
	if err != nil {
		return nil, err
	}
	c := &kvCounter{cache: newCacheCounter(kvBlock), types: tally{}, models: tally{}, stops: tally{}}
	c.s.Format, c.s.Name = FormatKVCacheTester, filepath.Base(filepath.Clean(path))
	if err := readKVFiles(paths, limits.orDefault(), c.file); err != nil {
		return nil, err
	}
	return c.finish(), nil
}

func (c *kvCounter) file(f *kvFile) error {
	fs := FileStats{Name: f.name, Subagents: int64(len(f.threads) - 1)}
	before := c.cache.CacheStats
	c.cache.namespace(f.nodes)
	order := f.order()
	end := int64(0)
	for _, ref := range order {
		call := f.at(ref)
		c.call(call, &fs)
		c.cache.request(call.path, call.in, call.startNS, ref.thread)
		end = max(end, call.startNS+max(0, call.apiNS))
	}
	c.length = append(c.length, end-f.at(order[0]).startNS)
	c.overlap(f)
	for t := range f.threads {
		c.sequence(&f.threads[t], t > 0, &fs)
	}
	c.types.add("subagent", fs.Subagents)
	c.tool, c.sys = append(c.tool, f.tool), append(c.sys, f.sys)
	after := c.cache.CacheStats
	fs.Blocks, fs.UniqueBlocks = after.Blocks-before.Blocks, after.UniqueBlocks-before.UniqueBlocks
	fs.PrefixHitBlocks = after.PrefixHitBlocks - before.PrefixHitBlocks
	c.fileHit = append(c.fileHit, float64(after.HitTokens-before.HitTokens)/float64(fs.InputTokens))
	c.s.Files = append(c.s.Files, fs)
	return nil
}

// call counts what a call has of its own.
func (c *kvCounter) call(call *kvCall, fs *FileStats) {
	c.in, c.out = append(c.in, call.in), append(c.out, call.out)
	fs.InputTokens += call.in
	fs.OutputTokens += call.out
	switch call.out {
	case 0:
		fs.OutputZero++
	case 1:
		c.s.OutputOne++
	}
	c.models.add(call.model, 1)
	c.stops.add(call.stop, 1)
	if call.apiNS == Unknown {
		fs.NoService++
	} else {
		c.api = append(c.api, call.apiNS)
	}
	if call.thinkNS == Unknown {
		c.s.NoThink++
	} else {
		c.think = append(c.think, call.thinkNS)
	}
	if call.ttftNS != Unknown {
		c.ttft = append(c.ttft, call.ttftNS)
	}
}

// sequence counts what lies between neighbours of the main thread or of a subagent.
func (c *kvCounter) sequence(th *kvThread, subagent bool, fs *FileStats) {
	n := int64(len(th.calls))
	if subagent {
		c.sub = append(c.sub, n)
		fs.SubRequests += n
	} else {
		c.main = append(c.main, n)
		fs.MainRequests = n
		for i := range th.calls {
			c.types.add(th.calls[i].kind, 1)
		}
		if n > 0 {
			c.first = append(c.first, th.calls[0].in)
			c.final = append(c.final, th.calls[n-1].in)
			fs.LastMain = float64(th.calls[n-1].startNS) / 1e9
		}
	}
	for i := 1; i < len(th.calls); i++ {
		a, b := &th.calls[i-1], &th.calls[i]
		gap := b.startNS - a.startNS
		c.gap = append(c.gap, gap)
		if a.apiNS != Unknown {
			c.idle = append(c.idle, gap-a.apiNS)
		}
		if 2*b.in < a.in {
			c.s.Halved++
		}
		common := 0
		for common < min(len(a.path), len(b.path)) && a.path[common] == b.path[common] {
			common++
		}
		fs.Steps++
		switch {
		case common == len(a.path):
			fs.Extends++
		case common == len(a.path)-1:
			fs.LastBlock++
		default:
			fs.Breaks++
		}
		if common == 0 {
			c.s.Unrelated++
		}
	}
}

// overlap finds how many calls run at once; calls without service time take none.
func (c *kvCounter) overlap(f *kvFile) {
	type event struct{ at, change int64 }
	var events []event
	for t := range f.threads {
		for i := range f.threads[t].calls {
			if call := &f.threads[t].calls[i]; call.apiNS > 0 {
				events = append(events, event{call.startNS, 1}, event{call.startNS + call.apiNS, -1})
			}
		}
	}
	slices.SortFunc(events, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.change, b.change)) })
	now, most := int64(0), int64(1)
	for _, e := range events {
		now += e.change
		most = max(most, now)
	}
	c.s.MaxOverlap = max(c.s.MaxOverlap, most)
	if most > 1 {
		c.s.Overlapping++
	}
}

func (c *kvCounter) finish() *Stats {
	s := &c.s
	for i := range s.Files {
		f := &s.Files[i]
		s.Sessions++
		s.Subagents += f.Subagents
		s.Requests += f.MainRequests + f.SubRequests
		s.OutputZero += f.OutputZero
		s.NoService += f.NoService
		s.Steps += f.Steps
		s.Extends += f.Extends
		s.LastBlock += f.LastBlock
		s.Breaks += f.Breaks
	}
	s.Sequences = s.Sessions + s.Subagents
	s.Types, s.Models, s.Stops = c.types.counted(), c.models.counted(), c.stops.counted()
	for _, d := range []struct {
		to    **Dist
		v     []int64
		scale float64
	}{
		{&s.InputTokens, c.in, 1}, {&s.OutputTokens, c.out, 1}, {&s.Gap, c.gap, 1e9}, {&s.Idle, c.idle, 1e9},
		{&s.ServiceTime, c.api, 1e9}, {&s.Think, c.think, 1e9}, {&s.TTFT, c.ttft, 1e9}, {&s.TurnsPerSession, c.main, 1},
		{&s.TurnsPerSubagent, c.sub, 1}, {&s.FirstInput, c.first, 1}, {&s.FinalInput, c.final, 1},
		{&s.ToolTokens, c.tool, 1}, {&s.SystemTokens, c.sys, 1}, {&s.Duration, c.length, 1e9},
	} {
		*d.to = newDist(d.v, d.scale)
	}
	s.FileTokenHit = floatDist(c.fileHit)
	s.Cache = c.cache.finish()
	return s
}
