// Package explain says in words why a turn waited, where it went and what it found there, from a results folder and its
// decision log.
package explain

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-sim/sluice/results"
)

// subject is the turn that is asked about: every attempt of it, with what surrounds it.
type subject struct {
	session, thread, number int32
	attempts                []results.Turn // by attempt
	before                  *results.Turn  // the last attempt of the thread's former turn; nil for the first turn
	names                   []string       // of all sessions
}

// find resolves TURN: SESSION/TURN, SESSION/THREAD/TURN or the number of a row of turns.parquet, from 1. A session is named or
// counted from 0; a turn without a thread is of the session's root thread.
func find(run *results.Run, turn string) (*subject, error) {
	s := &subject{}
	err := run.Sessions(func(x *results.Session) error {
		for len(s.names) <= int(x.Session) {
			s.names = append(s.names, "")
		}
		s.names[x.Session] = x.Name
		return nil
	})
	if err != nil {
		return nil, err
	}
	row := int64(0)
	if strings.Contains(turn, "/") {
		if err := s.parse(turn); err != nil {
			return nil, err
		}
	} else if row, err = strconv.ParseInt(turn, 10, 64); err != nil || row < 1 {
		return nil, fmt.Errorf("turn %q: expected SESSION/TURN, SESSION/THREAD/TURN or the number of a row of %s, from 1", turn, results.TurnsFile)
	} else if err := s.fromRow(run, row); err != nil {
		return nil, err
	}
	err = run.Turns(func(t *results.Turn) error {
		if t.Session != s.session || t.Thread != s.thread {
			return nil
		}
		if t.Number == s.number {
			s.attempts = append(s.attempts, *t)
		} else if t.Number == s.number-1 && t.Final {
			c := *t
			s.before = &c
		}
		return nil
	})
	if err == nil && len(s.attempts) == 0 {
		err = fmt.Errorf("turn %q: session %s has no turn %d in thread %d", turn, s.title(s.session), s.number, s.thread)
	}
	for i := 1; i < len(s.attempts); i++ { // rows come in order of their ends
		for k := i; k > 0 && s.attempts[k].Attempt < s.attempts[k-1].Attempt; k-- {
			s.attempts[k], s.attempts[k-1] = s.attempts[k-1], s.attempts[k]
		}
	}
	return s, err
}

func (s *subject) fromRow(run *results.Run, row int64) error {
	n := int64(0)
	err := run.Turns(func(t *results.Turn) error {
		if n++; n == row {
			s.session, s.thread, s.number = t.Session, t.Thread, t.Number
		}
		return nil
	})
	if err == nil && row > n {
		err = fmt.Errorf("row %d: %s has %d rows", row, results.TurnsFile, n)
	}
	return err
}

func (s *subject) parse(turn string) error {
	parts := strings.Split(turn, "/")
	n := len(parts)
	number, err := strconv.ParseInt(parts[n-1], 10, 32)
	if err != nil || number < 1 {
		return fmt.Errorf("turn %q: %q is not the number of a turn, from 1", turn, parts[n-1])
	}
	s.number = int32(number)
	if i, ok := s.lookUp(strings.Join(parts[:n-1], "/")); ok {
		s.session = i
		return nil
	}
	if n > 2 {
		thread, err := strconv.ParseInt(parts[n-2], 10, 32)
		if i, ok := s.lookUp(strings.Join(parts[:n-2], "/")); ok && err == nil && thread >= 0 {
			s.session, s.thread = i, int32(thread)
			return nil
		}
	}
	return fmt.Errorf("turn %q: there is no session %q; sessions have a name or an index from 0 to %d", turn, parts[0], len(s.names)-1)
}

// lookUp finds a session by its name, else by its index.
func (s *subject) lookUp(text string) (int32, bool) {
	for i, n := range s.names {
		if n == text {
			return int32(i), true
		}
	}
	i, err := strconv.ParseInt(text, 10, 32)
	return int32(i), err == nil && i >= 0 && int(i) < len(s.names)
}

// title is how a session is called: its index, with its name where that says more.
func (s *subject) title(session int32) string {
	i := strconv.Itoa(int(session))
	if session < 0 || int(session) >= len(s.names) || s.names[session] == "" || s.names[session] == i {
		return i
	}
	return i + " (" + s.names[session] + ")"
}
