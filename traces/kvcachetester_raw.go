package traces

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// kvBlock is the block size of kv-cache-tester's hash ids, in tokens.
const kvBlock = 64

// kvFile is one kv-cache-tester session file as recorded.
type kvFile struct {
	path      string
	name      string
	bytes     int64
	tool, sys int64 // tokens of tool definitions and system prompt, part of the prompts of the main thread
	threads   []kvThread
	nodes     int   // distinct hash ids; the nodes of calls are below
	backward  int64 // calls whose t was before that of the call above them; the threads here are in order of time
}

// kvThread is the main thread (index 0 of a file) or one subagent.
type kvThread struct {
	startNS   int64 // a subagent's start, 0 for the main thread
	endNS     int64 // a completed subagent's end
	async     bool  // the parent went on
	tool, sys int64
	calls     []kvCall
}

// kvCall is one LLM call.
type kvCall struct {
	startNS int64 // from the start of the conversation, also inside a subagent
	apiNS   int64 // Unknown when missing; think and ttft too
	thinkNS int64
	ttftNS  int64
	in, out int64
	model   string
	kind    string // n or s
	stop    string
	path    []int32 // nodes of the full blocks
}

type kvJSON struct {
	ID        *string       `json:"id"`
	BlockSize *int64        `json:"block_size"`
	HashScope *string       `json:"hash_id_scope"`
	Tool      *int64        `json:"tool_tokens"`
	System    *int64        `json:"system_tokens"`
	Requests  []kvEntryJSON `json:"requests"`
}

type kvEntryJSON struct {
	Type    *string      `json:"type"`
	T       *jsonSeconds `json:"t"`
	Model   *string      `json:"model"`
	In      *int64       `json:"in"`
	Out     *int64       `json:"out"`
	HashIDs *hashIDs     `json:"hash_ids"`
	Stop    string       `json:"stop"`
	API     *jsonSeconds `json:"api_time"`
	Think   *jsonSeconds `json:"think_time"`
	TTFT    *jsonSeconds `json:"ttft"`

	DurationMS *jsonMillis   `json:"duration_ms"`
	Tool       *int64        `json:"tool_tokens"`
	System     *int64        `json:"system_tokens"`
	Requests   []kvEntryJSON `json:"requests"`
}

// kvPaths returns the session files of a folder in order of name, or the file itself. In a checkout of the source the
// files are in a folder named traces, which is looked into when the given folder has none itself.
func kvPaths(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, openError(path, err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	files, err := listFolder(path, ".json", ".json.gz")
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		if inner, err := listFolder(filepath.Join(path, "traces"), ".json", ".json.gz"); err == nil && len(inner) > 0 {
			return inner, nil
		}
		return nil, &InputError{File: path, Found: "a folder without .json or .json.gz files",
			Expected: "kv-cache-tester session files", Do: "name the folder that holds trace_NNNN.json files"}
	}
	return files, nil
}

// readKVFiles parses the files in parallel and hands them to each in their order.
func readKVFiles(paths []string, limits Limits, each func(*kvFile) error) error {
	type result struct {
		file *kvFile
		err  error
	}
	workers := runtime.GOMAXPROCS(0)
	results := make([]chan result, len(paths))
	for i := range results {
		results[i] = make(chan result, 1)
	}
	quit := make(chan struct{})
	defer close(quit)
	ahead := make(chan int)
	tokens := make(chan struct{}, 2*workers) // bounds the files that are parsed but not taken
	go func() {
		defer close(ahead)
		for i := range paths {
			select {
			case tokens <- struct{}{}:
			case <-quit:
				return
			}
			ahead <- i
		}
	}()
	for range workers {
		go func() {
			var buf bytes.Buffer
			for i := range ahead {
				file, err := readKVFile(paths[i], limits, &buf)
				results[i] <- result{file, err}
			}
		}()
	}
	total, rows := int64(0), int64(0)
	names := make(map[string]string, len(paths))
	for i := range paths {
		r := <-results[i]
		if r.err != nil {
			return r.err
		}
		<-tokens
		total += r.file.bytes
		if total > limits.Bytes {
			return at(overLimit("bytes after decompression", "Bytes", limits.Bytes), paths[i], 0)
		}
		if rows += int64(r.file.calls()); rows > limits.Rows {
			return at(overLimit("requests", "Rows", limits.Rows), paths[i], 0)
		}
		if first, ok := names[r.file.name]; ok {
			return &InputError{File: paths[i], Key: "id", Found: shorten(r.file.name) + ", which " + filepath.Base(first) + " has too",
				Expected: "every session once", Do: "remove one of the two files"}
		}
		names[r.file.name] = paths[i]
		if int64(len(names)) > limits.Sessions {
			return at(overLimit("sessions", "Sessions", limits.Sessions), paths[i], 0)
		}
		if err := each(r.file); err != nil {
			return err
		}
	}
	return nil
}

func readKVFile(path string, limits Limits, buf *bytes.Buffer) (*kvFile, error) {
	if err := readDocument(path, limits, buf); err != nil {
		return nil, err
	}
	f, err := parseKV(buf.Bytes(), limits)
	if err != nil {
		return nil, at(err, path, 0)
	}
	f.path = path
	if f.name == "" {
		f.name, _, _ = strings.Cut(filepath.Base(path), ".")
	}
	return f, nil
}

func parseKV(b []byte, limits Limits) (*kvFile, error) {
	var doc kvJSON
	if err := decodeJSON(b, limits, &doc); err != nil {
		return nil, err
	}
	if doc.BlockSize != nil && *doc.BlockSize != kvBlock {
		return nil, &InputError{Key: "block_size", Found: fmt.Sprint(*doc.BlockSize), Expected: "64",
			Do: "only the 64-token blocks of the source's own files are known"}
	}
	if doc.HashScope != nil && *doc.HashScope != "local" {
		return nil, &InputError{Key: "hash_id_scope", Found: shorten(*doc.HashScope), Expected: "local"}
	}
	if len(doc.Requests) == 0 {
		return nil, &InputError{Key: "requests", Found: "no requests", Expected: "at least one call",
			Do: "check that this is a kv-cache-tester session file"}
	}
	f := &kvFile{bytes: int64(len(b)), threads: make([]kvThread, 1)}
	if doc.ID != nil {
		f.name = *doc.ID
	}
	if int64(len(f.name)) > limits.StringLen {
		return nil, &InputError{Key: "id", Found: fmt.Sprintf("%d bytes", len(f.name)), Expected: fmt.Sprintf("at most %d (limit StringLen)", limits.StringLen)}
	}
	var err error
	if f.tool, f.sys, err = promptParts(doc.Tool, doc.System, ""); err != nil {
		return nil, err
	}
	f.threads[0].tool, f.threads[0].sys = f.tool, f.sys
	p := kvParser{file: f, limits: limits, hashes: &hashNodes{}}
	for i := range doc.Requests {
		if err := p.entry(&doc.Requests[i], fmt.Sprintf("requests[%d]", i)); err != nil {
			return nil, err
		}
	}
	f.nodes = p.hashes.len()
	for i := range f.threads {
		f.backward += sortCalls(f.threads[i].calls)
	}
	if f.calls() == 0 {
		return nil, &InputError{Key: "requests", Found: "no calls", Expected: "at least one"}
	}
	return f, nil
}

// sortCalls puts the calls of a thread in order of time and returns how many were not.
func sortCalls(calls []kvCall) int64 {
	n := int64(0)
	for i := 1; i < len(calls); i++ {
		if calls[i].startNS < calls[i-1].startNS {
			n++
		}
	}
	if n > 0 {
		slices.SortStableFunc(calls, func(a, b kvCall) int { return cmp.Compare(a.startNS, b.startNS) })
	}
	return n
}

// promptParts checks the token counts of tool definitions and system prompt; missing ones mean that nothing is known to
// be shared.
func promptParts(tool, sys *int64, where string) (int64, int64, error) {
	var parts [2]int64
	for i, v := range []*int64{tool, sys} {
		if v == nil {
			continue
		}
		if *v < 0 || *v > 1<<30 {
			return 0, 0, &InputError{Key: where + []string{"tool_tokens", "system_tokens"}[i], Found: fmt.Sprint(*v), Expected: "tokens between 0 and 2^30"}
		}
		parts[i] = *v
	}
	return parts[0], parts[1], nil
}

type kvParser struct {
	file   *kvFile
	limits Limits
	hashes *hashNodes
	turns  int64
}

// entry adds one element of requests: a call of the main thread, or a subagent with its calls.
func (p *kvParser) entry(e *kvEntryJSON, where string) error {
	if e.Type == nil {
		return &InputError{Key: where + ".type", Found: "nothing", Expected: "n, s or subagent"}
	}
	if *e.Type != "subagent" {
		return p.call(&p.file.threads[0], e, where, 0)
	}
	if e.T == nil {
		return &InputError{Key: where + ".t", Found: "nothing", Expected: "a time in seconds"}
	}
	if *e.T < 0 {
		return &InputError{Key: where + ".t", Found: seconds(int64(*e.T)), Expected: "a time of at least 0 s"}
	}
	th := kvThread{startNS: int64(*e.T), endNS: int64(*e.T), async: true}
	if e.DurationMS != nil { // then t is the end, not the start
		ns := int64(*e.DurationMS)
		if ns < 0 || ns > 1e17 {
			return &InputError{Key: where + ".duration_ms", Found: seconds(ns), Expected: "a time between 0 and 1e8 s"}
		}
		th.startNS, th.async = th.endNS-ns, false
	}
	var err error
	if th.tool, th.sys, err = promptParts(e.Tool, e.System, where+"."); err != nil {
		return err
	}
	for i := range e.Requests {
		inner := &e.Requests[i]
		key := fmt.Sprintf("%s.requests[%d]", where, i)
		if inner.Type != nil && *inner.Type == "subagent" {
			return &InputError{Key: key, Found: "a subagent inside a subagent", Expected: "a call"}
		}
		if err := p.call(&th, inner, key, th.startNS); err != nil {
			return err
		}
	}
	p.file.threads = append(p.file.threads, th)
	return nil
}

// call checks one call and adds it to the thread; base is what its t counts from.
func (p *kvParser) call(th *kvThread, e *kvEntryJSON, where string, base int64) error {
	if p.turns++; p.turns > p.limits.TurnsPerSession {
		return overLimit("turns in one session", "TurnsPerSession", p.limits.TurnsPerSession)
	}
	c := kvCall{apiNS: Unknown, thinkNS: Unknown, ttftNS: Unknown, stop: e.Stop}
	bad := func(key, found, expected string) error {
		return &InputError{Key: where + "." + key, Found: found, Expected: expected}
	}
	if e.Type == nil || (*e.Type != "n" && *e.Type != "s") {
		return bad("type", shorten(text(e.Type)), "n, s or subagent")
	}
	c.kind = *e.Type
	if e.Model == nil || *e.Model == "" || int64(len(*e.Model)) > p.limits.StringLen {
		return bad("model", shorten(text(e.Model)), "a model name")
	}
	c.model = *e.Model
	if e.T == nil {
		return bad("t", "nothing", "a time in seconds")
	}
	if *e.T < 0 {
		return bad("t", seconds(int64(*e.T)), "a time of at least 0 s")
	}
	c.startNS = base + int64(*e.T)
	for _, f := range []struct {
		key string
		v   *jsonSeconds
		dst *int64
	}{{"api_time", e.API, &c.apiNS}, {"think_time", e.Think, &c.thinkNS}, {"ttft", e.TTFT, &c.ttftNS}} {
		if f.v == nil {
			continue
		}
		if *f.v < 0 {
			return bad(f.key, seconds(int64(*f.v)), "a time of at least 0 s, or no such key when it is not known")
		}
		*f.dst = int64(*f.v)
	}
	if e.In == nil || *e.In < 1 || *e.In/kvBlock > p.limits.BlocksPerTurn || *e.In > 1<<30 {
		return bad("in", intText(e.In), fmt.Sprintf("tokens between 1 and %d", min(1<<30, p.limits.BlocksPerTurn*kvBlock)))
	}
	if e.Out == nil || *e.Out < 0 || *e.Out > 1<<29 {
		return bad("out", intText(e.Out), "tokens between 0 and 2^29")
	}
	c.in, c.out = *e.In, *e.Out
	if e.HashIDs == nil || int64(len(*e.HashIDs)) != c.in/kvBlock {
		n := "no ids"
		if e.HashIDs != nil {
			n = fmt.Sprintf("%d ids", len(*e.HashIDs))
		}
		return bad("hash_ids", n, fmt.Sprintf("%d, one for each full block of %d of the %d prompt tokens", c.in/kvBlock, kvBlock, c.in))
	}
	var err error
	if c.path, err = p.hashes.path(*e.HashIDs, make([]int32, 0, len(*e.HashIDs))); err != nil {
		err.(*InputError).Key = where + "." + err.(*InputError).Key
		return err
	}
	th.calls = append(th.calls, c)
	return nil
}

// kvRef names a call of a file.
type kvRef struct{ thread, call int32 }

// order lists the calls in order of start, ties main thread first, then subagents in file order.
func (f *kvFile) order() []kvRef {
	var refs []kvRef
	for t := range f.threads {
		for c := range f.threads[t].calls {
			refs = append(refs, kvRef{int32(t), int32(c)})
		}
	}
	slices.SortStableFunc(refs, func(a, b kvRef) int {
		return cmp.Compare(f.at(a).startNS, f.at(b).startNS)
	})
	return refs
}

func (f *kvFile) at(r kvRef) *kvCall { return &f.threads[r.thread].calls[r.call] }

func (f *kvFile) calls() int {
	n := 0
	for i := range f.threads {
		n += len(f.threads[i].calls)
	}
	return n
}

func text(s *string) string {
	if s == nil {
		return "nothing"
	}
	return *s
}

func intText(n *int64) string {
	if n == nil {
		return "nothing"
	}
	return fmt.Sprint(*n)
}

// seconds writes nanoseconds as seconds, for messages.
func seconds(ns int64) string { return fmt.Sprintf("%g s", float64(ns)/1e9) }
