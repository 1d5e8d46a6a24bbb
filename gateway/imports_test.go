package gateway

import (
	"os/exec"
	"strings"
	"testing"
)

// TestTheGatewayReachesNoModel: what runs in production is the decision core, and nothing that only a simulator knows.
func TestTheGatewayReachesNoModel(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".", "./content", "./identity", "./kvevents", "./recorder", "./sse", "./vllmmetrics").Output()
	check(t, err)
	deps := strings.Fields(string(out))
	const module = "github.com/sluice-sim/sluice/"
	core := false
	for _, d := range deps {
		core = core || d == module+"policies"
		if d == module+"sim" || strings.HasPrefix(d, module+"model") || d == module+"gateway/fakevllm" || d == module+"gateway/memnet" {
			t.Errorf("the gateway reaches %s", d)
		}
	}
	if !core {
		t.Errorf("the decision core is not among %d packages: the list is wrong", len(deps))
	}
}
