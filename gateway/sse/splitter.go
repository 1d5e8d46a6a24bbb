// Package sse reads streams of server-sent events as they pass through, on arbitrary chunk borders: where events end,
// when the first token came, what usage the engine reported. What passes through stays the same byte for byte, except
// that the usage event which the gateway asked for on its own can be taken out again (spec: gateway 4.4).
package sse

// MaxEventBytes bounds what is kept of one event. A longer event passes through, but is not read.
const MaxEventBytes = 1 << 20

// Splitter cuts a stream into events. An event ends with a blank line; lines end with LF, CR LF or CR. The zero value is
// ready to use.
type Splitter struct {
	buf     []byte // of the event that has begun
	dropped bool   // the event is too long, buf is not all of it
	line    bool   // the current line has a byte
	cr      bool   // the last byte was a CR
	ending  bool   // that CR ended the event, and an LF may belong to it
}

// Event is one event with its blank line. Raw is valid until the next call.
type Event struct {
	Raw []byte
	// Long says that the event has more than MaxEventBytes bytes; Raw is then what came since the last chunk, or empty.
	Long bool
}

// next takes bytes from p up to the end of an event and says how many, and whether the event ended. The bytes are in buf
// unless the event is dropped.
func (s *Splitter) next(p []byte) (n int, ended bool) {
	for i, c := range p {
		if s.ending {
			s.ending, s.cr = false, false
			if c != '\n' {
				s.keep(p[:i])
				return i, true
			}
			s.keep(p[:i+1])
			return i + 1, true
		}
		switch {
		case c == '\n' && s.cr: // the second half of CR LF
			s.cr = false
		case c == '\n':
			if !s.line {
				s.keep(p[:i+1])
				return i + 1, true
			}
			s.line = false
		case c == '\r':
			s.ending = !s.line
			s.cr, s.line = true, false
		default:
			s.line, s.cr = true, false
		}
	}
	s.keep(p)
	return len(p), false
}

func (s *Splitter) keep(p []byte) {
	if s.dropped {
		return
	}
	if len(s.buf)+len(p) > MaxEventBytes {
		s.dropped = true
		return
	}
	s.buf = append(s.buf, p...)
}

func (s *Splitter) begin() {
	s.buf, s.dropped, s.line, s.cr, s.ending = s.buf[:0], false, false, false, false
}

// Write takes the next chunk and calls emit for every event that ends in it.
func (s *Splitter) Write(p []byte, emit func(Event)) {
	for len(p) > 0 {
		n, ended := s.next(p)
		if ended {
			s.end(emit)
		}
		p = p[n:]
	}
}

// Close calls emit for what is left: an event whose blank line did not come, or whose CR was the last byte.
func (s *Splitter) Close(emit func(Event)) {
	if len(s.buf) > 0 || s.dropped {
		s.end(emit)
	}
}

func (s *Splitter) end(emit func(Event)) {
	e := Event{Raw: s.buf, Long: s.dropped}
	if e.Long {
		e.Raw = nil
	}
	emit(e)
	s.begin()
}

// Fields returns the type and the data of an event. Data lines are joined with LF; a single one is not copied, several
// are put together in buf.
func (e Event) Fields(buf []byte) (kind, data []byte) {
	lines := 0
	rest := e.Raw
	if len(rest) >= 3 && rest[0] == 0xef && rest[1] == 0xbb && rest[2] == 0xbf {
		rest = rest[3:]
	}
	for len(rest) > 0 {
		var line []byte
		line, rest = cutLine(rest)
		name, value := cutField(line)
		switch string(name) {
		case "event":
			kind = value
		case "data":
			if lines++; lines == 1 {
				data = value
				continue
			}
			if lines == 2 {
				buf = append(buf[:0], data...)
			}
			buf = append(append(buf, '\n'), value...)
			data = buf
		}
	}
	return kind, data
}

func cutLine(b []byte) (line, rest []byte) {
	for i, c := range b {
		if c == '\n' {
			return b[:i], b[i+1:]
		}
		if c == '\r' {
			if i+1 < len(b) && b[i+1] == '\n' {
				return b[:i], b[i+2:]
			}
			return b[:i], b[i+1:]
		}
	}
	return b, nil
}

// cutField cuts a line at its colon; one space after it does not count.
func cutField(line []byte) (name, value []byte) {
	for i, c := range line {
		if c == ':' {
			value = line[i+1:]
			if len(value) > 0 && value[0] == ' ' {
				value = value[1:]
			}
			return line[:i], value
		}
	}
	return line, nil
}
