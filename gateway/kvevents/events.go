// Package kvevents reads and publishes the KV cache events of vLLM: which blocks an engine has stored and removed. Batches
// are msgpack over ZMQ, numbered in order; a subscriber that lost some asks the engine's replay socket for them (spec:
// gateway 4.3, inputs 3.1).
//
// Events hold prompt tokens in clear. Nothing here stores or logs them.
package kvevents

import "encoding/binary"

// Kind is what an event reports.
type Kind uint8

const (
	BlockStored      Kind = iota + 1 // Hashes, Parent, Tokens, BlockTokens and the rest
	BlockRemoved                     // Hashes, Medium, Group
	AllBlocksCleared                 // nothing more
)

// Hash is an engine's hash of a block and of all before it. Hashes that are longer than 64 bits are cut to their last 64,
// as vLLM does when it counts in integers.
type Hash uint64

// hashOf cuts the bytes of a hash.
func hashOf(b []byte) Hash {
	if len(b) >= 8 {
		return Hash(binary.BigEndian.Uint64(b[len(b)-8:]))
	}
	h := Hash(0)
	for _, c := range b {
		h = h<<8 | Hash(c)
	}
	return h
}

// Event is one event.
type Event struct {
	Kind        Kind
	Hashes      []Hash
	HasParent   bool
	Parent      Hash // the block before the first
	Tokens      []int32
	BlockTokens int32
	Medium      string // "" and "GPU" are the GPU
	LoRA        string // name of the adapter
	Extra       bool   // more than tokens went into the hashes: images, a cache salt
	Group       int32  // of layers; -1 if the event has none
	Attention   string // kind of the group's layers; "" if the event does not say
}

// GPU says whether the event is about the GPU's blocks.
func (e *Event) GPU() bool { return e.Medium == "" || e.Medium == "GPU" || e.Medium == "gpu" }

// Full says whether the event is about layers of full attention, whose blocks make up a prefix.
func (e *Event) Full() bool {
	switch e.Attention {
	case "", "full_attention", "FullAttentionSpec", "mla_attention", "MLAAttentionSpec":
		return true
	}
	return false
}

// Batch is the events of one engine step.
type Batch struct {
	Seconds float64 // the engine's clock, since 1970
	Rank    int32   // data-parallel rank; -1 if the batch has none
	Events  []Event
}
