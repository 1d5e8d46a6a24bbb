package decisionlog_test

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/decisionlog"
	"github.com/sluice-sim/sluice/prefix"
)

const reuseLog = `{"first_stream":0,"streams":[[-1,0],[0,32],[1,64]]}
{"step":1,"now_ns":1,"facts":[],"commands":[]}
{"first_stream":3,"streams":[[-1,0]]}
{"streams_again":[[1,-1,0],[2,-1,0]]}
{"streams_again":[[1,0,16],[3,1,48]]}
{"step":2,"now_ns":2,"facts":[],"commands":[]}
{"streams_again":[[3,-1,0]]}
{"step":3,"now_ns":3,"facts":[],"commands":[]}
`

// By hand: two streams are released, one slot is used again and a new stream forks from it; then that is released.
func TestFormatOfReleasedStreams(t *testing.T) {
	tree := &prefix.Tree{}
	tree.Root()
	tree.Fork(prefix.Prefix{Stream: 0, Tokens: 32})
	tree.Fork(prefix.Prefix{Stream: 1, Tokens: 64})
	var out bytes.Buffer
	h := smallHeader()
	r := decisionlog.NewRecorder(&out, h)
	step := func(now policies.Time) {
		if err := r.Step(tree, now, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	step(1)
	tree.Release(2)
	tree.Release(1)
	tree.Fork(prefix.Prefix{Stream: 0, Tokens: 16})
	again := tree.Fork(prefix.Prefix{Stream: 1, Tokens: 8}) // slot 2, of the root: tokens below 16 are its own
	tree.Release(again)
	tree.Root() // slot 2
	tree.Fork(prefix.Prefix{Stream: 1, Tokens: 48})
	step(2)
	tree.Release(3)
	step(3)
	_, got, _ := strings.Cut(out.String(), "\n")
	if got != reuseLog {
		t.Errorf("wrote\n%s\nexpected\n%s", got, reuseLog)
	}
	d := decisionlog.NewDecoder()
	for line := range strings.Lines(out.String()) {
		if _, err := d.Take([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		if s := prefix.StreamID(i); d.Tree.Stream(s) != tree.Stream(s) {
			t.Errorf("stream %d: read %+v, expected %+v", i, d.Tree.Stream(s), tree.Stream(s))
		}
	}
}

func TestDamagedReuseIsRefused(t *testing.T) {
	var out bytes.Buffer
	h := smallHeader()
	head := string(h.Append(nil))
	for name, line := range map[string]string{
		"a circle":             `{"streams_again":[[0,1,40]]}`,
		"itself":               `{"streams_again":[[2,2,70]]}`,
		"others fork from it":  `{"streams_again":[[1,0,16]]}`,
		"no such slot":         `{"streams_again":[[3,-1,0]]}`,
		"no such parent":       `{"streams_again":[[2,3,70]]}`,
		"fork above parent's":  `{"streams_again":[[2,1,32]]}`,
		"a root with a fork":   `{"streams_again":[[2,-1,5]]}`,
		"nothing":              `{"streams_again":[]}`,
		"not closed":           `{"streams_again":[[2,-1,0]`,
		"a negative fork":      `{"streams_again":[[2,0,-1]]}`,
		"a word for a number":  `{"streams_again":[[2,-1,"0"]]}`,
		"a circle in one line": `{"streams_again":[[2,-1,0],[1,2,5],[2,1,70]]}`,
	} {
		out.Reset()
		d := decisionlog.NewDecoder()
		ok := head + "{\"first_stream\":0,\"streams\":[[-1,0],[0,32],[1,64]]}\n"
		for l := range strings.Lines(ok) {
			if _, err := d.Take([]byte(l)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d.Take([]byte(line + "\n")); err == nil {
			t.Errorf("%s was taken: %s", name, line)
		}
	}
}

// However streams are released and made between steps, a reader's tree agrees with the writer's on all that live.
func TestReaderFollowsReuse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := &prefix.Tree{}
		var out bytes.Buffer
		r := decisionlog.NewRecorder(&out, smallHeader())
		d := decisionlog.NewDecoder()
		var live []prefix.StreamID
		children := map[prefix.StreamID]int{}
		for n := range rapid.IntRange(1, 20).Draw(t, "steps") {
			bulk := rapid.SampledFrom([]int{0, 1, 3, 20, 3000}).Draw(t, "changes")
			if bulk == 3000 {
				for range bulk { // more than the tree keeps in mind
					tree.Release(tree.Root())
				}
				bulk = 5
			}
			for range bulk {
				switch k := rapid.IntRange(0, 9).Draw(t, "kind"); {
				case k < 2 || len(live) == 0:
					live = append(live, tree.Root())
				case k < 6:
					p := rapid.SampledFrom(live).Draw(t, "parent")
					live = append(live, tree.Fork(prefix.Prefix{Stream: p, Tokens: tree.Stream(p).ForkAt + int32(rapid.IntRange(1, 50).Draw(t, "at"))}))
					children[p]++
				default:
					i := rapid.IntRange(0, len(live)-1).Draw(t, "released")
					s := live[i]
					if children[s] > 0 {
						continue
					}
					if p := tree.Stream(s).Parent; p != prefix.None {
						children[p]--
					}
					tree.Release(s)
					live = append(live[:i], live[i+1:]...)
				}
			}
			before := out.Len()
			if err := r.Step(tree, policies.Time(n), nil, nil); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()[before:]) {
				if _, err := d.Take([]byte(line)); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range live {
				if d.Tree.Stream(s) != tree.Stream(s) {
					t.Fatalf("step %d, stream %d: read %+v, expected %+v", n+1, s, d.Tree.Stream(s), tree.Stream(s))
				}
			}
		}
	})
}
