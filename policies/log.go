package policies

import (
	"errors"
	"slices"
	"strconv"
)

// Entry is what a decision log keeps of one Step. A driver that writes entries must copy the slices.
type Entry struct {
	Now      Time
	Facts    []Fact
	Commands []Command
}

// Replay gives the facts of a log to m, which must be new and built as the one that wrote the log was. The error names
// the first entry, counted from 0, whose commands come out otherwise, and the first command in which they differ.
func Replay(m Machine, log []Entry) error {
	var out []Command
	for i, e := range log {
		out = m.Step(e.Now, e.Facts, out[:0])
		if slices.Equal(out, e.Commands) {
			continue
		}
		at := 0
		for at < len(out) && at < len(e.Commands) && out[at] == e.Commands[at] {
			at++
		}
		return errors.New("entry " + strconv.Itoa(i) + " at " + strconv.FormatInt(int64(e.Now), 10) + " ns: command " + strconv.Itoa(at) +
			" is " + describe(out, at) + ", the log has " + describe(e.Commands, at))
	}
	return nil
}

func describe(list []Command, at int) string {
	if at >= len(list) {
		return "missing"
	}
	c := list[at]
	return c.Kind.String() + " of attempt " + strconv.FormatInt(int64(c.Attempt), 10) + " replica " + strconv.Itoa(int(c.Replica)) +
		" reason " + strconv.Quote(c.Reason.String())
}

var commandNames = [...]string{"invalid", "admit", "dispatch", "hold", "reject", "abort", "probe_usage", "probe_prefix", "migrate", "pin", "unpin"}

// String is the command's name in logs.
func (k CommandKind) String() string {
	if int(k) < len(commandNames) {
		return commandNames[k]
	}
	return commandNames[0]
}
