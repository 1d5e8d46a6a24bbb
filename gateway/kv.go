package gateway

import (
	"context"

	"github.com/sluice-sim/sluice/gateway/kvevents"
)

// followKV brings the KV events of a replica to the core.
func (g *Gateway) followKV(ctx context.Context, r *replica) {
	c := &r.cfg.KVEvents
	s, err := kvevents.NewSubscriber(kvevents.SubscriberConfig{Endpoint: c.Endpoint, Bind: c.Bind, Replay: c.Replay, Topic: c.Topic})
	if err != nil {
		g.log.Error("KV events of a replica cannot be followed", "name", r.cfg.Name, "error", err)
		return
	}
	r.kv.Store(s)
	s.Run(ctx, func(u kvevents.Update) {
		g.driver.Do(func(b *Batch) {
			if u.Reset {
				r.kvResets.Add(1)
				g.log.Warn("what was known of a replica's blocks is void", "name", r.cfg.Name, "why", u.Reason)
				b.addFacts(g.table.Clear(r.id, nil))
			}
			if u.Batch != nil {
				r.kvEvents.Add(1)
				b.addFacts(g.table.Apply(r.id, u.Batch, nil))
			}
		})
	})
}
