package gateway

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-sim/sluice/gateway/memnet"
)

// TestKnobsChangeWhileTurnsWait: with one slot a turn waits; the file gives two, and it goes. The log replays (newRig sees to
// that).
func TestKnobsChangeWhileTurnsWait(t *testing.T) {
	memnet.Bubble(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "gateway.yaml")
		r := newRig(t, 1, "policy: {gate: {name: max-requests, max_requests: 1}, router: lmetric}\n", nil)
		write := func(policy, rest string) {
			t.Helper()
			source := fmt.Sprintf("replicas:\n  - {name: r0, url: %q, kv_tokens: 100000, block_tokens: 16}\n", r.stubs[0].URL)
			source += "health: {period_s: 0.02, timeout_s: 0.5}\nsignals: {scrape_s: 0.02, scrape_timeout_s: 0.2, stale_after_s: 0.2}\n" + policy
			source += fmt.Sprintf("decision_log: {path: %q}\n%s", r.g.cfg.Log.Path, rest)
			check(t, os.WriteFile(path, []byte(source), 0o600))
		}
		write("policy: {gate: {name: max-requests, max_requests: 1}, router: lmetric}\n", "")
		ctx, stop := context.WithCancel(t.Context())
		hangup, watched := make(chan os.Signal), make(chan struct{})
		go func() { r.g.WatchConfig(ctx, path, hangup); close(watched) }()
		defer func() { stop(); <-watched }()
		r.stubs[0].set(func() { r.stubs[0].serve = hang })
		clients, leave := context.WithCancel(t.Context())
		answers := make(chan got, 3)
		for i := range 3 {
			go func() { answers <- r.sendUntil(clients, request{session: fmt.Sprint(i)}) }()
		}
		until(t, "one runs, two wait", func() bool { a := r.audit(); return a.Live == 1 && a.Waiting == 2 })
		write("policy: {gate: {name: max-requests, max_requests: 2}, router: lmetric}\n", "")
		hangup <- os.Interrupt
		until(t, "two run", func() bool { a := r.audit(); return a.Live == 2 && a.Waiting == 1 })
		for why, f := range map[string]func(){
			"limits: only knobs": func() {
				write("policy: {gate: {name: max-requests, max_requests: 9}, router: lmetric}\n", "limits: {wait_s: 3}\n")
			},
			"other policies":                  func() { write("policy: {gate: none, router: lmetric}\n", "") },
			"max_requests: 0 is out of range": func() { write("policy: {gate: {name: max-requests, max_requests: 0}, router: lmetric}\n", "") },
		} {
			f()
			hangup <- os.Interrupt
			until(t, why, func() bool { return strings.Contains(r.log.String(), why) })
		}
		if a := r.audit(); a.Live != 2 || a.Waiting != 1 {
			t.Errorf("a configuration that was refused had an effect: %+v", a)
		}
		write("policy: {gate: {name: max-requests, max_requests: 3}, router: {name: lmetric, batch: ledger}}\n", "") // seen by itself
		until(t, "three run", func() bool { return r.audit().Live == 3 })
		leave()
		for range 3 {
			<-answers
		}
		if a := r.settled(); a.Cancelled != 3 {
			t.Errorf("accounts %+v", a)
		}
		var limit float64
		r.g.driver.Do(func(b *Batch) { limit = r.g.driver.cfg.Core.Policy.Gate.Params["max_requests"].Number })
		if limit != 3 {
			t.Errorf("limit %v", limit)
		}
	})
}
