package gateway

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-sim/sluice/gateway/content"
	"github.com/sluice-sim/sluice/gateway/identity"
	"github.com/sluice-sim/sluice/gateway/recorder"
	"github.com/sluice-sim/sluice/gateway/vllmmetrics"
	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/prefix"
)

// Options is what a Gateway is made of beside its configuration.
type Options struct {
	Version string       // of the program
	Log     *slog.Logger // nil for none
	// Dial connects to engines; nil for TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Gateway is the HTTP in front of engines.
type Gateway struct {
	cfg     *Config
	log     *slog.Logger
	clock   Clock
	secret  []byte
	rules   *identity.Rules
	hasher  *content.Hasher
	table   *content.Table // changed inside Do only
	driver  *Driver
	file    *decisionFile
	records *recorder.Recorder // nil for none
	metrics *meters
	signals atomic.Uint32 // policies.Signals

	replicas  []*replica
	transport http.RoundTripper // of clients' requests
	control   http.RoundTripper // of the gateway's own
	idle      []func()          // close what idles

	ctx      context.Context // ends when the gateway is closed
	stop     context.CancelFunc
	work     sync.WaitGroup
	running  atomic.Int64 // requests
	bodies   atomic.Int64 // bytes of their bodies
	stopping atomic.Bool
	flights  sync.Map           // *flight, those that wait or run
	byID     map[string]*flight // by session and request id; inside Do only
	turn     atomic.Int64
	once     sync.Once
	quiet    *log.Logger // of the reverse proxy

	tokenized *recent[[16]byte, tokenized]
	responses *recent[[16]byte, identity.Identity]
}

// New makes a Gateway with all replicas down; Start finds out which are up. What the configuration leaves open of the
// replicas' capacities is asked of them first, for a bounded time.
func New(cfg *Config, opts Options) (*Gateway, error) {
	g := &Gateway{cfg: cfg, log: opts.Log, clock: NewClock(), quiet: quietLog(), byID: map[string]*flight{},
		tokenized: newRecent[[16]byte, tokenized](64 << 20), responses: newRecent[[16]byte, identity.Identity](100_000)}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if err := g.readSecret(); err != nil {
		return nil, err
	}
	var err error
	if g.rules, err = identity.NewRules(cfg.Identity.Header, cfg.Identity.order(), g.secret); err != nil {
		return nil, err
	}
	if g.hasher, err = content.NewHasher(g.secret, int32(cfg.Prompt.Block)); err != nil {
		return nil, err
	}
	for i := range cfg.Replicas {
		r, err := newReplica(policies.ReplicaID(i), &cfg.Replicas[i])
		if err != nil {
			return nil, err
		}
		g.replicas = append(g.replicas, r)
	}
	g.connect(opts)
	g.ctx, g.stop = context.WithCancel(context.Background())
	if err := g.makeRecorder(); err != nil {
		g.stop()
		return nil, err
	}
	if err := g.makeDriver(opts.Version); err != nil {
		g.stop()
		if g.records != nil {
			_ = g.records.Close() // it has nothing to write
		}
		return nil, err
	}
	g.metrics = newMeters(g)
	return g, nil
}

// readSecret reads the installation's secret, or draws one.
func (g *Gateway) readSecret() error {
	if g.cfg.SecretFile == "" {
		g.secret = make([]byte, 32)
		_, err := rand.Read(g.secret)
		return err
	}
	data, err := os.ReadFile(g.cfg.SecretFile)
	if err != nil {
		return fmt.Errorf("secret_file: %w", err)
	}
	if len(data) < 16 || len(data) > 1<<16 {
		return fmt.Errorf("secret_file: %d bytes, expected at least 16", len(data))
	}
	g.secret = data
	return nil
}

// digest is a hash that nobody without the secret can make.
func (g *Gateway) digest(what string, data []byte) (sum [16]byte) {
	mac := hmac.New(sha256.New, g.secret)
	mac.Write([]byte(what))
	mac.Write([]byte{0})
	mac.Write(data)
	copy(sum[:], mac.Sum(nil))
	return sum
}

// alias names a key where people can read it.
func (g *Gateway) alias(key string) string {
	if key == "" {
		return ""
	}
	sum := g.digest("alias", []byte(key))
	return hex.EncodeToString(sum[:6])
}

// connect makes the transports. They go to the configured addresses whatever the environment says of proxies, follow no
// redirection and send nothing of their own.
func (g *Gateway) connect(opts Options) {
	dial := opts.Dial
	if dial == nil {
		d := &net.Dialer{Timeout: seconds(g.cfg.Limits.ConnectS), KeepAlive: 15 * time.Second}
		dial = d.DialContext
	}
	for _, to := range []*http.RoundTripper{&g.transport, &g.control} {
		t := &http.Transport{
			DialContext: dial, DisableCompression: true, MaxIdleConnsPerHost: 1024, IdleConnTimeout: 30 * time.Second,
			TLSHandshakeTimeout: seconds(g.cfg.Limits.ConnectS), MaxResponseHeaderBytes: 1 << 20, WriteBufferSize: 32 << 10, ReadBufferSize: 16 << 10,
		}
		*to = t
		g.idle = append(g.idle, t.CloseIdleConnections)
	}
}

func (g *Gateway) makeDriver(version string) error {
	core := CoreConfig{Version: version, Seed: uint64(g.cfg.Seed), Policy: g.cfg.Policy, Capabilities: g.capabilities()}
	signals, err := core.signals()
	if err != nil {
		return err
	}
	g.signals.Store(uint32(signals))
	tree := &prefix.Tree{}
	idle := g.cfg.Prompt.Idle
	if idle == 0 {
		idle = -1 // none
	}
	g.table = content.New(tree, g.hasher, content.Options{MaxBlocks: g.cfg.Prompt.Blocks, IdleBlocks: idle})
	if g.file, err = newDecisionFile(g.cfg.Log.Path, g.cfg.Log.MaxBytes, int(g.cfg.Log.Tail)); err != nil {
		return err
	}
	l := &g.cfg.Limits
	g.driver, err = NewDriver(DriverConfig{
		Core: core, Clock: g.clock, Tree: tree, Log: g.file, Probe: g.probe, Over: func(a *Attempt) { g.table.Drop(a.prompt.Stream) }, Ended: g.sessionEnded,
		MaxSessions: int(l.Sessions), MaxWaiting: int(l.Waiting), IdleAfter: seconds(l.SessionIdleS), MaxLease: seconds(l.LeaseS),
	})
	return err
}

// capabilities is what is known of the replicas: what the configuration says, else what their /metrics say now.
func (g *Gateway) capabilities() []policies.Capability {
	all := make([]policies.Capability, len(g.replicas))
	var asked sync.WaitGroup
	for i, r := range g.replicas {
		c := r.cfg
		all[i] = policies.Capability{
			KVTokens: c.KVTokens, BlockTokens: int32(c.Block), MaxBatchedTokens: int32(c.Batched), PrefillTokensPerSec: c.Prefill, AttentionDoubling: c.Attention,
		}
		if c.KVTokens == 0 || c.Block == 0 {
			asked.Go(func() { g.askCapacity(r, &all[i]) })
		}
	}
	asked.Wait()
	return all
}

func (g *Gateway) askCapacity(r *replica, c *policies.Capability) {
	m, err := g.readMetrics(g.ctx, r)
	if err != nil {
		g.log.Info("the capacity of a replica is unknown", "name", r.cfg.Name, "error", err)
		return
	}
	blocks, ok := m.Value(vllmmetrics.Blocks)
	tokens, both := m.Value(vllmmetrics.BlockTokens)
	if !ok || !both || tokens < 1 || tokens > 1<<16 || blocks > 1<<40 {
		return
	}
	if c.BlockTokens == 0 {
		c.BlockTokens = int32(tokens)
	}
	if c.KVTokens == 0 {
		c.KVTokens = int64(blocks) * int64(tokens)
	}
}

// Start begins to watch the replicas. Every replica has been looked at once when it returns.
func (g *Gateway) Start() {
	var first sync.WaitGroup
	for _, r := range g.replicas {
		first.Go(func() { g.checkHealth(g.ctx, r) })
	}
	first.Wait()
	for _, r := range g.replicas {
		g.work.Go(func() { g.watchHealth(g.ctx, r) })
		g.work.Go(func() { g.watchMetrics(g.ctx, r) })
		if r.cfg.KVEvents.Endpoint != "" {
			g.work.Go(func() { g.followKV(g.ctx, r) })
		}
	}
}

// Stop begins to drain: what waits is refused, nothing new is taken, what runs may end until ctx does and is then cut off.
// It returns when nothing runs.
func (g *Gateway) Stop(ctx context.Context) {
	g.stopping.Store(true)
	cancel := func(all bool) {
		g.driver.Do(func(*Batch) {
			g.flights.Range(func(k, _ any) bool {
				if f := k.(*flight); all || f.attempt == nil || f.attempt.stage == waiting {
					f.cancel(errDraining)
				}
				return true
			})
		})
	}
	cancel(false)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for g.running.Load() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			cancel(true)
			ctx = context.Background()
		}
	}
	g.driver.Do(func(b *Batch) { b.takeBack() }) // leases of /decide: nobody can give them back any more
}

// Close ends everything that Start began and closes the decision log. Stop comes first.
func (g *Gateway) Close() error {
	g.stop()
	g.work.Wait()
	g.driver.Close()
	for _, f := range g.idle {
		f()
	}
	if g.records != nil {
		if err := g.records.Close(); err != nil {
			return err
		}
	}
	if err := g.file.Close(); err != nil {
		return err
	}
	if a := g.driver.Audit(); a.Imbalance() != 0 {
		return errors.New("gateway: leases are not conserved: " + fmt.Sprintf("%+v", a))
	}
	return nil
}

// Driver is the gateway's driver.
func (g *Gateway) Driver() *Driver { return g.driver }
