package fakevllm

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-sim/sluice/gateway/memnet"
)

// Whatever clients and operators do, in the end nothing is held, nothing is live, and names are kept of what the pool holds
// and of nothing else; and the server still answers.
func TestNothingIsLeftOver(t *testing.T) {
	for seed := range uint64(12) {
		memnet.Bubble(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			cfg := small(t)
			cfg.Blocks, cfg.Engine.Async, cfg.Engine.MaxBatchedTokens, cfg.Engine.MaxNumSeqs = 60+rng.Int32N(200), seed%3 != 0, 512, 64
			cfg.Engine.PrefixCaching, cfg.Engine.Priority = seed%4 != 1, seed%5 == 2
			r := newRig(t, cfg)
			defer r.close()
			c := r.server.engine()
			var all sync.WaitGroup
			for i := range 150 {
				prompt := append(tokenList(rng.IntN(4), rng.IntN(300)), tokenList(10+rng.IntN(20), 1+rng.IntN(300))...)
				q := newRequest(&r.server.cfg, work{
					prompt: prompt, maxTokens: 1 + rng.Int32N(200), ignoreEOS: rng.IntN(2) == 0, priority: rng.Int32N(3), seed: rng.Uint64N(3),
				})
				q.id = int64(i)
				wait := time.Duration(rng.IntN(20_000)) * time.Millisecond
				leaves := time.Duration(1+rng.IntN(3000)) * time.Millisecond
				stays := rng.IntN(3) > 0
				all.Go(func() {
					time.Sleep(wait)
					if !c.submit(q) {
						t.Error("refused")
						return
					}
					if !stays {
						time.Sleep(leaves)
						c.abort(q)
					}
					for ended := false; !ended; _, _, ended, _ = c.progress(q) {
						<-q.news
					}
				})
			}
			for range 10 {
				wait, what := time.Duration(rng.IntN(20_000))*time.Millisecond, rng.IntN(4)
				all.Go(func() {
					time.Sleep(wait)
					switch what {
					case 0:
						r.do("/reset_prefix_cache?reset_running_requests=true", "{}")
					case 1:
						r.do("/reset_prefix_cache", "{}")
					case 2:
						r.do("/sleep", "{}")
						time.Sleep(500 * time.Millisecond)
						r.do("/wake_up", "{}")
					case 3:
						r.do("/sluice/resident", jsonOf(map[string]any{"tokens": tokenList(1, 300)}))
					}
				})
			}
			time.Sleep(30 * time.Second)
			r.do("/wake_up", "{}") // two operators may have crossed
			all.Wait()
			time.Sleep(time.Second)
			synctest.Wait()
			if len(c.live)+len(c.inbox)+len(c.aborts) != 0 || c.loop.Pool().Free() != cfg.Blocks || c.loop.Running()+c.loop.Waiting()+c.loop.Skipped() != 0 {
				t.Errorf("seed %d: %d live, %d not taken in, %d of %d blocks free", seed, len(c.live), len(c.inbox), c.loop.Pool().Free(), cfg.Blocks)
			}
			if int64(len(c.names.known)) != c.loop.Pool().Cached() {
				t.Errorf("seed %d: %d blocks named, %d cached", seed, len(c.names.known), c.loop.Pool().Cached())
			}
			if f := r.figures(); f["vllm:request_success_total/abort"]+f["vllm:request_success_total/stop"]+f["vllm:request_success_total/length"] != 150 {
				t.Errorf("seed %d: %v", seed, f)
			}
			get[reply](r, "/v1/completions", completionOf(tokenList(1, 100), 5, false))
		})
	}
}
