package kvevents

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// encode is another encoder of msgpack than ours.
func encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := msgpack.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type list = []any
type object = map[string]any

func TestDecode(t *testing.T) {
	sha := bytes.Repeat([]byte{0xab}, 24)
	sha = append(sha, 0x80, 1, 2, 3, 4, 5, 6, 7)
	for _, c := range []struct {
		name string
		sent any
		want Batch
	}{
		{"oldest arrays", list{1.5, list{list{"BlockStored", list{1, 2}, nil, list{5, 6, 7, 8}, 2, nil}}},
			Batch{1.5, -1, []Event{{Kind: BlockStored, Hashes: []Hash{1, 2}, Tokens: []int32{5, 6, 7, 8}, BlockTokens: 2, Group: -1}}}},
		{"arrays with medium, adapter and rank", list{1, list{list{"BlockStored", list{uint64(math.MaxUint64)}, int64(-5), list{5}, 1, 7, "GPU", "lora"}, list{"BlockRemoved", list{9}, "CPU"}}, 3},
			Batch{1, 3, []Event{{Kind: BlockStored, Hashes: []Hash{math.MaxUint64}, HasParent: true, Parent: Hash(math.MaxUint64 - 4), Tokens: []int32{5}, BlockTokens: 1, Medium: "GPU", LoRA: "lora", Group: -1},
				{Kind: BlockRemoved, Hashes: []Hash{9}, Medium: "CPU", Group: -1}}}},
		{"newest arrays, hashes as bytes", list{1, list{list{"BlockStored", list{sha}, sha, list{5}, 1, nil, "GPU", nil, list{list{"salt"}}, 2, "sliding_window", 4096, "what is not known yet"}}, nil},
			Batch{1, -1, []Event{{Kind: BlockStored, Hashes: []Hash{0x8001020304050607}, HasParent: true, Parent: 0x8001020304050607, Tokens: []int32{5}, BlockTokens: 1, Medium: "GPU", Extra: true, Group: 2, Attention: "sliding_window"}}}},
		{"maps", object{"ts": 2.5, "data_parallel_rank": 1, "what": object{"is": list{"this"}}, "events": list{
			object{"type": "BlockStored", "block_hashes": list{3}, "parent_block_hash": nil, "token_ids": list{4, 5}, "block_size": 2, "lora_id": nil, "medium": "GPU", "lora_name": nil, "extra_keys": list{nil}},
			object{"block_hashes": list{3}, "medium": nil, "group_idx": 1, "type": "BlockRemoved"},
			object{"type": "AllBlocksCleared"}}},
			Batch{2.5, 1, []Event{{Kind: BlockStored, Hashes: []Hash{3}, Tokens: []int32{4, 5}, BlockTokens: 2, Medium: "GPU", Group: -1},
				{Kind: BlockRemoved, Hashes: []Hash{3}, Group: 1}, {Kind: AllBlocksCleared, Group: -1}}}},
		{"arrays in a map and maps in an array", object{"ts": 1, "events": list{list{"AllBlocksCleared"}, object{"type": "AllBlocksCleared"}}},
			Batch{1, -1, []Event{{Kind: AllBlocksCleared, Group: -1}, {Kind: AllBlocksCleared, Group: -1}}}},
		{"kinds that are not known", list{1, list{list{"BlockDreamed", 1, object{"a": 1}, math.Pi, true}, list{"AllBlocksCleared"}, object{"type": "BlockDreamed"}}},
			Batch{1, -1, []Event{{Kind: AllBlocksCleared, Group: -1}}}},
		{"no extra keys", list{1, list{list{"BlockStored", list{1}, nil, list{5}, 1, nil, nil, nil, list{list{}, nil}}}},
			Batch{1, -1, []Event{{Kind: BlockStored, Hashes: []Hash{1}, Tokens: []int32{5}, BlockTokens: 1, Group: -1}}}},
		{"nothing happened", list{0.25, list{}}, Batch{0.25, -1, nil}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := Batch{Events: make([]Event, 0, 1), Rank: 99}
			if err := b.Decode(encode(t, c.sent)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, b, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-expected +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		sent any
		says string
	}{
		{"nothing", []byte(nil), "cut off"},
		{"no batch", "text", "expected an array or a map"},
		{"no events", object{"ts": 1}, "a map without events"},
		{"one member", list{1}, "less than two"},
		{"a time that is no number", list{math.NaN(), list{}}, "not finite"},
		{"an event that is no event", list{1, list{7}}, "expected an array or a map"},
		{"an empty event", list{1, list{list{}}}, "an empty array"},
		{"too few tokens", list{1, list{list{"BlockStored", list{1, 2}, nil, list{5}, 1, nil}}}, "2 blocks of 1 tokens with 1 tokens"},
		{"a block size of nothing", list{1, list{list{"BlockStored", list{}, nil, list{}, 0, nil}}}, "0 blocks of 0 tokens"},
		{"a negative token", list{1, list{list{"BlockStored", list{1}, nil, list{-5}, 1, nil}}}, "out of range"},
		{"a token beyond 31 bits", list{1, list{list{"BlockStored", list{1}, nil, list{uint32(1 << 31)}, 1, nil}}}, "out of range"},
		{"a rank that is text", list{1, list{}, "0"}, "expected an integer"},
		{"hashes that are no list", list{1, list{list{"BlockRemoved", 5}}}, "expected an array"},
	} {
		raw, ok := c.sent.([]byte)
		if !ok {
			raw = encode(t, c.sent)
		}
		b := Batch{Events: make([]Event, 3)}
		if err := b.Decode(raw); err == nil || !strings.Contains(err.Error(), c.says) || len(b.Events) != 0 {
			t.Errorf("%s: error %v with %d events, expected one with %q", c.name, err, len(b.Events), c.says)
		}
	}
	b := Batch{}
	good := encode(t, list{1, list{list{"BlockStored", list{1}, nil, list{5}, 1, nil}}})
	for n := range good {
		if err := b.Decode(good[:n]); err == nil {
			t.Errorf("the first %d of %d bytes were taken", n, len(good))
		}
	}
	if err := b.Decode(append(good, 0)); err == nil {
		t.Error("bytes after the batch were taken")
	}
}

// A payload can promise what it does not hold, or be nested as deep as it is long. Neither costs memory or stack.
func TestDecodeOfPromises(t *testing.T) {
	deep := append([]byte{0x93, 1, 0x90}, bytes.Repeat([]byte{0x91}, 8<<20)...)
	for name, raw := range map[string][]byte{
		"four billion events":  {0x92, 1, 0xdd, 0xff, 0xff, 0xff, 0xff},
		"four billion members": {0xdf, 0xff, 0xff, 0xff, 0xff},
		"four billion letters": {0x91, 0xdb, 0xff, 0xff, 0xff, 0xff},
		"a long extension":     {0x94, 1, 0x90, 0xc0, 0xc9, 0xff, 0xff, 0xff, 0xff, 1},
		"eight million levels": append(deep, 0xc0),
	} {
		b := Batch{}
		allocated := testing.AllocsPerRun(1, func() { _ = b.Decode(raw) })
		if name != "eight million levels" && b.Decode(raw) == nil {
			t.Errorf("%s were taken", name)
		}
		if allocated > 20 {
			t.Errorf("%s: %v allocations", name, allocated)
		}
	}
}

func drawBatch(t *rapid.T) Batch {
	b := Batch{Seconds: rapid.Float64Range(0, 1e10).Draw(t, "seconds"), Rank: rapid.Int32Range(-1, 300).Draw(t, "rank")}
	text := rapid.SampledFrom([]string{"", "GPU", "CPU", strings.Repeat("x", 40), strings.Repeat("y", 300)})
	hash := rapid.Map(rapid.Uint64(), func(v uint64) Hash { return Hash(v) })
	for range rapid.IntRange(0, 20).Draw(t, "events") {
		e := Event{Kind: Kind(rapid.IntRange(1, 3).Draw(t, "kind")), Group: -1}
		if e.Kind != AllBlocksCleared {
			e.Hashes = rapid.SliceOfN(hash, 0, 40).Draw(t, "hashes")
			e.Medium = text.Draw(t, "medium")
		}
		if e.Kind == BlockRemoved {
			e.Group = rapid.Int32Range(-1, 3).Draw(t, "group")
		}
		if e.Kind == BlockStored {
			e.BlockTokens = rapid.Int32Range(1, 20).Draw(t, "size")
			for range int(e.BlockTokens) * len(e.Hashes) {
				e.Tokens = append(e.Tokens, int32(rapid.Uint32Range(0, math.MaxInt32).Draw(t, "token")))
			}
			if e.HasParent = rapid.Bool().Draw(t, "has parent"); e.HasParent {
				e.Parent = hash.Draw(t, "parent")
			}
			e.LoRA = text.Draw(t, "adapter")
			if e.Attention = rapid.SampledFrom([]string{"", "full_attention"}).Draw(t, "attention"); e.Attention != "" {
				e.Group = rapid.Int32Range(-1, 3).Draw(t, "group")
			}
		}
		b.Events = append(b.Events, e)
	}
	return b
}

// What is published is read back as it was, by us and, as far as it is msgpack, by another library.
func TestAppendAndDecode(t *testing.T) {
	var again Batch // its memory is used again and again
	rapid.Check(t, func(t *rapid.T) {
		b := drawBatch(t)
		for _, maps := range []bool{false, true} {
			raw := b.Append(nil, maps)
			if err := again.Decode(raw); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(b, again, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("maps %v (-sent +read):\n%s", maps, diff)
			}
			var any any
			if err := msgpack.Unmarshal(raw, &any); err != nil {
				t.Fatalf("maps %v: the other library says %v of %s", maps, err, hex.EncodeToString(raw))
			}
		}
	})
}

// Whatever bytes come: an error or a batch that is whole, in bounded memory; and a batch reads the same when it is sent on.
func FuzzDecode(f *testing.F) {
	for _, v := range []any{
		list{1.5, list{list{"BlockStored", list{1, 2}, nil, list{5, 6, 7, 8}, 2, nil}}, 0},
		object{"ts": 2.5, "events": list{object{"type": "BlockRemoved", "block_hashes": list{[]byte("0123456789abcdef")}}}},
		list{1, list{list{"AllBlocksCleared"}}}, list{1, list{list{"BlockDreamed", object{"a": list{1, 2.5, nil, true}}}}},
	} {
		f.Add(encode(f, v))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var b, again Batch
		if err := b.Decode(raw); err != nil {
			if len(b.Events) > 0 {
				t.Fatal("events beside an error")
			}
			return
		}
		for i := range b.Events {
			e := &b.Events[i]
			if len(e.Hashes) > len(raw) || len(e.Tokens) > len(raw) {
				t.Fatalf("%d hashes and %d tokens of %d bytes", len(e.Hashes), len(e.Tokens), len(raw))
			}
			e.Extra = false // is not sent
			if e.Kind == BlockStored && e.Attention == "" {
				e.Group = -1
			}
		}
		if err := again.Decode(b.Append(nil, true)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(b, again, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Event{}, "BlockTokens", "Tokens", "HasParent", "Parent", "LoRA", "Attention", "Hashes", "Medium", "Group")); diff != "" {
			t.Fatalf("(-sent +read):\n%s", diff)
		}
	})
}
