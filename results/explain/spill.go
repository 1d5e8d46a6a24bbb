package explain

import (
	"slices"

	"github.com/sluice-sim/sluice/policies"
)

// spill tells of a spilled turn where its home was: the longest resident prefix by what the router knew, the lowest replica
// among equal ones. Nothing if the scores do not say.
func (x *story) spill(e *event) {
	k := slices.Index(x.log.header.Scores.Terms, "hit_tokens")
	if e.command.Reason != policies.Spilled || k < 0 || len(e.scores) == 0 {
		return
	}
	home := e.scores[0]
	for _, s := range e.scores[1:] {
		if s.Terms[k] > home.Terms[k] || s.Terms[k] == home.Terms[k] && s.Replica < home.Replica {
			home = s
		}
	}
	if home.Replica == e.command.Replica {
		x.say("  Its home, the longest resident prefix, is this replica with %s: it has the best score all the same.", tokens(int64(home.Terms[k])))
		return
	}
	x.say("  Its home, the longest resident prefix, was replica %d with %s.", home.Replica, tokens(int64(home.Terms[k])))
}
