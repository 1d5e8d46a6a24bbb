package fakevllm

import (
	"encoding/json"
	"errors"
	"net/http"
)

var errPrompt = errors.New("prompt must be a string, a list of token ids, or a list with one of these")

type tokenizeBody struct {
	Model      string          `json:"model"`
	Prompt     *string         `json:"prompt"`
	Messages   []bodyMessage   `json:"messages"`
	Tools      json.RawMessage `json:"tools"`
	AddSpecial *bool           `json:"add_special_tokens"`
	Generation *bool           `json:"add_generation_prompt"`
	Strings    bool            `json:"return_token_strs"`
}

// tokenize is POST /tokenize: the tokens of a prompt, or of a conversation in the chat template.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	if s.Faults().TokenizeHang {
		s.hang(r)
	}
	var b tokenizeBody
	p := s.read(w, r, &b)
	if p == nil {
		p = s.knows(b.Model)
	}
	var ids []uint32
	switch {
	case p != nil:
	case b.Prompt != nil:
		if b.AddSpecial == nil || *b.AddSpecial {
			ids = append(ids, tokenBegin)
		}
		ids = encode(*b.Prompt, ids)
	default:
		var list []chatMessage
		chat := chatBody{Messages: b.Messages, Tools: b.Tools}
		if list, p = chat.conversation(); p == nil {
			ids = chatTokens(list, b.Generation == nil || *b.Generation)
		}
	}
	if p != nil {
		p.write(w)
		return
	}
	if ids == nil {
		ids = []uint32{}
	}
	var strs []string
	if b.Strings {
		for _, id := range ids {
			strs = append(strs, string(decode(id, nil)))
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"count": len(ids), "max_model_len": s.cfg.Engine.MaxModelLen, "tokens": ids, "token_strs": strs})
}

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	var b struct {
		Model  string   `json:"model"`
		Tokens []uint32 `json:"tokens"`
	}
	p := s.read(w, r, &b)
	if p == nil {
		p = s.knows(b.Model)
	}
	if p != nil {
		p.write(w)
		return
	}
	var words []byte
	for _, id := range b.Tokens {
		words = decode(id, words)
	}
	writeJSON(w, http.StatusOK, map[string]string{"prompt": string(words)})
}

// rendered is a request as the engine gets it.
func (s *Server) rendered(r *http.Request, kind string, x work) map[string]any {
	return map[string]any{
		"request_id": kind + s.requestID(r, s.requests.Add(1)), "token_ids": x.prompt, "features": nil, "model": s.cfg.Name,
		"sampling_params": map[string]any{"max_tokens": x.maxTokens, "min_tokens": x.minTokens, "ignore_eos": x.ignoreEOS, "seed": x.seed, "n": 1},
		"cache_salt":      x.salt, "priority": x.priority,
	}
}

func (s *Server) renderChat(w http.ResponseWriter, r *http.Request) {
	if s.Faults().TokenizeHang {
		s.hang(r)
	}
	var b chatBody
	p := s.read(w, r, &b)
	if p == nil {
		var x work
		if x, p = b.plan(s); p == nil {
			writeJSON(w, http.StatusOK, s.rendered(r, "chatcmpl-", x))
			return
		}
	}
	p.write(w)
}

// renderCompletion answers with a list, since a request of completions can have several prompts.
func (s *Server) renderCompletion(w http.ResponseWriter, r *http.Request) {
	if s.Faults().TokenizeHang {
		s.hang(r)
	}
	var b completionBody
	p := s.read(w, r, &b)
	if p == nil {
		var x work
		if x, p = b.plan(s); p == nil {
			writeJSON(w, http.StatusOK, []any{s.rendered(r, "cmpl-", x)})
			return
		}
	}
	p.write(w)
}

// resident is POST /sluice/resident, which vLLM does not have: how many leading tokens of a prompt are in the prefix cache,
// and the share of KV blocks in use, answered between two steps as an engine utility call would be (spec: vllm 15).
func (s *Server) resident(w http.ResponseWriter, r *http.Request) {
	switch f := s.Faults(); {
	case f.ResidentHang:
		s.hang(r)
	case f.ResidentStatus != 0:
		w.WriteHeader(f.ResidentStatus)
		return
	}
	var b struct {
		Tokens []uint32 `json:"tokens"`
		Salt   string   `json:"cache_salt"`
	}
	p := s.read(w, r, &b)
	if p == nil && int64(len(b.Tokens)) > int64(s.cfg.Engine.MaxModelLen) {
		p = badRequest("tokens", "%d tokens are more than the model's maximum context length of %d", len(b.Tokens), s.cfg.Engine.MaxModelLen)
	}
	if p != nil {
		p.write(w)
		return
	}
	hashes := blockHashes(b.Tokens, s.cfg.Engine.BlockTokens, b.Salt)
	var hit int32
	var used float64
	c := s.engine()
	ok := c.between(func() {
		hit = c.loop.Hit(c.names.path(hashes), int32(len(b.Tokens)))
		used = c.loop.Usage()
	})
	if !ok {
		unavailable("the engine has stopped").write(w)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"resident_tokens": hit, "kv_cache_usage": used, "block_size": s.cfg.Engine.BlockTokens})
}
