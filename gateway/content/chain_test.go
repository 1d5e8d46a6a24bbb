package content

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var secret = []byte("a secret of this installation")

func newHasher(t testing.TB, secret []byte, block int32) *Hasher {
	t.Helper()
	h, err := NewHasher(secret, block)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func chainOf(t testing.TB, h *Hasher, model string, ids ...int32) Chain {
	t.Helper()
	c, err := h.Tokens(Chain{}, model, ids)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func spansOf(t testing.TB, h *Hasher, model string, spans ...string) Chain {
	t.Helper()
	var raw [][]byte
	for _, s := range spans {
		raw = append(raw, []byte(s))
	}
	c, err := h.Bytes(Chain{}, model, raw)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestChainsOfTokens(t *testing.T) {
	h := newHasher(t, secret, 2)
	c := chainOf(t, h, "m", 1, 2, 3, 4, 5)
	if len(c.Blocks) != 2 || c.Tokens != 5 {
		t.Fatalf("%d blocks, %d tokens, expected 2 and 5", len(c.Blocks), c.Tokens)
	}
	for name, other := range map[string]struct {
		c      Chain
		shared int
	}{
		"the same":                   {chainOf(t, h, "m", 1, 2, 3, 4, 5), 2},
		"longer":                     {chainOf(t, h, "m", 1, 2, 3, 4, 5, 6), 2},
		"another base model":         {chainOf(t, h, "n", 1, 2, 3, 4), 2},
		"another second block":       {chainOf(t, h, "m", 1, 2, 3, 5), 1},
		"another first block":        {chainOf(t, h, "m", 7, 2, 3, 4), 0},
		"the second block in front":  {chainOf(t, h, "m", 3, 4), 0},
		"another secret":             {chainOf(t, newHasher(t, []byte("a secret of that installation"), 2), "m", 1, 2, 3, 4), 0},
		"blocks of another size":     {chainOf(t, newHasher(t, secret, 4), "m", 1, 2, 3, 4), 0},
		"bytes of the same spelling": {spansOf(t, h, "m", "\x01\x00\x00\x00\x02\x00\x00\x00\x03"), 0},
	} {
		if n := sharedBlocks(c, other.c); n != other.shared {
			t.Errorf("%s shares %d blocks, expected %d", name, n, other.shared)
		}
	}
	h.adapter("lora")
	if n := sharedBlocks(c, chainOf(t, h, "lora", 1, 2, 3, 4)); n != 0 {
		t.Errorf("an adapter shares %d blocks with the base model", n)
	}
}

func sharedBlocks(a, b Chain) int {
	n := 0
	for n < min(len(a.Blocks), len(b.Blocks)) && a.Blocks[n] == b.Blocks[n] {
		n++
	}
	return n
}

func TestChainsOfBytes(t *testing.T) {
	h := newHasher(t, secret, 1) // blocks of four bytes
	for _, c := range []struct {
		a, b   []string
		shared int
	}{
		{[]string{"abc", "defg"}, []string{"abc", "defg", "h"}, 2}, // abc0 defg 0...
		{[]string{"abc", "def"}, []string{"abc", "xyz"}, 1},
		{[]string{"abcdef"}, []string{"abc", "def"}, 0},
		{[]string{"ab", "c"}, []string{"a", "bc"}, 0},
		{[]string{"abcd"}, []string{"abcd"}, 1},
		{[]string{"", "", "", ""}, []string{"", "", "", "", ""}, 1},
	} {
		x, y := spansOf(t, h, "m", c.a...), spansOf(t, h, "m", c.b...)
		if n := sharedBlocks(x, y); n != c.shared {
			t.Errorf("%q and %q share %d blocks, expected %d", c.a, c.b, n, c.shared)
		}
	}
	if n := sharedBlocks(spansOf(t, h, "m", "abcdefgh"), spansOf(t, h, "n", "abcdefgh")); n != 0 {
		t.Errorf("two models share %d blocks of bytes", n)
	}
	if c := spansOf(t, h, "m", "abcdefgh"); c.Tokens != 3 || len(c.Blocks) != 2 {
		t.Errorf("8 bytes and an end: %d tokens in %d full blocks, expected 3 and 2", c.Tokens, len(c.Blocks))
	}
}

func TestHasherRefuses(t *testing.T) {
	for _, c := range []struct {
		secret string
		block  int32
	}{{"short", 16}, {string(secret), 0}, {string(secret), -1}, {string(secret), 1 << 20}} {
		if _, err := NewHasher([]byte(c.secret), c.block); err == nil {
			t.Errorf("a secret of %d bytes and blocks of %d were taken", len(c.secret), c.block)
		}
	}
	h := newHasher(t, secret, 16)
	if _, err := h.Tokens(Chain{}, "m", nil); err == nil {
		t.Error("an empty prompt was taken")
	}
	if _, err := h.Tokens(Chain{}, "m", make([]int32, MaxPromptTokens+1)); err == nil {
		t.Error("a prompt that is too long was taken")
	}
	if _, err := h.Bytes(Chain{}, "m", nil); err == nil {
		t.Error("an empty prompt was taken")
	}
}

// A prompt's chain is the beginning of the chain of every prompt that it begins, and the memory of an older chain is used
// again without a trace.
func TestChainsGrowAtTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, err := NewHasher(secret, int32(rapid.IntRange(1, 5).Draw(t, "block")))
		if err != nil {
			t.Fatal(err)
		}
		spans := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 30), 1, 8).Draw(t, "spans")
		ids := rapid.SliceOfN(rapid.Int32Range(0, 1<<20), 1, 60).Draw(t, "ids")
		used := Chain{Blocks: make([]uint64, 100), Tokens: 7}
		part := rapid.IntRange(1, len(spans)).Draw(t, "part")
		whole, err := h.Bytes(used, "m", spans)
		if err != nil {
			t.Fatal(err)
		}
		whole.Blocks = slices.Clone(whole.Blocks)
		begin, err := h.Bytes(used, "m", spans[:part])
		if err != nil {
			t.Fatal(err)
		}
		if sharedBlocks(begin, whole) != len(begin.Blocks) {
			t.Fatalf("the first %d spans are not the beginning", part)
		}
		cut := rapid.IntRange(1, len(ids)).Draw(t, "cut")
		long, err1 := h.Tokens(Chain{}, "m", ids)
		short, err2 := h.Tokens(used, "m", ids[:cut])
		if err1 != nil || err2 != nil || sharedBlocks(long, short) != len(short.Blocks) || len(short.Blocks) != cut/int(h.BlockTokens()) {
			t.Fatalf("the first %d tokens are not the beginning: %v %v", cut, err1, err2)
		}
	})
}

func BenchmarkTokens(b *testing.B) {
	h := newHasher(b, secret, 16)
	ids := make([]int32, 32_768)
	var c Chain
	b.SetBytes(int64(len(ids)))
	b.ReportAllocs()
	for b.Loop() {
		c, _ = h.Tokens(c, "m", ids)
	}
}
