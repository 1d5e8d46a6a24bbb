package traces

import "testing"

// lengths is the prompt length of every turn of a session's root thread.
func lengths(s *Session) []int32 {
	var out []int32
	for _, u := range s.Turns {
		if u.Thread == 0 {
			out = append(out, u.Prompt.Tokens)
		}
	}
	return out
}

// What each rule at the context limit does, by hand: shared 100, first 10, each turn adds 20 after an output of 5, at
// most 160 with the output.
func TestSteadyAtTheLimit(t *testing.T) {
	params := Params{"sessions": Num(2), "turns": Num(6), "shared_tokens": Num(100), "first_tokens": Num(10),
		"append_tokens": Num(20), "output_tokens": Num(5), "max_context": Num(170), "gap_s": Num(2)}
	for _, c := range []struct {
		rule    string
		prompts []int32
		common  []int32 // with the previous prompt and its output
	}{
		{"end", []int32{110, 135, 160}, []int32{115, 140}},
		{"hold", []int32{110, 135, 160, 165, 165, 165}, []int32{115, 140, 145, 145, 145}},
		{"slide", []int32{110, 135, 160, 165, 165, 165}, []int32{115, 140, 100, 100, 100}},
		{"restart", []int32{110, 135, 160, 110, 135, 160}, []int32{115, 140, 100, 115, 140}},
	} {
		params["at_limit"] = Value{Text: c.rule}
		tr := mustGenerate(t, "steady", 1, params)
		for i := range tr.Sessions {
			s := &tr.Sessions[i]
			got := lengths(s)
			if len(got) != len(c.prompts) {
				t.Fatalf("%s: prompts %v, want %v", c.rule, got, c.prompts)
			}
			for k := range got {
				if got[k] != c.prompts[k] {
					t.Fatalf("%s: prompts %v, want %v", c.rule, got, c.prompts)
				}
				if k == 0 {
					continue
				}
				before := s.Turns[k-1].Prompt
				before.Tokens += s.Turns[k-1].OutputTokens
				if n := tr.Tree.Common(before, s.Turns[k].Prompt); n != c.common[k-1] {
					t.Errorf("%s: turn %d shares %d tokens with the one before, want %d", c.rule, k+1, n, c.common[k-1])
				}
				if d := s.Deps[s.Turns[k].DepLo]; d.DelayNS != 2e9 {
					t.Errorf("%s: gap %d", c.rule, d.DelayNS)
				}
			}
		}
		if n := tr.Tree.Common(tr.Sessions[0].Turns[2].Prompt, tr.Sessions[1].Turns[2].Prompt); n != 100 {
			t.Errorf("%s: sessions share %d tokens, want 100", c.rule, n)
		}
	}
}

func TestBenchLengths(t *testing.T) {
	tr := mustGenerate(t, "bench", 1, Params{"sessions": Num(4000), "input_tokens": Num(100), "output_tokens": Num(9),
		"range_ratio": Num(.25), "prefix_tokens": Num(50), "prefixes": Num(2)})
	inputs, outputs, shared := map[int32]int{}, map[int32]int{}, map[int32]int{}
	for i, s := range tr.Sessions {
		inputs[s.Turns[0].Prompt.Tokens-50]++
		outputs[s.Turns[0].OutputTokens]++
		if i > 0 {
			shared[tr.Tree.Common(tr.Sessions[0].Turns[0].Prompt, s.Turns[0].Prompt)]++
		}
	}
	if len(inputs) != 51 || inputs[75] == 0 || inputs[125] == 0 {
		t.Errorf("inputs take %d values, want all of 75 to 125", len(inputs))
	}
	if len(outputs) != 7 || outputs[6] == 0 || outputs[12] == 0 { // floor(6.75), ceil(11.25)
		t.Errorf("outputs %v, want 6 to 12", outputs)
	}
	if len(shared) != 2 || shared[0] < 1800 || shared[50] < 1800 {
		t.Errorf("shared with the first prompt: %v, want 0 or 50 in equal parts", shared)
	}
}

// A prompt's samples share system prompt and task text, prompts share the system prompt, and every draw of turns
// respects the shared difficulty.
func TestRolloutSharing(t *testing.T) {
	tr := mustGenerate(t, "swe-rollout", 4, Params{"prompts": Num(2), "samples": Num(3)})
	first := func(i int) Turn { return tr.Sessions[i].Turns[0] }
	if n := tr.Tree.Common(first(0).Prompt, first(3).Prompt); n != 7000 {
		t.Errorf("prompts share %d tokens, want the system prompt's 7000", n)
	}
	if n := tr.Tree.Common(first(0).Prompt, first(2).Prompt); n != first(0).Prompt.Tokens || n <= 7000 {
		t.Errorf("samples share %d tokens of a first prompt of %d", n, first(0).Prompt.Tokens)
	}
	if n := tr.Tree.Common(tr.Sessions[0].Turns[1].Prompt, tr.Sessions[2].Turns[1].Prompt); n != first(0).Prompt.Tokens {
		t.Errorf("second prompts of two samples share %d tokens, want the first prompt's %d", n, first(0).Prompt.Tokens)
	}
	if s := tr.Sessions[4]; s.Group != 1 || tr.Groups[1] != "prompt00001" || s.Name != "p00001/s00001" {
		t.Errorf("session 4 is %s of group %d", s.Name, s.Group)
	}
	for i := range tr.Sessions {
		if ns := first(i).StartNS; ns < 25e9 || ns > 35e9 {
			t.Errorf("environment takes %d ns, want 25 to 35 s", ns)
		}
	}
}

// A subagent starts when its parent's turn completes, and the parent's next turn waits for its last.
func TestSubagentsBlockTheirParent(t *testing.T) {
	tr := mustGenerate(t, "claude-code", 2, Params{"sessions": Num(30), "subagents": Num(3)})
	agents := 0
	for i := range tr.Sessions {
		s := &tr.Sessions[i]
		last := map[int32]int32{}
		for k, u := range s.Turns {
			last[u.Thread] = int32(k)
		}
		for k := range s.Turns {
			u := &s.Turns[k]
			if u.Thread == 0 || u.Number != 1 {
				continue
			}
			agents++
			deps := s.Deps[u.DepLo:u.DepHi]
			if len(deps) != 1 || s.Turns[deps[0].Turn].Thread != 0 {
				t.Fatalf("first turn of a subagent waits for %v", deps)
			}
			next := nextOfRoot(s, deps[0].Turn)
			if next == nil {
				t.Fatalf("a subagent outlives its session")
			}
			waits := false
			for _, d := range s.Deps[next.DepLo:next.DepHi] {
				waits = waits || d.Turn == last[u.Thread]
			}
			if !waits || next.StartNS < s.Turns[last[u.Thread]].StartNS {
				t.Errorf("the parent does not wait for its subagent")
			}
			if n := tr.Tree.Common(u.Prompt, s.Turns[0].Prompt); n != 0 {
				t.Errorf("a subagent shares %d tokens with its parent, want a system prompt of its own", n)
			}
		}
	}
	if agents < 45 || agents > 160 { // 30 x 3, geometric
		t.Errorf("%d subagents in 30 sessions, want about 90", agents)
	}
}

// nextOfRoot is the root thread's turn after turn k.
func nextOfRoot(s *Session, k int32) *Turn {
	for i := k + 1; int(i) < len(s.Turns); i++ {
		if s.Turns[i].Thread == 0 {
			return &s.Turns[i]
		}
	}
	return nil
}

// What two successive prompts of a thread share: all of the earlier one with its output while the context grows, the
// prompt alone when thinking is stripped, the system prompt when it was compacted.
func TestSharedWithThePreviousTurn(t *testing.T) {
	for _, strip := range []float64{0, .4} {
		tr := mustGenerate(t, "bailian-agentic", 6, Params{"sessions": Num(300), "single_turn_share": Num(0),
			"context_limit": Num(65_536), "fork_share": Num(0), "thinking_strip": Num(strip)})
		grown, stripped, compacted := 0, 0, 0
		for i := range tr.Sessions {
			s := &tr.Sessions[i]
			root := tr.Tree.Stream(s.Turns[0].Prompt.Stream)
			for k := 1; k < len(s.Turns); k++ {
				before, now := s.Turns[k-1], s.Turns[k].Prompt
				said := before.Prompt
				said.Tokens += before.OutputTokens
				n := tr.Tree.Common(said, now)
				switch {
				case n == said.Tokens && now.Tokens > n:
					grown++
				case n == root.ForkAt:
					compacted++
				case n == before.Prompt.Tokens && strip > 0:
					stripped++
				default:
					t.Fatalf("turn %d of session %d shares %d of %d+%d tokens", k+1, i, n, before.Prompt.Tokens, before.OutputTokens)
				}
			}
		}
		if grown == 0 || compacted == 0 || (strip > 0) != (stripped > 0) {
			t.Errorf("strip %v: %d grown, %d stripped, %d compacted", strip, grown, stripped, compacted)
		}
	}
}

// A forked session begins with the whole prompt of a turn of an earlier session, the window apart at most.
func TestForkedSessions(t *testing.T) {
	const window = 5
	tr := mustGenerate(t, "bailian-agentic", 6, Params{"sessions": Num(200), "fork_share": Num(1), "fork_window": Num(window),
		"context_limit": Num(2_000_000)})
	for i := 1; i < len(tr.Sessions); i++ {
		first := tr.Sessions[i].Turns[0].Prompt
		found := false
		for j := max(0, i-window); j < i; j++ {
			for _, u := range tr.Sessions[j].Turns {
				found = found || tr.Tree.Stream(first.Stream).ForkAt == u.Prompt.Tokens && tr.Tree.Common(first, u.Prompt) == u.Prompt.Tokens
			}
		}
		if !found {
			t.Errorf("session %d begins with no prompt of the %d sessions before it", i, window)
		}
	}
}

// An edited history keeps the length and loses either little or most of the previous prompt.
func TestRewrittenHistory(t *testing.T) {
	tr := mustGenerate(t, "claude-code", 6, Params{"sessions": Num(60), "rewrite_share": Num(1), "context_limit": Num(2_000_000),
		"turn_cap": Num(60), "subagents": Num(0)})
	little, most := 0.0, 0.0
	for i := range tr.Sessions {
		s := &tr.Sessions[i]
		for k := 1; k < len(s.Turns); k++ {
			before, now := s.Turns[k-1].Prompt, s.Turns[k].Prompt
			lost := 1 - float64(tr.Tree.Common(before, now))/float64(before.Tokens)
			switch {
			case now.Tokens <= before.Tokens+s.Turns[k-1].OutputTokens:
				t.Fatalf("an edited prompt is shorter: %d after %d", now.Tokens, before.Tokens)
			case lost >= 0 && lost < .0502:
				little++
			case lost > .5998 && lost < .9702:
				most++
			default:
				t.Fatalf("an edit loses %.3f of the previous prompt", lost)
			}
		}
	}
	if share := little / (little + most); share < .14 || share > .21 {
		t.Errorf("%.3f of the edits lose little, want 0.175", share)
	}
}
