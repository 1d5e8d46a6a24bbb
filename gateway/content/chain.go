// Package content gives prompts their identity in a live gateway: which tokens two prompts share, without keeping a token
// or a byte of them (design: content identity; spec: inputs 3.2).
//
// A prompt is cut into blocks, and each block has a keyed hash over itself and all before it, so that equal hashes mean
// equal prefixes. A Table turns such chains into streams of a prefix.Tree and engines' block hashes into blocks of these,
// counts who refers to a stream, and gives it back when nobody does. Hashing is done outside of any lock; a Table belongs
// to the driver, which calls it under its mutex.
package content

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/sluice-sim/sluice/prefix"
)

// Basis is what is hashed.
type Basis uint8

const (
	Tokens Basis = iota // token ids, as the engine renders a prompt
	Bytes               // the request's own bytes, four to a token; KV events cannot be joined with them
)

// String is the basis' name in logs and trace headers.
func (b Basis) String() string {
	if b == Bytes {
		return "byte"
	}
	return "token"
}

// bytesPerToken is how many bytes of a request stand for a token where nobody says what the tokens are.
const bytesPerToken = 4

// MaxPromptTokens bounds a prompt.
const MaxPromptTokens = 16 << 20

// Hasher makes chains. It may be used by many goroutines.
//
// Engines say which adapter (LoRA) a block belongs to, and requests name a model that may be one. What no engine has called an
// adapter is a base model, and base models share chains of tokens: what a replica holds of them is its own in any case.
type Hasher struct {
	key   [32]byte
	block int32

	mu       sync.RWMutex
	adapters map[string]struct{}
}

// maxAdapters bounds the adapters that are told apart.
const maxAdapters = 4096

// adapter notes that name is one.
func (h *Hasher) adapter(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.adapters) < maxAdapters {
		h.adapters[name] = struct{}{}
	}
}

// tokenRoot begins the chain of a prompt of tokens.
func (h *Hasher) tokenRoot(model string) uint64 {
	h.mu.RLock()
	_, ok := h.adapters[model]
	h.mu.RUnlock()
	if !ok {
		model = ""
	}
	return h.root(Tokens, model)
}

// NewHasher returns a hasher of blocks of blockTokens tokens. secret is the installation's own and never leaves it: with
// another secret, all hashes are others. It has at least 16 bytes.
func NewHasher(secret []byte, blockTokens int32) (*Hasher, error) {
	if len(secret) < 16 {
		return nil, fmt.Errorf("content: a secret of %d bytes, expected at least 16", len(secret))
	}
	if blockTokens < 1 || blockTokens > 1<<16 {
		return nil, fmt.Errorf("content: blocks of %d tokens, expected 1 to %d", blockTokens, 1<<16)
	}
	h := &Hasher{block: blockTokens, adapters: make(map[string]struct{})}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("sluice content"))
	mac.Sum(h.key[:0])
	return h, nil
}

// BlockTokens is the tokens of a block.
func (h *Hasher) BlockTokens() int32 { return h.block }

// Chain is a prompt as its hashes.
type Chain struct {
	Blocks []uint64 // of its full blocks, each over all before
	Tokens int32    // length of the prompt; with Bytes, an estimate
}

// root begins a chain. Chains with different roots share nothing.
func (h *Hasher) root(b Basis, model string) uint64 {
	mac := hmac.New(sha256.New, h.key[:])
	var head [9]byte
	head[0] = byte(b)
	binary.LittleEndian.PutUint64(head[1:], uint64(h.block))
	mac.Write(head[:])
	mac.Write([]byte(model))
	return binary.LittleEndian.Uint64(mac.Sum(nil))
}

// next is the hash of a block after the block with hash prev. What is hashed has a length that depends on the block size
// only, so that a key in front suffices.
func (h *Hasher) next(prev uint64, block []byte, buf []byte) (uint64, []byte) {
	buf = append(buf[:0], h.key[:]...)
	buf = binary.LittleEndian.AppendUint64(buf, prev)
	buf = append(buf, block...)
	sum := sha256.Sum256(buf)
	return binary.LittleEndian.Uint64(sum[:]), buf
}

// Tokens makes the chain of a prompt given as token ids for model. dst's memory is used again.
func (h *Hasher) Tokens(dst Chain, model string, ids []int32) (Chain, error) {
	dst.Blocks, dst.Tokens = dst.Blocks[:0], 0
	if len(ids) == 0 || len(ids) > MaxPromptTokens {
		return dst, fmt.Errorf("content: a prompt of %d tokens, expected 1 to %d", len(ids), MaxPromptTokens)
	}
	dst.Tokens = int32(len(ids))
	dst.Blocks = h.extend(dst.Blocks, h.tokenRoot(model), ids)
	return dst, nil
}

// extend appends the hashes of the full blocks of ids after the block with hash prev.
func (h *Hasher) extend(dst []uint64, prev uint64, ids []int32) []uint64 {
	var block, buf []byte
	for len(ids) >= int(h.block) {
		block = block[:0]
		for _, id := range ids[:h.block] {
			block = binary.LittleEndian.AppendUint32(block, uint32(id))
		}
		prev, buf = h.next(prev, block, buf)
		dst = append(dst, prev)
		ids = ids[h.block:]
	}
	return dst
}

// Bytes makes the chain of a prompt given as spans of bytes, one after another; it is that of another prompt's beginning
// if its spans are.
func (h *Hasher) Bytes(dst Chain, model string, spans [][]byte) (Chain, error) {
	dst.Blocks, dst.Tokens = dst.Blocks[:0], 0
	size := int64(0)
	for _, s := range spans {
		size += int64(len(s)) + 1
	}
	tokens := (size + bytesPerToken - 1) / bytesPerToken
	if tokens == 0 || tokens > MaxPromptTokens {
		return dst, fmt.Errorf("content: a prompt of about %d tokens, expected 1 to %d", tokens, MaxPromptTokens)
	}
	dst.Tokens = int32(tokens)
	prev := h.root(Bytes, model)
	full := int(h.block) * bytesPerToken
	var block, buf []byte
	for _, s := range spans {
		for end := false; !end; {
			n := min(full-len(block), len(s))
			block, s = append(block, s[:n]...), s[n:]
			if len(s) == 0 && len(block) < full {
				block, end = append(block, 0), true // a span ends
			}
			if len(block) == full {
				prev, buf = h.next(prev, block, buf)
				dst.Blocks, block = append(dst.Blocks, prev), block[:0]
			}
		}
	}
	return dst, nil
}

// Path is where a prompt lies in a tree, from the root down: the streams and up to which token each is part of it. Streams
// are named with their generation, so that a path means the same for ever.
type Path []Step

// Step is one stream of a Path.
type Step struct {
	Stream     prefix.StreamID
	Generation uint32
	Upto       int32 // tokens of the prompt that lie in this stream or above
}
