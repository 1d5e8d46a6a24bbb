package scenarios

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryNamedArmHasItsOwnKnobs(t *testing.T) {
	base := mustParse(t, small+"policy: {router: {name: lmetric, batch: ledger}}\n")
	arms, err := Named(base, []string{
		"weights: policy.router=llm-d, policy.router.queue_weight=1",
		"mine: policy.router=smetric,policy.router.batch=sample",
		"as published: policy.router=smetric",
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"weights", "mine", "as published"}, armNames(arms)); diff != "" {
		t.Error(diff)
	}
	if got := arms[0].Scenario.Policy.Router; got.Name != "llm-d" || got.Params["queue_weight"].Number != 1 {
		t.Errorf("got %+v", got)
	}
	if got := arms[1].Scenario.Policy.Router.Params["batch"].Text; got != "sample" {
		t.Errorf("batch is %q", got)
	}
	if got := arms[2].Scenario.Policy.Router.Params["batch"].Text; got != "max" {
		t.Errorf("the batch of lmetric or of another arm has become that of smetric: %q", got)
	}
	want := []Varied{{"policy.router.name", "llm-d"}, {"policy.router.queue_weight", "1"}}
	if diff := cmp.Diff(want, arms[0].Varied); diff != "" {
		t.Error(diff)
	}
	if base.Policy.Router.Name != "lmetric" {
		t.Error("the base has changed")
	}
}

func TestNamedArmsThatAreWrong(t *testing.T) {
	base := mustParse(t, small)
	for _, c := range []struct{ text, want string }{
		{"policy.router=sticky", "expected \"name: path=value"},
		{"policy.router=sticky,seed=1: 2", "expected \"name: path=value"},
		{" : policy.router=sticky", "the name is empty"},
		{"a: policy.router=sticky", "another arm a"},
		{"b:", "path=value"},
		{"b: policy.router=sticky,policy.router.name=sticky", "given twice"},
		{"b: policy.router=sticky,policy.router.queue_weight=1", "queue_weight"},
		{"b: policy.rooter=sticky", "policy.rooter"},
		{"b: seed=x", "seed"},
	} {
		if _, err := Named(base, []string{"a: seed=3", c.text}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.text, err, c.want)
		}
	}
}
