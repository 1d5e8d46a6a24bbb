package fakevllm

import (
	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/prefix"
)

// work is what a client wants computed.
type work struct {
	prompt    []uint32
	maxTokens int32 // at least 1
	minTokens int32
	ignoreEOS bool
	seed      uint64
	salt      string
	priority  int32
}

// request is work that the engine has or will get. The engine's goroutine writes it under the core's mutex.
type request struct {
	work
	id      int64
	text    uint64 // seed of the answer's words
	stop    int32  // the model ends by itself after so many tokens; 0 if it does not
	hashes  []uint64
	tokens  []uint32 // prompt, and the answer as far as its blocks need names
	arrival int64    // on the engine's clock

	path     []prefix.Segment
	slot     engine.Slot
	inEngine bool

	produced  int32 // output tokens so far
	cached    int32 // prompt tokens that were cached when it was first admitted; -1 before
	ended     bool
	reason    string // why: stop, length, abort
	admitted  int64
	first     int64
	last      int64
	preempted int32

	news chan struct{} // has one when something has changed
}

// newRequest prepares everything that needs no lock.
func newRequest(c *Config, w work) *request {
	r := &request{work: w, cached: -1, news: make(chan struct{}, 1)}
	x := mix(w.seed + uint64(len(w.prompt)))
	for _, t := range w.prompt {
		x = mix(x ^ uint64(t))
	}
	r.text = x
	if !w.ignoreEOS {
		n := c.OutputTokens
		r.stop = max(1, n/2+int32(mix(x+1)%uint64(n)), w.minTokens)
	}
	// The blocks of the answer have names from the start, since what it will say is known.
	length := (len(w.prompt) + int(r.maxOutput())) / int(c.Engine.BlockTokens) * int(c.Engine.BlockTokens)
	r.tokens = append(make([]uint32, 0, length), w.prompt[:min(length, len(w.prompt))]...)
	for i := int32(0); len(r.tokens) < length; i++ {
		r.tokens = append(r.tokens, r.output(i))
	}
	r.hashes = blockHashes(r.tokens, c.Engine.BlockTokens, w.salt)
	return r
}

// maxOutput is the most tokens that the answer can have.
func (r *request) maxOutput() int32 {
	if r.stop > 0 {
		return min(r.stop, r.maxTokens)
	}
	return r.maxTokens
}

// output is token i of the answer.
func (r *request) output(i int32) uint32 {
	if r.stop > 0 && i == r.stop-1 {
		return tokenEnd
	}
	return word(r.text, i)
}

// visible is the text of tokens lo to hi of the answer. What the model ends with is not shown.
func (r *request) visible(lo, hi int32) string {
	var text []byte
	for i := lo; i < hi; i++ {
		if id := r.output(i); id != tokenEnd {
			text = decode(id, text)
		}
	}
	return string(text)
}

// notify tells the request's handler that there is something new.
func (r *request) notify() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}
