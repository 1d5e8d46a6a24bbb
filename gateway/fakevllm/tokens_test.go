package fakevllm

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func textOf(ids []uint32) string {
	var b []byte
	for _, id := range ids {
		b = decode(id, b)
	}
	return string(b)
}

// Hand vectors: pieces and their bytes.
func TestEncode(t *testing.T) {
	for text, want := range map[string][]string{
		"Hello big world": {"Hell", "o", " big", " wor", "ld"},
		"a\n b, c2":       {"a", "\n", " b", ",", " c2"},
		"日本語 x":           {"日", "本", "語", " x"},
		"😀 é\x00":         {"😀", " é", "\x00"},
		"":                {},
	} {
		ids := encode(text, nil)
		var got []string
		for _, id := range ids {
			got = append(got, string(decode(id, nil)))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: pieces %q, want %q", text, got, want)
		}
	}
	if id := encode("abc", nil)[0]; id != 'a'<<16|'b'<<8|'c' {
		t.Errorf("the id of abc is %#x", id)
	}
}

func TestTokensTurnIntoTheirText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		ids := encode(text, nil)
		if got := textOf(ids); got != text {
			t.Fatalf("%q became %q", text, got)
		}
		for _, id := range ids {
			if id >= 1<<31 || id>>24 == specialToken>>24 || len(decode(id, nil)) > 4 {
				t.Fatalf("%q has token %#x", text, id)
			}
		}
	})
}

// The tokens of a turn start with the tokens of the turn before and of its answer, whatever was said.
func TestTurnsExtendTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []chatMessage
		for range rapid.IntRange(1, 4).Draw(t, "messages") {
			list = append(list, chatMessage{rapid.SampledFrom([]string{"user", "system", "tool"}).Draw(t, "role"), rapid.String().Draw(t, "text")})
		}
		prompt := chatTokens(list, true)
		n := rapid.Int32Range(1, 40).Draw(t, "output")
		r := &request{work: work{prompt: prompt}, text: rapid.Uint64().Draw(t, "seed")}
		if rapid.Bool().Draw(t, "stops") {
			r.stop = n
		}
		said := slices.Clone(prompt)
		for i := range n {
			said = append(said, r.output(i))
		}
		next := chatTokens(append(list, chatMessage{"assistant", r.visible(0, n)}, chatMessage{"user", rapid.String().Draw(t, "next")}), true)
		if !slices.Equal(next[:len(said)], said) {
			t.Fatalf("the next turn does not extend %v", said)
		}
	})
}
