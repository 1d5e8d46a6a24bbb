package latency

import "math"

// attention is the cost of one attention layer.
type attention struct {
	decodeT0   float64
	perSeq     float64
	perContext float64 // seconds per token of decode context

	prefillT0 float64
	perPair   float64 // seconds per query-key pair
	serial    float64 // seconds per token of the longest context of a chunk
	perIO     float64 // seconds per chunk token

	// Kind tile: one kernel for prefill and decode rows.
	tiled       bool
	tile        int64
	tileScale   float64
	tileSerial  float64
	tileContext float64 // seconds per token of decode context, keys and values read again
}

func newAttention(s *Setup, m *Model, g *GPU) (attention, error) {
	p := float64(s.TensorParallel)
	queryHeads := float64(m.QueryHeads) / p
	element, err := kvElementBytes(s.KVDType)
	if err != nil {
		return attention{}, err
	}
	a := attention{prefillT0: g.AttnPrefill.T0, serial: g.AttnPrefill.Serial}
	var contextRead float64
	if m.MLA {
		row, ok := g.MLADecode[s.KVDType]
		if !ok {
			return a, missingRow(g, "mla_decode", s.KVDType, keys(g.MLADecode))
		}
		latent := float64(m.KVLora + m.Rope)
		contextRead = latent * float64(element) / row.Rate
		arithmetic := 2 * queryHeads * float64(2*m.KVLora+m.Rope) / row.Flops
		a.decodeT0, a.perSeq = row.T0, row.PerSeq
		a.perContext = math.Sqrt(float64(contextRead*contextRead) + float64(arithmetic*arithmetic))
		a.perPair = 2 * queryHeads * float64(m.Nope+m.Rope+m.VDim) / g.AttnPrefill.Flops
		a.perIO = 8 * float64(m.Nope+m.Rope) * queryHeads / g.AttnPrefill.IORate
	} else {
		row, ok := g.AttnDecode[s.KVDType]
		if !ok {
			return a, missingRow(g, "attn_decode", s.KVDType, keys(g.AttnDecode))
		}
		d := float64(m.HeadDim)
		contextRead = 2 * max(1, float64(m.KVHeads)/p) * d * float64(element) / row.Rate
		a.decodeT0, a.perSeq = row.T0, row.PerSeq
		a.perContext = contextRead
		a.perPair = 4 * queryHeads * d / g.AttnPrefill.Flops
		a.perIO = 4 * d * float64(m.QueryHeads+m.KVHeads) / p / g.AttnPrefill.IORate
	}
	if mixed := &g.AttnMixed; mixed.Kind == "tile" {
		a.tiled = true
		a.tile = int64(mixed.Tile)
		a.tileScale = mixed.TileScale
		a.tileSerial = mixed.Serial
		a.tileContext = mixed.KVReread * contextRead
	}
	return a, nil
}

// decode returns the seconds of n rows with the given total context.
func (a *attention) decode(n, context float64) float64 {
	return a.decodeT0 + float64(a.perSeq*n) + float64(a.perContext*context)
}

// layer returns the seconds of one layer of a batch. window is 0 for a layer
// that attends to everything; context is the sum over the decode rows, cut to
// the window.
func (a *attention) layer(b *Batch, context, window int64) float64 {
	if len(b.Prefill) == 0 {
		return a.decode(float64(b.DecodeRows), float64(context))
	}
	if a.tiled && b.DecodeRows > 0 {
		return a.oneKernel(b.Prefill, context, window)
	}
	var twicePairs, longest, tokens int64
	for i := range b.Prefill {
		c, past := int64(b.Prefill[i].Tokens), int64(b.Prefill[i].Past)
		tokens += c
		if window > 0 {
			twicePairs += 2 * c * window
			longest = max(longest, min(past+c, window))
			continue
		}
		twicePairs += c * (2*past + c + 1)
		longest = max(longest, past+c)
	}
	s := a.prefillT0 + float64(a.perIO*float64(tokens)) +
		fourNorm(float64(float64(a.perPair*float64(twicePairs))*0.5), float64(a.serial*float64(longest)), 0)
	if b.DecodeRows > 0 {
		s += a.decode(float64(b.DecodeRows), float64(context))
	}
	return s
}

// oneKernel returns the seconds of prefill chunks and decode rows that share a
// kernel: both are padded to tiles of rows.
func (a *attention) oneKernel(prefill []Chunk, context, window int64) float64 {
	var twicePairs, longest, tokens int64
	for i := range prefill {
		c, past := int64(prefill[i].Tokens), int64(prefill[i].Past)
		rows := (c + a.tile - 1) / a.tile * a.tile
		tokens += c
		if window > 0 {
			twicePairs += 2 * rows * window
			longest = max(longest, min(past+rows, window))
			continue
		}
		twicePairs += rows * (2*past + c)
		longest = max(longest, past+rows)
	}
	pairs := float64(float64(twicePairs)*0.5) + float64(a.tileScale*float64(a.tile*context))
	return a.prefillT0 + float64(a.perIO*float64(tokens)) +
		fourNorm(float64(a.perPair*pairs), float64(a.tileSerial*float64(longest)), float64(a.tileContext*float64(context)))
}

// fourNorm is (a^4 + b^4 + c^4)^(1/4).
func fourNorm(a, b, c float64) float64 {
	m := max(a, b, c)
	if m == 0 {
		return 0
	}
	a, b, c = a/m, b/m, c/m
	a, b, c = float64(a*a), float64(b*b), float64(c*c)
	return float64(m * math.Sqrt(math.Sqrt(float64(a*a)+float64(b*b)+float64(c*c))))
}
