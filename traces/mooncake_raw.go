package traces

import "fmt"

// mcBlock is the block size of Mooncake's hash ids, in tokens.
const mcBlock = 512

// mcFile is a Mooncake file as recorded, with the sessions that were derived from it.
type mcFile struct {
	rows     []mcRow
	nodes    int
	sessions int32
	names    []string // of sessions, when the rows name them
	explicit bool     // the rows name their sessions
	bytes    int64
	lastTime int64
}

// mcRow is one request.
type mcRow struct {
	timeNS  int64 // as recorded
	in, out int64
	path    []int32 // nodes of all ids; the last one may stand for a part block
	parent  int32   // row that this one follows in its session, -1 for none
	session int32
	gapNS   int64 // time since the parent; Unknown without parent
	delayNS int64 // recorded wait after the parent's completion; Unknown when the source has none
}

// full is the part of the path that stands for full blocks.
func (r *mcRow) full() []int32 { return r.path[:r.in/mcBlock] }

type mcJSON struct {
	Timestamp *jsonMillis `json:"timestamp"`
	Input     *int64      `json:"input_length"`
	Output    *int64      `json:"output_length"`
	HashIDs   hashIDs     `json:"hash_ids"`
	Session   *string     `json:"session_id"`
	Delay     *jsonMillis `json:"delay"`
}

// mcParser reads rows in file order.
type mcParser struct {
	file     *mcFile
	limits   Limits
	hashes   hashNodes
	owner    []int32          // by node: first row with it among its full blocks, -1 for none
	sessions map[string]int32 // of rows that name them
	last     []int32          // by named session: its last row
	turns    []int64          // by session: its rows
	row      mcJSON
}

func readMooncakeFile(path string, limits Limits) (*mcFile, error) {
	s, err := openSource(path, limits.Bytes)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return parseMooncake(s, limits)
}

func parseMooncake(s *source, limits Limits) (*mcFile, error) {
	p := &mcParser{file: &mcFile{}, limits: limits, sessions: map[string]int32{}}
	if err := eachLine(s, limits, p.line); err != nil {
		return nil, err
	}
	if len(p.file.rows) == 0 {
		return nil, &InputError{File: s.name, Found: "no lines", Expected: "one JSON object a line"}
	}
	p.file.bytes, p.file.nodes = s.n, p.hashes.len()
	return p.file, nil
}

func (p *mcParser) line(_ int64, b []byte) error {
	p.row = mcJSON{HashIDs: p.row.HashIDs[:0]}
	if err := decodeJSON(b, p.limits, &p.row); err != nil {
		return err
	}
	if int64(len(p.file.rows)) >= p.limits.Rows {
		return overLimit("requests", "Rows", p.limits.Rows)
	}
	r, err := p.numbers()
	if err != nil {
		return err
	}
	if r.path, err = p.hashes.path(p.row.HashIDs, make([]int32, 0, len(p.row.HashIDs))); err != nil {
		return err
	}
	for len(p.owner) < p.hashes.len() {
		p.owner = append(p.owner, -1)
	}
	if err := p.place(&r); err != nil {
		return err
	}
	index := int32(len(p.file.rows))
	for _, n := range r.full() {
		if p.owner[n] < 0 {
			p.owner[n] = index
		}
	}
	p.file.rows = append(p.file.rows, r)
	return nil
}

// numbers checks all of a row but the values of its ids.
func (p *mcParser) numbers() (mcRow, error) {
	r := mcRow{parent: -1, gapNS: Unknown, delayNS: Unknown, timeNS: Unknown}
	e := &p.row
	bad := func(key, found, expected string) (mcRow, error) {
		return r, &InputError{Key: key, Found: found, Expected: expected}
	}
	if e.Timestamp == nil && (e.Delay == nil || e.Session == nil) {
		return bad("timestamp", "nothing", "a time in milliseconds (or session_id and delay)")
	}
	if e.Timestamp != nil {
		if r.timeNS = int64(*e.Timestamp); r.timeNS < 0 {
			return bad("timestamp", seconds(r.timeNS), "a time of at least 0 ms")
		}
	}
	if e.Delay != nil {
		if r.delayNS = int64(*e.Delay); r.delayNS < 0 || r.delayNS > 1e17 {
			return bad("delay", seconds(r.delayNS), "a time between 0 and 1e8 s")
		}
	}
	if e.Input == nil || *e.Input < 1 || *e.Input > 1<<30 || *e.Input/mcBlock > p.limits.BlocksPerTurn {
		return bad("input_length", intText(e.Input), fmt.Sprintf("tokens between 1 and %d", min(1<<30, p.limits.BlocksPerTurn*mcBlock)))
	}
	if e.Output == nil || *e.Output < 0 || *e.Output > 1<<29 {
		return bad("output_length", intText(e.Output), "tokens between 0 and 2^29")
	}
	r.in, r.out = *e.Input, *e.Output
	if blocks := (r.in + mcBlock - 1) / mcBlock; int64(len(e.HashIDs)) != blocks {
		return bad("hash_ids", fmt.Sprintf("%d ids", len(e.HashIDs)),
			fmt.Sprintf("%d, one for each block of %d of the %d prompt tokens, the part block included", blocks, mcBlock, r.in))
	}
	if e.Session != nil && (*e.Session == "" || int64(len(*e.Session)) > p.limits.StringLen) {
		return bad("session_id", shorten(*e.Session), "a name")
	}
	return r, nil
}

// place finds the session and the parent of a row: by name where the rows have one, else derived.
func (p *mcParser) place(r *mcRow) error {
	f := p.file
	if len(f.rows) == 0 {
		f.explicit = p.row.Session != nil
	}
	if f.explicit != (p.row.Session != nil) {
		return &InputError{Key: "session_id", Found: "it in some rows only", Expected: "it in all rows or in none"}
	}
	if f.explicit {
		p.placeNamed(r, *p.row.Session)
	} else {
		p.placeDerived(r)
	}
	if r.timeNS == Unknown { // given as a delay
		if r.parent < 0 {
			return &InputError{Key: "timestamp", Found: "nothing", Expected: "a time in the first row of a session"}
		}
		r.timeNS = f.rows[r.parent].timeNS + r.delayNS
	}
	before := f.lastTime
	if f.explicit && r.parent >= 0 {
		before = f.rows[r.parent].timeNS
	}
	if len(f.rows) > 0 && r.timeNS < before && (!f.explicit || r.parent >= 0) {
		return &InputError{Key: "timestamp", Found: fmt.Sprintf("%s after %s", seconds(r.timeNS), seconds(before)),
			Expected: "rows in order of time", Do: "sort the file by timestamp"}
	}
	if len(f.rows) > 0 && max(r.timeNS, f.rows[0].timeNS)-min(r.timeNS, f.rows[0].timeNS) > 1e17 {
		return &InputError{Key: "timestamp", Found: seconds(r.timeNS), Expected: "a time within 1e8 s of the first one"}
	}
	f.lastTime = r.timeNS
	if r.parent >= 0 {
		r.gapNS = r.timeNS - f.rows[r.parent].timeNS
	}
	if p.turns[r.session]++; p.turns[r.session] > p.limits.TurnsPerSession {
		return overLimit("turns in one session", "TurnsPerSession", p.limits.TurnsPerSession)
	}
	if int64(f.sessions) > p.limits.Sessions {
		return overLimit("sessions", "Sessions", p.limits.Sessions)
	}
	return nil
}

func (p *mcParser) placeNamed(r *mcRow, name string) {
	s, ok := p.sessions[name]
	if !ok {
		s = p.newSession()
		p.sessions[name] = s
		p.last = append(p.last, -1)
		p.file.names = append(p.file.names, name)
	}
	r.session, r.parent = s, p.last[s]
	p.last[s] = int32(len(p.file.rows))
}

// placeDerived is a heuristic: a request follows the one whose full blocks are exactly its longest known prefix.
// (trace manifest: how the statistics are computed, "Derived sessions")
func (p *mcParser) placeDerived(r *mcRow) {
	full := r.full()
	k := 0
	for k < len(full) && p.owner[full[k]] >= 0 {
		k++
	}
	if k > 0 {
		o := p.owner[full[k-1]]
		if k == len(p.file.rows[o].full()) {
			r.parent, r.session = o, p.file.rows[o].session
			return
		}
	}
	r.session = p.newSession()
}

func (p *mcParser) newSession() int32 {
	p.turns = append(p.turns, 0)
	p.file.sessions++
	return p.file.sessions - 1
}
