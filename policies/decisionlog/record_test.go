package decisionlog_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/decisionlog"
	"github.com/sluice-sim/sluice/prefix"
)

// void takes everything, or nothing at all.
type void struct{ err error }

func (v void) Write(p []byte) (int, error) { return len(p), v.err }

func TestRecordingDoesNotAllocate(t *testing.T) {
	r := decisionlog.NewRecorder(void{}, smallHeader())
	router := r.Router(policies.Declaration{NewRouter: func(policies.Env, policies.Params) policies.Router { return oneReplica{} }}).NewRouter(policies.Env{}, nil)
	tree := &prefix.Tree{}
	tree.Root()
	turn := policies.Turn{Attempt: 7, Prompt: prefix.Prefix{Tokens: 100}}
	facts := []policies.Fact{{Kind: policies.TurnArrived, Turn: turn}, {Kind: policies.MetricsSampled, Sample: policies.Sample{Has: 15, Usage: 1.0 / 3}}}
	commands := []policies.Command{{Kind: policies.Admit, Attempt: 7}, {Kind: policies.Dispatch, Attempt: 7, Reason: policies.BestScore}}
	step := func() {
		router.Route(1, nil, &turn)
		check(t, r.Step(tree, 1, facts, commands))
	}
	step()
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}

func TestRecorderErrors(t *testing.T) {
	tree := &prefix.Tree{}
	full := errors.New("no space left")
	if err := decisionlog.NewRecorder(void{full}, smallHeader()).Step(tree, 1, nil, nil); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	for _, x := range []struct {
		change func(*decisionlog.Header)
		want   string
	}{
		{func(h *decisionlog.Header) { h.Sluice = "v\n" }, `"v\n" is not at most 256 printable ASCII characters`},
		{func(h *decisionlog.Header) { h.Capabilities = nil }, "0 replicas: expected 1 to 65536"},
		{func(h *decisionlog.Header) { h.Instances = 2000 }, "2000 router instances: expected 1 to 1024"},
		{func(h *decisionlog.Header) { h.Scores.Terms = make([]string, 20) }, "20 score terms"},
	} {
		h := smallHeader()
		x.change(&h)
		if err := decisionlog.NewRecorder(void{}, h).Step(tree, 1, nil, nil); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("got %v, want %s", err, x.want)
		}
	}
}
