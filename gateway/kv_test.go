package gateway

import (
	"io"
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/gateway/kvevents"
)

// TestKVEventsThatDoNotCome: whoever operates the gateway can see that a publisher cannot be reached. Turns are served without it.
func TestKVEventsThatDoNotCome(t *testing.T) {
	p, err := kvevents.NewPublisher(kvevents.PublisherConfig{Endpoint: "tcp://127.0.0.1:0"})
	check(t, err)
	defer p.Close()
	there := p.Addr()
	r := newRig(t, 3, "prompt: {basis: tokens}\npolicy: {gate: none, router: lmetric}\n", func(c *Config) {
		c.Replicas[0].KVEvents.Endpoint, c.Replicas[1].KVEvents.Endpoint = there, "tcp://127.0.0.1:1"
	})
	read := func() string {
		resp, err := r.client.Get(r.url + "/metrics")
		check(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		check(t, err)
		return string(text)
	}
	until(t, "the publisher that is there is followed", func() bool { return strings.Contains(read(), `sluice_replica_kv_connected{replica="r0"} 1`) })
	text := read()
	if !strings.Contains(text, `sluice_replica_kv_connected{replica="r1"} 0`) || strings.Contains(text, `kv_connected{replica="r2"}`) {
		t.Errorf("metrics:\n%s", text)
	}
	r.sendOK(request{session: "s"})
}
