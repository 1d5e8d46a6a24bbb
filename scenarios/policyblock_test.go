package scenarios

import (
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

const policyBlock = `policy:
  gate:
    name: session
    high_watermark: 0.7
  router: smetric
`

func policyNode(t *testing.T, source string) *yaml.Node {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Load([]byte(source), &doc); err != nil {
		t.Fatal(err)
	}
	top := doc.Content[0]
	for i := 0; i < len(top.Content); i += 2 {
		if top.Content[i].Value == "policy" {
			return top.Content[i+1]
		}
	}
	return nil
}

// TestAPolicyBlockMeansTheSameInBothFiles: what a gateway reads is what a scenario with the same block has.
func TestAPolicyBlockMeansTheSameInBothFiles(t *testing.T) {
	for _, block := range []string{policyBlock, "policy: {}\n", "policy:\n  router: {name: lmetric}\n", "listen: a\n"} {
		rest := "workload: {generate: bench}\narrivals: {rate_per_s: 1}\ncluster: {replicas: 2, model: llama-3.1-8b, gpu: h100}\n"
		scenario := block
		if strings.HasPrefix(block, "listen") {
			scenario = ""
		}
		sc, err := Parse("x", []byte(rest+scenario))
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParsePolicy("x", []byte(block), policyNode(t, block))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, sc.Policy) {
			t.Errorf("%s: %+v in a gateway, %+v in a scenario", block, got, sc.Policy)
		}
	}
}

func TestProblemsOfAPolicyBlockHaveTheirPlace(t *testing.T) {
	source := "listen: a\n" + strings.Replace(policyBlock, "0.7", "70", 1) + "  gates: x\n"
	_, err := ParsePolicy("gateway.yaml", []byte(source), policyNode(t, source))
	if err == nil {
		t.Fatal("a value out of range and an unknown key were taken")
	}
	for _, want := range []string{"gateway.yaml:5:5: policy.gate.high_watermark: 70 is out of range", "gateway.yaml:7:3: policy.gates: unknown key", "high_watermark: 70\n"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%s", want, err)
		}
	}
}
