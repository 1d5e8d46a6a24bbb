package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/results"
)

// Most that is listed.
const (
	mostEvictions = 6
	mostCulprits  = 4
)

var causeMeaning = map[results.Cause]string{
	results.CausePreempted: "the engine preempted the turn",
	results.CauseRetry:     "a former attempt had computed them",
	results.CauseRestarted: "the replica restarted since",
	results.CauseEvicted:   "they were evicted there",
	results.CauseElsewhere: "they were resident on another replica",
	results.CauseCold:      "they were never computed there and are resident nowhere",
}

// resident tells what the replica held of the prompt, and what became of the rest.
func (x *story) resident(a *results.Turn, h *history, e *event) error {
	if a.ScheduledPS != results.Missing {
		x.say("When the engine took it up, %s of %s of prompt (%s) were resident on replica %d%s; %s were computed.", count(a.HitGPU), tokens(a.PromptTokens),
			percent(a.HitGPU, a.PromptTokens), e.command.Replica, otherTiers(a), count(a.ComputedTokens))
	}
	if a.WastedTokens > 0 {
		x.say("Of those computed, %s had been computed before; most of them because %s.", count(a.WastedTokens), causeMeaning[a.WasteCause])
	} else if a.ScheduledPS != results.Missing {
		x.say("None of those computed had been computed before.")
	}
	if !x.log.kv {
		return x.suspects(a)
	}
	r, err := followBlocks(x.lines(), x.log.tree, h.turn.Prompt, e.step)
	if err != nil || r == nil {
		return err
	}
	x.fates(r, a.PromptTokens, e)
	return nil
}

func otherTiers(a *results.Turn) string {
	var more []string
	if a.HitCPU > 0 {
		more = append(more, count(a.HitCPU)+" in its CPU tier")
	}
	if a.HitGlobal > 0 {
		more = append(more, count(a.HitGlobal)+" in the global store")
	}
	if len(more) == 0 {
		return ""
	}
	return ", " + strings.Join(more, ", ")
}

// fates tells by the KV events what was on the replica at the dispatch.
func (x *story) fates(r *residency, prompt int32, e *event) {
	to := e.command.Replica
	hit := r.hit(to, prompt)
	x.say("By the KV events up to the dispatch, replica %d held the first %s.", to, tokens(hit))
	best, most := policies.NoReplica, hit
	for i := range r.on {
		if n := r.hit(policies.ReplicaID(i), prompt); n > most {
			best, most = policies.ReplicaID(i), n
		}
	}
	if best != policies.NoReplica {
		x.say("  Replica %d held more of it, %s.", best, tokens(most))
	}
	f := r.fate(to, prompt)
	for _, y := range []struct {
		n    int32
		what string
	}{
		{f.elsewhere, "were stored on other replicas only"}, {f.stranded, "were there, behind a gap"},
		{f.cleared, "went when the replica dropped everything"}, {f.fresh, "nobody had computed yet"},
	} {
		if y.n > 0 {
			x.say("  %s %s.", tokens(y.n), y.what)
		}
	}
	if f.evicted == 0 {
		return
	}
	var at []int32
	for i := range r.evictions {
		if f.by[int32(i)] > 0 {
			at = append(at, int32(i))
		}
	}
	slices.SortStableFunc(at, func(a, b int32) int { return cmp.Compare(f.by[b], f.by[a]) })
	x.say("  %s had been there and were evicted%s:", tokens(f.evicted), largest(len(at), mostEvictions))
	for _, i := range at[:min(len(at), mostEvictions)] {
		x.say("    %s at %s, when the replica stored %s", tokens(f.by[i]), seconds(int64(r.evictions[i].now)*1000), x.culprits(r.evictions[i].stored, r.blockTokens))
	}
}

func largest(n, most int) string {
	if n <= most {
		return ""
	}
	return fmt.Sprintf(" (the %d largest of %d times)", most, n)
}

// culprits names whose content came when that of the turn went.
func (x *story) culprits(list []stored, blockTokens int32) string {
	if len(list) == 0 {
		return "nothing that its events told of at that moment; it is unknown for whom"
	}
	var names []string
	for i, s := range list {
		if i == mostCulprits {
			names = append(names, fmt.Sprintf("and content of %d more", len(list)-i))
			break
		}
		who := "shared content"
		if o, ok := x.log.owners[s.stream]; ok {
			who = "session " + x.s.title(int32(o.session))
			if int32(o.session) == x.s.session {
				who = "this session"
			}
		}
		names = append(names, fmt.Sprintf("%s of %s", tokens(s.blocks*blockTokens), who))
	}
	return strings.Join(names, ", ")
}

// suspects tells, where there are no KV events, who computed prompts on the replica since the turn before.
func (x *story) suspects(a *results.Turn) error {
	const ask = "run it with a router that reads KV events, such as lmetric, to have them in the log"
	if a.WasteCause != results.CauseEvicted {
		x.say("The log has no KV events, so what else each replica held is unknown (%s).", ask)
		return nil
	}
	x.say("Who evicted them is unknown, since the log has no KV events (%s).", ask)
	from := int64(0)
	if b := x.s.before; b != nil && b.DonePS != results.Missing {
		from = b.DonePS
	}
	evicted, start := int64(0), int64(0)
	err := x.run.Samples(func(s *results.Sample) error {
		if s.Replica == a.Replica {
			if s.EndPS > from && start < a.ScheduledPS {
				evicted += s.EvictedTokens
			}
			start = s.EndPS
		}
		return nil
	})
	if err != nil {
		return err
	}
	computed := map[int32]int64{}
	err = x.run.Turns(func(t *results.Turn) error {
		if t.Replica == a.Replica && t.ScheduledPS >= from && t.ScheduledPS < a.ScheduledPS && t.Session != x.s.session {
			computed[t.Session] += int64(t.ComputedTokens)
		}
		return nil
	})
	if err != nil || len(computed) == 0 {
		return err
	}
	var sessions []int32
	for s := range computed {
		sessions = append(sessions, s)
	}
	slices.SortFunc(sessions, func(p, q int32) int { return cmp.Or(cmp.Compare(computed[q], computed[p]), cmp.Compare(p, q)) })
	var names []string
	for _, s := range sessions[:min(len(sessions), mostCulprits)] {
		names = append(names, fmt.Sprintf("session %s %s", x.s.title(s), count(computed[s])))
	}
	x.say("  Between %s and %s replica %d evicted about %s in all and computed prompts of %s; the most: %s.", seconds(from), seconds(a.ScheduledPS), a.Replica,
		tokens(evicted), plural(len(sessions), "other session"), strings.Join(names, ", "))
	return nil
}
