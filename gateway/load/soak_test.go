package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var (
	soaked   = flag.Duration("soak", 2*time.Second, "how long the soak goes on")
	soakSeed = flag.Uint64("soak-seed", 1, "seed of the soak's draws")
)

// soaks are the policies, with the knobs that are changed to and fro while turns wait and run.
var soaks = []struct{ name, policy, other string }{
	{"session", "{gate: {name: session, high_watermark: 0.3, idle_grace_s: 0.5, wait_poll_s: 0.3}, router: lmetric}",
		"{gate: {name: session, high_watermark: 0.8, idle_grace_s: 0.5, wait_poll_s: 0.2}, router: lmetric}"},
	{"max-requests", "{gate: {name: max-requests, max_requests: 6}, router: smg-cache-aware}", "{gate: {name: max-requests, max_requests: 20}, router: smg-cache-aware}"},
	{"thunderagent", "{gate: {name: thunderagent, tick_s: 0.1}, router: dynamo}", "{gate: {name: thunderagent, tick_s: 0.05}, router: dynamo}"},
	{"llm-d-saturation", "{gate: {name: llm-d-saturation, max_requests: 4}, router: sticky-bounded}", "{gate: {name: llm-d-saturation, max_requests: 8}, router: sticky-bounded}"},
	{"max-sessions", "{gate: {name: max-sessions, max_sessions: 8}, router: llm-d}", "{gate: {name: max-sessions, max_sessions: 30}, router: llm-d}"},
}

// TestSoak wears gateways out: clients that come, leave, repeat themselves and talk nonsense, engines that die, hang and lie,
// knobs that change, a drain in the middle of it all. At all times the accounts balance; whenever nobody is there, nothing is
// held; at the end the decision log replays.
func TestSoak(t *testing.T) {
	for i, s := range soaks {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			x := newSoak(t, s.policy, s.other, i == 0, i%2 == 1, *soakSeed+uint64(i))
			x.run(*soaked)
		})
	}
}

type soak struct {
	t       *testing.T
	seed    uint64
	dir     string
	fleet   []*engine
	configs [2]string
	gateway *running
	client  *http.Client
	forgets bool        // clients do not give leases of /decide back, and leases are soon too old
	stopped atomic.Bool // the gateway drains

	statuses [600]atomic.Int64
	reasons  sync.Map // of refusals: how many
	aborted  atomic.Int64
	broken   atomic.Int64 // answers that broke off
}

func newSoak(t *testing.T, policy, other string, probe, forgets bool, seed uint64) *soak {
	x := &soak{t: t, seed: seed, dir: t.TempDir(), fleet: newFleet(t, 3), client: newClient(100), forgets: forgets}
	lease := 3600.0
	if forgets {
		lease = 1.5
	}
	rest := fmt.Sprintf(`
prompt: {basis: tokens, timeout_s: 0.2, blocks: 16384, idle_blocks: 2048}
health: {period_s: 0.03, timeout_s: 0.2, wedged_s: 0.4}
limits: {sessions: 30, session_idle_s: 1, lease_s: %g, wait_s: 0.8, waiting: 12, body_bytes: 65536, body_s: 5}
retries: {per_session: 20, window_s: 5}
decision_log: {path: %q}
recorder: {dir: %q, file_turns: 200}
drain_s: 0.3
`, lease, filepath.Join(x.dir, "decisions.jsonl"), filepath.Join(x.dir, "trace"))
	signals := "scrape_s: 0.03, scrape_timeout_s: 0.1, stale_after_s: 0.15, hold_s: 0.1, stale: " + []string{"hold-last", "ignore", "saturated"}[seed%3]
	if probe {
		signals += ", probe: {path: /sluice/resident, timeout_s: 0.05}"
	}
	for i, p := range []string{policy, other} {
		x.configs[i] = "listen: 127.0.0.1:0\npolicy: " + p + "\nsignals: {" + signals + "}" + rest + replicas(x.fleet)
	}
	x.gateway = serveGateway(t, x.configs[0])
	return x
}

// run goes through bad times, a rest and a drain.
func (x *soak) run(long time.Duration) {
	t := x.t
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	few := int64(3 * long.Seconds())
	go func() {
		defer cancel()
		pause(ctx, long)
		if long < time.Minute { // of a busy machine's seconds, as many as it takes
			for end := time.Now().Add(time.Minute); time.Now().Before(end) && !x.muchHappened(few) && pause(ctx, 50*time.Millisecond); {
			}
		}
	}()
	var all sync.WaitGroup
	var happened map[string]int
	all.Go(func() { happened = torment(ctx, t, x.fleet, x.seed) })
	all.Go(func() { x.operate(ctx) })
	all.Go(func() { x.watch(ctx) })
	x.clients(ctx, &all)
	all.Wait()
	x.rest()
	x.drain()
	a := x.gateway.g.Driver().Audit()
	steps := replay(t, filepath.Join(x.dir, "decisions.jsonl"))
	if steps != a.Steps {
		t.Errorf("the decision log has %d steps of %d", steps, a.Steps)
	}
	verifyRecords(t, filepath.Join(x.dir, "trace"))
	statuses := map[int]int64{}
	for i := range x.statuses {
		if n := x.statuses[i].Load(); n > 0 {
			statuses[i] = n
		}
	}
	reasons := map[string]int64{}
	x.reasons.Range(func(why, n any) bool { reasons[why.(string)] = n.(*atomic.Int64).Load(); return true })
	t.Logf("%d turns: %d finished, %d failed, %d cancelled, %d refused, %d gave up, %d superseded, %d leases taken back; %d steps replayed; answers by status %v, refusals %v, %d aborted, %d broken off; faults %v",
		a.Arrived, a.Finished, a.Failed, a.Cancelled, a.Rejected, a.GaveUp, a.Superseded, a.Expired, steps, statuses, reasons, x.aborted.Load(), x.broken.Load(), happened)
	if !x.forgets && a.Expired > 0 {
		t.Errorf("%d leases were lost: nobody gave them back", a.Expired)
	}
	most := a.Arrived / 5
	if long < time.Minute { // a few seconds on a busy machine are few turns, and a restart cuts many of them
		most = a.Arrived / 2
	}
	if !x.muchHappened(few) {
		t.Error("too little happened for a soak")
	}
	if n := x.broken.Load(); n > most {
		t.Errorf("%d of %d connections were cut", n, a.Arrived)
	}
}

// muchHappened says whether at least few turns finished, as many did not, and there were some hundred in all.
func (x *soak) muchHappened(few int64) bool {
	a := x.gateway.g.Driver().Audit()
	return a.Finished >= few && a.Arrived-a.Finished >= few && a.Arrived >= 100
}

// clients adds clients that go on until ctx ends.
func (x *soak) clients(ctx context.Context, all *sync.WaitGroup) {
	for i := range 24 {
		all.Go(func() {
			draw := rand.New(rand.NewPCG(x.seed, uint64(100+i)))
			for pause(ctx, time.Duration(draw.IntN(30))*time.Millisecond) {
				x.act(ctx, draw)
			}
		})
	}
}

// watch requires that the accounts balance at all times.
func (x *soak) watch(ctx context.Context) {
	for pause(ctx, 5*time.Millisecond) {
		if a := x.gateway.g.Driver().Audit(); a.Imbalance() != 0 {
			x.t.Errorf("accounts %+v", a)
			return
		}
	}
}

// operate is what people do to a gateway meanwhile.
func (x *soak) operate(ctx context.Context) {
	draw := rand.New(rand.NewPCG(x.seed, 6))
	path := filepath.Join(x.dir, "gateway.yaml")
	hangup := make(chan os.Signal)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { x.gateway.g.WatchConfig(ctx, path, hangup) })
	for n := 1; pause(ctx, time.Duration(draw.IntN(150))*time.Millisecond); n++ {
		name := fmt.Sprintf("/replicas/r%d/", draw.IntN(len(x.fleet)))
		switch draw.IntN(5) {
		case 0:
			source := x.configs[n%2]
			if draw.IntN(5) == 0 {
				source += "drain_s: 1\n" // refused
			}
			check(x.t, os.WriteFile(path, []byte(source), 0o600))
			select {
			case hangup <- os.Interrupt:
			case <-ctx.Done():
			}
		case 1: // answered before the replica is resumed at the end
			x.call(context.WithoutCancel(ctx), http.MethodPost, name+"drain", "")
		case 2, 3:
			x.call(ctx, http.MethodPost, name+"resume", "")
		case 4:
			x.call(ctx, http.MethodGet, []string{"/debug/state", "/metrics", "/decisions?n=50", "/health", "/v1/models"}[draw.IntN(5)], "")
		}
	}
	for i := range x.fleet {
		x.call(x.t.Context(), http.MethodPost, fmt.Sprintf("/replicas/r%d/resume", i), "")
	}
}

// call sends a request and reads its answer; "" if there was none.
func (x *soak) call(ctx context.Context, method, path, body string, header ...string) (status int, answer string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, x.gateway.url+path, strings.NewReader(body))
	if err != nil {
		x.t.Error(err)
		return 0, "", err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := x.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	x.statuses[resp.StatusCode%600].Add(1)
	if why := resp.Header.Get("X-Sluice-Reason"); why != "" {
		n, _ := x.reasons.LoadOrStore(why, &atomic.Int64{})
		n.(*atomic.Int64).Add(1)
	}
	return resp.StatusCode, string(data), err
}

// expected are the statuses that clients may get.
var expected = map[int]bool{200: true, 400: true, 409: true, 413: true, 415: true, 429: true, 500: true, 502: true, 503: true, 504: true}

// act is one thing that a client does, for as long as it has patience.
func (x *soak) act(ctx context.Context, draw *rand.Rand) {
	patience := 2 * time.Second
	if draw.IntN(3) == 0 {
		patience = time.Duration(draw.ExpFloat64() * float64(40*time.Millisecond))
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	session := fmt.Sprint("s", draw.IntN(40))
	header := []string{"X-Session-ID", session}
	words, most, stream := text(draw.IntN(5), 100*draw.IntN(30)), 1+draw.IntN(60), draw.IntN(3) > 0
	switch draw.IntN(8) {
	case 0: // a request that others send too
		header = []string{"X-Session-ID", fmt.Sprint("s", draw.IntN(2)), "X-Request-ID", "q"}
		words, most, stream = text(1, 500), 60, true
	case 1:
		header = []string{"x-dynamo-session-id", session, "x-dynamo-trajectory-id", fmt.Sprint(session, "/", draw.IntN(3)), "x-dynamo-trajectory-final", fmt.Sprint(draw.IntN(3) == 0)}
	case 2:
		header = nil
	}
	path, body := "/v1/chat/completions", fmt.Sprintf(`{"model":"m","max_tokens":%d,"stream":%v,"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"%s"}]}`, most, stream, words)
	switch draw.IntN(14) {
	case 0:
		path, body = "/v1/completions", fmt.Sprintf(`{"model":"m","max_tokens":%d,"stream":%v,"prompt":"%s."}`, most, stream, words)
	case 1:
		path, body = "/v1/responses", fmt.Sprintf(`{"model":"m","max_output_tokens":%d,"stream":%v,"input":"%s."}`, most, stream, words)
	case 2:
		path, body = "/v1/messages", fmt.Sprintf(`{"model":"m","max_tokens":%d,"stream":%v,"messages":[{"role":"user","content":"%s."}]}`, most, stream, words)
	case 3:
		path, body = "/finish_session?session_id="+session, ""
	case 4:
		x.decide(ctx, draw, session, words)
		return
	case 5:
		body = []string{"", "{", `{"messages":7}`, strings.Repeat("[", 5000), body[:len(body)/2], strings.Repeat(" ", 70000)}[draw.IntN(6)]
	}
	status, answer, err := x.call(ctx, http.MethodPost, path, body, header...)
	switch {
	case ctx.Err() != nil:
		x.aborted.Add(1)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), err != nil && status != 0: // the engine broke off before the body, or in it
		x.broken.Add(1)
	case err != nil:
		if !x.stopped.Load() {
			x.t.Errorf("no answer of the gateway: %v", err)
		}
	case !expected[status]:
		x.t.Errorf("%s: status %d: %.300s", path, status, answer)
	case status == http.StatusOK && stream && (path == "/v1/chat/completions" || path == "/v1/completions") && !strings.HasSuffix(answer, "data: [DONE]\n\n"):
		x.t.Errorf("half an answer looks like a whole one: %.300q", answer)
	}
}

// decide takes a lease and, most of the time, gives it back.
func (x *soak) decide(ctx context.Context, draw *rand.Rand, session, words string) {
	if !x.forgets {
		ctx = context.WithoutCancel(ctx)
	}
	question, err := json.Marshal(map[string]any{"session": session, "prompt": words + ".", "max_tokens": 10, "wait_s": draw.Float64()})
	check(x.t, err)
	status, answer, err := x.call(ctx, http.MethodPost, "/decide", string(question))
	if err != nil || status != http.StatusOK {
		return
	}
	var lease struct{ Lease int64 }
	if json.Unmarshal([]byte(answer), &lease) != nil || lease.Lease == 0 {
		x.t.Errorf("/decide: %s", answer)
	}
	pause(ctx, time.Duration(draw.IntN(50))*time.Millisecond)
	tries := draw.IntN(4)
	if !x.forgets {
		tries++
	}
	for range tries {
		outcome := []string{"finished", "failed", "cancelled"}[draw.IntN(3)]
		_, _, _ = x.call(ctx, http.MethodPost, "/release", fmt.Sprintf(`{"lease":%d,"outcome":%q,"prompt_tokens":100,"output_tokens":5,"final":%v}`, lease.Lease, outcome, draw.IntN(5) == 0))
	}
}

// rest waits until nobody is there, and requires that nothing is held then, by the gateway or in its name.
func (x *soak) rest() {
	t := x.t
	var left string
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if left = x.held(); left == "" {
			return
		}
		if time.Since(began) > time.Minute {
			t.Errorf("a minute after the last client left: %s", left)
			return
		}
	}
}

// held is what is not as it is where nobody is.
func (x *soak) held() string {
	a := x.gateway.g.Driver().Audit()
	if a.Live != 0 || a.Waiting != 0 || a.Sessions != 0 || a.Imbalance() != 0 {
		return fmt.Sprintf("accounts %+v", a)
	}
	_, text, err := x.call(x.t.Context(), http.MethodGet, "/debug/state", "")
	var state struct {
		Replicas []struct {
			Name, State string
			Why         []string
			Leases      int
			Queued      int64 `json:"queued_prompt_tokens"`
			Decoding    int64 `json:"decoding_tokens"`
		}
		Leases  []any
		Waiting map[string]int
		Content struct{ Held, Full int64 }
	}
	if err != nil || json.Unmarshal([]byte(text), &state) != nil {
		return fmt.Sprintf("no state: %v: %s", err, text)
	}
	if state.Content.Held != 0 || len(state.Leases) != 0 || len(state.Waiting) != 0 {
		return text
	}
	for _, r := range state.Replicas {
		if r.State != "up" || r.Leases != 0 || r.Queued != 0 || r.Decoding != 0 {
			return text
		}
	}
	for _, e := range x.fleet {
		resp, err := http.Get("http://" + e.addr + "/metrics")
		if err != nil {
			return err.Error()
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return err.Error()
		}
		for _, gauge := range []string{"vllm:num_requests_running{", "vllm:num_requests_waiting{"} {
			for line := range bytes.Lines(data) {
				if bytes.HasPrefix(line, []byte(gauge)) && !bytes.HasSuffix(bytes.TrimSpace(line), []byte(" 0")) {
					return "an engine still works: " + string(line)
				}
			}
		}
	}
	return ""
}

// drain stops the gateway while clients come and go.
func (x *soak) drain() {
	ctx, cancel := context.WithCancel(x.t.Context())
	var all sync.WaitGroup
	x.clients(ctx, &all)
	time.Sleep(200 * time.Millisecond)
	x.stopped.Store(true)
	x.gateway.stop()
	cancel()
	all.Wait()
	x.client.CloseIdleConnections()
	http.DefaultClient.CloseIdleConnections()
}
