package gateway

import (
	"container/list"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/sluice-sim/sluice/gateway/content"
	"github.com/sluice-sim/sluice/gateway/identity"
	"github.com/sluice-sim/sluice/gateway/sse"
	"github.com/sluice-sim/sluice/policies"
)

// identify makes the chain of a request's prompt: of its token ids if they are asked for and can be had, else of its
// bytes. counted says that the number of tokens is no estimate.
func (g *Gateway) identify(ctx context.Context, api sse.API, raw []byte, body *identity.Body) (p tokenized, counted bool, err error) {
	if g.cfg.Prompt.Basis == "tokens" {
		p, err = g.tokensOf(ctx, api, raw, body)
		if err == nil {
			g.metrics.bases.WithLabelValues("token").Inc()
			return p, true, nil
		}
		g.once.Do(func() {
			g.log.Warn("prompts are identified by their bytes where no engine gives their tokens", "error", err)
		})
	}
	g.metrics.bases.WithLabelValues("byte").Inc()
	spans := body.Spans(nil)
	if len(body.TokenIDs) > 0 {
		spans = append(spans, body.TokenIDs)
	}
	p.chain, err = g.hasher.Bytes(content.Chain{}, body.Model, spans)
	return p, false, err
}

// tokenized is a prompt whose token ids were known.
type tokenized struct {
	chain content.Chain
	ids   []int32 // kept only where engines are asked about them
}

func (g *Gateway) chainOf(model string, ids []int32) (tokenized, error) {
	c, err := g.hasher.Tokens(content.Chain{}, model, ids)
	if g.cfg.Signals.Probe.Path == "" {
		ids = nil
	}
	return tokenized{c, ids}, err
}

// tokensOf is a prompt by its token ids. What an engine said of a prompt is remembered for its next attempt.
func (g *Gateway) tokensOf(ctx context.Context, api sse.API, raw []byte, body *identity.Body) (tokenized, error) {
	none := tokenized{}
	if len(body.TokenIDs) > 0 {
		var ids []int32
		if err := json.Unmarshal(body.TokenIDs, &ids); err != nil {
			return none, fmt.Errorf("token ids: no list of integers")
		}
		return g.chainOf(body.Model, ids)
	}
	path, question := "/tokenize", raw
	switch {
	case api == sse.Responses || api == sse.Messages || len(body.Items) == 0:
		return none, fmt.Errorf("engines give no tokens for this API")
	case g.cfg.Prompt.Source == "render" && api == sse.Chat:
		path = "/v1/chat/completions/render"
	case g.cfg.Prompt.Source == "render":
		path = "/v1/completions/render"
	default:
		var err error
		if question, err = tokenizeQuestion(raw, api); err != nil {
			return none, err
		}
	}
	key := g.digest(path, question)
	if p, ok := g.tokenized.get(key); ok {
		return p, nil
	}
	r := g.anyUp()
	if r == nil {
		return none, fmt.Errorf("no replica is up")
	}
	data, status, err := g.ask(ctx, r, seconds(g.cfg.Prompt.Timeout), http.MethodPost, path, question)
	if err != nil {
		return none, err
	}
	if status != http.StatusOK {
		return none, fmt.Errorf("%s: status %d", path, status)
	}
	ids, err := tokenIDs(data)
	if err != nil {
		return none, fmt.Errorf("%s: %w", path, err)
	}
	p, err := g.chainOf(body.Model, ids)
	if err == nil {
		g.tokenized.put(key, p, 8*len(p.chain.Blocks)+4*len(p.ids)+64)
	}
	return p, err
}

// tokenizeQuestion is what /tokenize is asked: of the request, what makes up the prompt.
func tokenizeQuestion(raw []byte, api sse.API) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	keep := []string{"model", "prompt", "add_special_tokens"}
	if api == sse.Chat {
		keep = []string{"model", "messages", "tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "chat_template", "add_special_tokens", "mm_processor_kwargs"}
	}
	question := map[string]json.RawMessage{}
	for _, k := range keep {
		if v, ok := all[k]; ok {
			question[k] = v
		}
	}
	return json.Marshal(question)
}

// tokenIDs reads the answer of /tokenize or of a render endpoint.
func tokenIDs(data []byte) ([]int32, error) {
	type answer struct {
		Tokens   []int32 `json:"tokens"`
		TokenIDs []int32 `json:"token_ids"`
		Prompt   []int32 `json:"prompt_token_ids"`
	}
	var one answer
	if err := json.Unmarshal(data, &one); err != nil {
		var many []answer
		if json.Unmarshal(data, &many) != nil || len(many) != 1 {
			return nil, fmt.Errorf("no token ids of one prompt")
		}
		one = many[0]
	}
	for _, ids := range [][]int32{one.Tokens, one.TokenIDs, one.Prompt} {
		if len(ids) > 0 {
			return ids, nil
		}
	}
	return nil, fmt.Errorf("no token ids")
}

// anyUp is a replica that is up, each in its turn; nil if there is none.
func (g *Gateway) anyUp() *replica {
	n := int(g.turn.Add(1))
	var found *replica
	g.driver.Do(func(*Batch) {
		for i := range g.replicas {
			if r := g.replicas[(n+i)%len(g.replicas)]; r.state == policies.Up {
				found = r
				return
			}
		}
	})
	return found
}

// recent is a map that forgets what was not used for longest when it has grown too large. It may be used by many
// goroutines.
type recent[K comparable, V any] struct {
	mu    sync.Mutex
	most  int
	size  int
	order *list.List // of *recentEntry, used last first
	byKey map[K]*list.Element
}

type recentEntry[K comparable, V any] struct {
	key   K
	value V
	size  int
}

func newRecent[K comparable, V any](most int) *recent[K, V] {
	return &recent[K, V]{most: most, order: list.New(), byKey: map[K]*list.Element{}}
}

func (m *recent[K, V]) get(k K) (v V, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.byKey[k]
	if !ok {
		return v, false
	}
	m.order.MoveToFront(e)
	return e.Value.(*recentEntry[K, V]).value, true
}

// put keeps a value that counts for size of the most that are kept.
func (m *recent[K, V]) put(k K, v V, size int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.byKey[k]; ok {
		m.drop(e)
	}
	m.byKey[k] = m.order.PushFront(&recentEntry[K, V]{k, v, size})
	for m.size += size; m.size > m.most; {
		m.drop(m.order.Back())
	}
}

func (m *recent[K, V]) drop(e *list.Element) {
	x := m.order.Remove(e).(*recentEntry[K, V])
	m.size -= x.size
	delete(m.byKey, x.key)
}
