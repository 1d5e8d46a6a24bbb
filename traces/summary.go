package traces

// Summarise describes any trace as it would run: after import, with dependencies instead of recorded gaps. The ceiling
// is that of 16-token blocks, vLLM's default.
func Summarise(tr *Trace) *Stats {
	s := &Stats{Format: tr.Report.Format, Name: tr.Name, Sessions: int64(len(tr.Sessions)), Report: &tr.Report}
	var in, out, turns, sub, gaps, service, lengths []int64
	models := tally{}
	prompt, hit := int64(0), int64(0)
	ceiling := Ceiling(tr, 16)
	for i := range tr.Sessions {
		session := &tr.Sessions[i]
		perThread := make([]int64, session.Threads)
		end := int64(0)
		for t := range session.Turns {
			turn := &session.Turns[t]
			perThread[turn.Thread]++
			in, out = append(in, int64(turn.Prompt.Tokens)), append(out, int64(turn.OutputTokens))
			prompt += int64(turn.Prompt.Tokens)
			hit += int64(ceiling[i][t])
			models.add(tr.Models[turn.Model], 1)
			if turn.OutputTokens == 1 {
				s.OutputOne++
			}
			if turn.DurationNS == Unknown {
				s.NoService++
			} else {
				service = append(service, turn.DurationNS)
			}
			end = max(end, turn.StartNS+max(0, turn.DurationNS))
			if gap, ok := toolGap(session.Deps[turn.DepLo:turn.DepHi]); ok {
				gaps = append(gaps, gap)
			}
		}
		s.Requests += int64(len(session.Turns))
		lengths = append(lengths, end)
		for thread, n := range perThread {
			switch {
			case thread == 0:
				turns = append(turns, n)
			case n > 0:
				sub = append(sub, n)
			}
		}
	}
	s.Subagents = int64(len(sub))
	s.Sequences = s.Sessions + s.Subagents
	s.Models = models.counted()
	s.InputTokens, s.OutputTokens = newDist(in, 1), newDist(out, 1)
	s.TurnsPerSession, s.TurnsPerSubagent = newDist(turns, 1), newDist(sub, 1)
	s.ToolGap, s.ServiceTime, s.Duration = newDist(gaps, 1e9), newDist(service, 1e9), newDist(lengths, 1e9)
	s.CeilingTokenHit = ratio(hit, prompt)
	return s
}

// toolGap is the longest wait after a completion.
func toolGap(deps []Dep) (ns int64, ok bool) {
	for _, d := range deps {
		if d.On == OnCompletion {
			ns, ok = max(ns, d.DelayNS), true
		}
	}
	return ns, ok
}
