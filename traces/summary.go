package traces

import "context"

// Summarise describes any trace as it would run: after import, with dependencies instead of recorded gaps. The ceiling
// is that of 16-token blocks, vLLM's default. It reads the source twice and takes some 50 bytes for each turn.
func Summarise(src Source) (*Stats, error) {
	a := src.About()
	s := &Stats{Format: a.Report.Format, Name: a.Name, Sessions: int64(a.Sessions), Report: &a.Report}
	survey, err := NewSurvey(context.Background(), src, 16, 1<<62)
	if err != nil {
		return nil, err
	}
	ceiling := NewCeiling(survey)
	var in, out, turns, sub, gaps, service, lengths []int64
	models := tally{}
	prompt, hit := int64(0), int64(0)
	var hits []int32
	err = Each(src, func(number int32, session *Session) error {
		hits = ceiling.Of(number, session, hits[:0])
		perThread := make([]int64, session.Threads)
		end := int64(0)
		for t := range session.Turns {
			turn := &session.Turns[t]
			perThread[turn.Thread]++
			in, out = append(in, int64(turn.Prompt.Tokens)), append(out, int64(turn.OutputTokens))
			prompt += int64(turn.Prompt.Tokens)
			hit += int64(hits[t])
			models.add(a.Models[turn.Model], 1)
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
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.Subagents = int64(len(sub))
	s.Sequences = s.Sessions + s.Subagents
	s.Models = models.counted()
	s.InputTokens, s.OutputTokens = newDist(in, 1), newDist(out, 1)
	s.TurnsPerSession, s.TurnsPerSubagent = newDist(turns, 1), newDist(sub, 1)
	s.ToolGap, s.ServiceTime, s.Duration = newDist(gaps, 1e9), newDist(service, 1e9), newDist(lengths, 1e9)
	s.CeilingTokenHit = ratio(hit, prompt)
	return s, nil
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
