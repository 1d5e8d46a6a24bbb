package traces

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/prefix"
)

// bounded fails when reading the input took more than 64 MiB for 64 kB.
func bounded(t *testing.T, input []byte, read func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	read()
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; len(input) <= 64<<10 && used > 64<<20 {
		t.Fatalf("%d bytes allocated for %d bytes of input", used, len(input))
	}
}

// accepted checks what a reader let through: valid, with every turn accounted for. Round trips through Parquet have
// tests of their own: that library's pools make coverage random, and the fuzzer would chase it.
func accepted(t *testing.T, tr *Trace) {
	t.Helper()
	if p := Validate(tr); len(p) > 0 {
		t.Fatalf("accepted, but %s", p[0])
	}
	if n := int64(tr.Turns()) + tr.Report.DroppedTurns(); n != tr.Report.Turns {
		t.Fatalf("%d turns kept or dropped, %d read", n, tr.Report.Turns)
	}
	Summarise(tr)
	if p := Validate(DropOverContext(tr, 200)); len(p) > 0 {
		t.Fatalf("after dropping turns: %s", p[0])
	}
}

func addSeeds(f *testing.F, names ...string) {
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
}

func FuzzKVCacheTester(f *testing.F) {
	addSeeds(f, "kv-subagents.json", "kv-models.json")
	f.Add([]byte(kvDoc(goodCall, `{"t":9,"type":"subagent","duration_ms":10500,"requests":[`+goodCall+`]}`)))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, opt := range []Options{{}, {SharedPrefix: SharedAuto, OutputReuse: ReuseNone, Models: ModelsMain, IdleCapNS: 1e9}} {
			opt, err := opt.checked()
			if err != nil {
				t.Fatal(err)
			}
			var file *kvFile
			bounded(t, b, func() { file, err = parseKV(b, opt.Limits) })
			if err != nil {
				return
			}
			builder := newKVBuilder("fuzz", opt)
			if err := builder.addFile(file); err != nil {
				t.Fatal(err)
			}
			tr := builder.finish()
			if len(tr.Sessions) > 0 {
				accepted(t, tr)
			}
		}
	})
}

func FuzzMooncake(f *testing.F) {
	addSeeds(f, "mooncake.jsonl")
	f.Add([]byte(`{"timestamp":5000.5,"session_id":"b","input_length":512,"output_length":10,"hash_ids":[1]}
{"delay":250,"session_id":"b","input_length":1024,"output_length":10,"hash_ids":[1,2]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		opt, err := Options{}.checked()
		if err != nil {
			t.Fatal(err)
		}
		var file *mcFile
		bounded(t, b, func() {
			s := &source{countingReader: &countingReader{r: bytes.NewReader(b), limit: opt.Limits.Bytes}, name: "fuzz"}
			file, err = parseMooncake(s, opt.Limits)
		})
		if err == nil {
			accepted(t, buildMooncake(file, "fuzz", opt))
		}
	})
}

func FuzzNative(f *testing.F) {
	for _, name := range []string{"kv-subagents.json", "mooncake.jsonl"} {
		f.Add(roundTrip(f, open(f, name, Options{})))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var tr *Trace
		var err error
		bounded(t, b, func() { tr, err = parseNative(b, Limits{}.orDefault()) })
		if err == nil {
			accepted(t, tr)
		}
	})
}

// FuzzScanIntegers holds the hand-written scanner against the strict decoder.
func FuzzScanIntegers(f *testing.F) {
	for _, s := range []string{"[]", "[1,2, 3]", "[ 1 ]", "[9223372036854775807]", "[9223372036854775808]", "[1.0]", "[1e2]", "[-0]", "[null]", "[[1]]", `["1"]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v := jsontext.Value(bytes.TrimSpace(b))
		if !v.IsValid() {
			return
		}
		got, err := scanIntegers(v, nil)
		var want []int64
		strict := json.Unmarshal(v, &want)
		if err == nil {
			if strict != nil || len(got) != len(want) {
				t.Fatalf("%s: scanned %v, decoded %v (%v)", v, got, want, strict)
			}
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("%s: scanned %v, decoded %v", v, got, want)
				}
			}
		} else if strict == nil && v.Kind() == '[' && !bytes.ContainsAny(v, "-n") {
			t.Fatalf("%s: refused (%v), decoded %v", v, err, want)
		}
	})
}

// Rows that nobody wrote by accident: any numbers give an error or a valid trace, never a panic.
func TestNativeHostileRows(t *testing.T) {
	small := rapid.Int32Range(-2, 4)
	number := rapid.OneOf(rapid.Int32Range(-2, 300), rapid.Int32())
	rapid.Check(t, func(t *rapid.T) {
		tr := &Trace{Tree: &prefix.Tree{}, Models: []string{"m"}}
		n := nativeReader{limits: Limits{}.orDefault(), models: map[string]int32{"m": 0}, groups: map[string]int32{},
			streams: &growth{tree: tr.Tree}, session: -1, ended: true}
		for range rapid.IntRange(1, 6).Draw(t, "rows") {
			r := nativeTurn{Model: "m", Session: rapid.Int32Range(0, 1).Draw(t, "session"), SessionThreads: small.Draw(t, "threads"),
				Thread: small.Draw(t, "thread"), Turn: small.Draw(t, "turn"), Stream: small.Draw(t, "stream"),
				PromptTokens: number.Draw(t, "prompt"), OutputTokens: number.Draw(t, "output"), StartNS: int64(number.Draw(t, "start"))}
			for range rapid.IntRange(0, 2).Draw(t, "deps") {
				r.DepTurn = append(r.DepTurn, small.Draw(t, "dep"))
				r.DepOnDispatch = append(r.DepOnDispatch, rapid.Bool().Draw(t, "on"))
				r.DepDelayNS = append(r.DepDelayNS, int64(number.Draw(t, "delay")))
			}
			for range rapid.IntRange(0, 2).Draw(t, "streams") {
				r.StreamParent = append(r.StreamParent, small.Draw(t, "parent"))
				r.StreamForkAt = append(r.StreamForkAt, number.Draw(t, "fork"))
			}
			n.rows = append(n.rows, r)
		}
		n.read = len(n.rows)
		for {
			s, err := n.Next()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return
			}
			tr.Sessions = append(tr.Sessions, *s)
		}
		if len(Validate(tr)) == 0 {
			ceilings(tr, 16)
			Summarise(tr)
			DropOverContext(tr, 100)
		}
	})
}
