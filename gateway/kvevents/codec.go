package kvevents

import (
	"fmt"
	"math"
)

// Decode reads one payload into b, whose slices it uses again. Arrays by position and maps by name are both read, at each
// level; members that are not known are skipped. Memory is bounded by a small multiple of the payload. The error says
// where the payload is no batch of events; b is then empty.
func (b *Batch) Decode(payload []byte) error {
	d := decoder{reader: reader{b: payload}, batch: b}
	b.Seconds, b.Rank, b.Events = 0, -1, b.Events[:0]
	d.readBatch()
	if d.err == nil && d.at != len(payload) {
		d.fail("bytes after the batch")
	}
	if d.err != nil {
		b.Events = b.Events[:0]
		return fmt.Errorf("KV events: %w", d.err)
	}
	return nil
}

type decoder struct {
	reader
	batch *Batch
}

func (d *decoder) readBatch() {
	if !d.isMap() {
		n := d.array()
		for i := range n {
			d.batchMember([...]string{"ts", "events", "data_parallel_rank", ""}[min(i, 3)])
		}
		if d.err == nil && n < 2 {
			d.fail("an array of less than two, expected a time and events")
		}
		return
	}
	events := false
	for range d.object() {
		name := string(d.bytes())
		events = events || name == "events"
		d.batchMember(name)
	}
	if !events {
		d.fail("a map without events")
	}
}

func (d *decoder) batchMember(name string) {
	switch name {
	case "ts":
		if d.batch.Seconds = d.float(); math.IsNaN(d.batch.Seconds) || math.IsInf(d.batch.Seconds, 0) {
			d.fail("a time that is not finite")
		}
	case "events":
		for range d.array() {
			if d.err != nil {
				return
			}
			d.event()
		}
	case "data_parallel_rank":
		if !d.isNil() {
			d.batch.Rank = d.int32()
		}
	default:
		d.skip()
	}
}

// positions are the members of an event in the order of the array form.
var positions = map[Kind][]string{
	BlockStored: {"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
		"extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window"},
	BlockRemoved: {"block_hashes", "medium", "group_idx"},
}

func kindOf(name string) Kind {
	switch name {
	case "BlockStored":
		return BlockStored
	case "BlockRemoved":
		return BlockRemoved
	case "AllBlocksCleared":
		return AllBlocksCleared
	}
	return 0
}

// event reads one event; one of a kind that is not known is left out.
func (d *decoder) event() {
	e := d.next()
	if !d.isMap() {
		n := d.array()
		if n == 0 {
			d.fail("an empty array, expected an event")
			return
		}
		e.Kind = kindOf(string(d.bytes()))
		names := positions[e.Kind]
		for i := range n - 1 {
			name := ""
			if i < len(names) {
				name = names[i]
			}
			d.eventMember(e, name)
		}
	} else {
		d.namedEvent(e)
	}
	if d.err != nil || e.Kind == 0 {
		d.batch.Events = d.batch.Events[:len(d.batch.Events)-1]
		return
	}
	d.checkEvent(e)
}

// next makes room for an event, with the slices of one that was there before.
func (d *decoder) next() *Event {
	n := len(d.batch.Events)
	if n < cap(d.batch.Events) {
		d.batch.Events = d.batch.Events[:n+1]
	} else {
		d.batch.Events = append(d.batch.Events, Event{})
	}
	e := &d.batch.Events[n]
	*e = Event{Hashes: e.Hashes[:0], Tokens: e.Tokens[:0], Group: -1}
	return e
}

// namedEvent reads the map form. The type may stand anywhere, and members are read as they come.
func (d *decoder) namedEvent(e *Event) {
	for range d.object() {
		if d.err != nil {
			return
		}
		if name := string(d.bytes()); name == "type" {
			e.Kind = kindOf(string(d.bytes()))
		} else {
			d.eventMember(e, name)
		}
	}
}

func (d *decoder) eventMember(e *Event, name string) {
	if name == "" {
		d.skip()
		return
	}
	if d.isNil() {
		return
	}
	switch name {
	case "block_hashes":
		for range d.array() {
			e.Hashes = append(e.Hashes, d.hash())
		}
	case "parent_block_hash":
		e.Parent, e.HasParent = d.hash(), true
	case "token_ids":
		for range d.array() {
			e.Tokens = append(e.Tokens, d.int32())
		}
	case "block_size":
		e.BlockTokens = d.int32()
	case "medium":
		e.Medium = string(d.bytes())
	case "lora_name":
		e.LoRA = string(d.bytes())
	case "extra_keys":
		for range d.array() {
			e.Extra = e.Extra || !d.isNil() && d.notEmpty()
		}
	case "group_idx":
		e.Group = d.int32()
	case "kv_cache_spec_kind":
		e.Attention = string(d.bytes())
	default:
		d.skip()
	}
}

// notEmpty skips a value and says whether it is anything but an empty array.
func (d *decoder) notEmpty() bool {
	empty := d.peek() == 0x90
	d.skip()
	return !empty
}

func (d *decoder) hash() Hash {
	if d.err != nil {
		return 0
	}
	if d.isBytes() {
		return hashOf(d.bytes())
	}
	v, _ := d.integer()
	return Hash(v)
}

func (d *decoder) checkEvent(e *Event) {
	if e.Kind != BlockStored {
		return
	}
	if want := int64(len(e.Hashes)) * int64(e.BlockTokens); e.BlockTokens <= 0 || int64(len(e.Tokens)) != want {
		d.fail(fmt.Sprintf("%d blocks of %d tokens with %d tokens in all", len(e.Hashes), e.BlockTokens, len(e.Tokens)))
	}
}

// Append appends the payload of b: arrays by position, as vLLM has sent them from the first, or maps by name.
func (b *Batch) Append(to []byte, maps bool) []byte {
	if maps {
		to = appendFloat(appendText(appendMap(to, 3), "ts"), b.Seconds)
		to = appendText(to, "events")
	} else {
		to = appendFloat(appendArray(to, 3), b.Seconds)
	}
	to = appendArray(to, len(b.Events))
	for i := range b.Events {
		to = b.Events[i].append(to, maps)
	}
	if maps {
		to = appendText(to, "data_parallel_rank")
	}
	if b.Rank < 0 {
		return append(to, 0xc0)
	}
	return appendUint(to, uint64(b.Rank))
}

func (e *Event) append(to []byte, maps bool) []byte {
	name := map[Kind]string{BlockStored: "BlockStored", BlockRemoved: "BlockRemoved", AllBlocksCleared: "AllBlocksCleared"}[e.Kind]
	names := positions[e.Kind]
	if e.Kind == BlockStored && e.Attention == "" {
		names = names[:7] // what is left out is at its default
	}
	if maps {
		to = appendText(appendText(appendMap(to, 1+len(names)), "type"), name)
	} else {
		to = appendText(appendArray(to, 1+len(names)), name)
	}
	for _, n := range names {
		if maps {
			to = appendText(to, n)
		}
		to = e.appendMember(to, n)
	}
	return to
}

func (e *Event) appendMember(to []byte, name string) []byte {
	switch name {
	case "block_hashes":
		to = appendArray(to, len(e.Hashes))
		for _, h := range e.Hashes {
			to = appendUint(to, uint64(h))
		}
		return to
	case "parent_block_hash":
		if e.HasParent {
			return appendUint(to, uint64(e.Parent))
		}
	case "token_ids":
		to = appendArray(to, len(e.Tokens))
		for _, t := range e.Tokens {
			to = appendUint(to, uint64(t))
		}
		return to
	case "block_size":
		return appendUint(to, uint64(e.BlockTokens))
	case "medium":
		if e.Medium != "" {
			return appendText(to, e.Medium)
		}
	case "lora_name":
		if e.LoRA != "" {
			return appendText(to, e.LoRA)
		}
	case "group_idx":
		if e.Group >= 0 {
			return appendUint(to, uint64(e.Group))
		}
	case "kv_cache_spec_kind":
		if e.Attention != "" {
			return appendText(to, e.Attention)
		}
	}
	return append(to, 0xc0)
}
