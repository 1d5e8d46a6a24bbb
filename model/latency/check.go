package latency

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxCardBytes bounds a card file; the embedded cards are under 4 kB each.
const maxCardBytes = 1 << 20

// LoadModelCard reads a model card from a JSON file: one object with the keys
// of Model, name included. Unknown keys, keys given twice and numbers out of
// range are errors that name the file and the key.
func LoadModelCard(path string) (*Model, error) {
	m := new(Model)
	if err := loadCard(path, m); err != nil {
		return nil, err
	}
	return m, m.check(path)
}

// LoadGPUCard reads a GPU card from a JSON file as LoadModelCard does.
func LoadGPUCard(path string) (*GPU, error) {
	g := new(GPU)
	if err := loadCard(path, g); err != nil {
		return nil, err
	}
	return g, g.check(path)
}

func loadCard(path string, card any) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() > maxCardBytes {
		return fmt.Errorf("%s: %d bytes, and a card has at most %d", path, info.Size(), maxCardBytes)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return fmt.Errorf("%s: is empty; %s", path, printCard)
	}
	if err := json.Unmarshal(data, card, json.RejectUnknownMembers(true)); err != nil {
		return cardError(path, data, err)
	}
	return nil
}

// printCard is what to do about a file that is no card.
const printCard = "`sluice models NAME` and `sluice gpus NAME` print a card to start from"

// cardError is what the JSON reader found, with its place.
func cardError(path string, data []byte, err error) error {
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	at := func(offset int64, key jsontext.Pointer) string {
		line := 1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte("\n"))
		if key == "" {
			return fmt.Sprintf("%s:%d", path, line)
		}
		return fmt.Sprintf("%s:%d: %s", path, line, strings.Join(slices.Collect(key.Tokens()), "."))
	}
	switch {
	case errors.As(err, &syntactic) && errors.Is(err, jsontext.ErrDuplicateName):
		return fmt.Errorf("%s: the key is given twice; keep one", at(syntactic.ByteOffset, syntactic.JSONPointer))
	case errors.As(err, &syntactic):
		return fmt.Errorf("%s: not JSON: %v; %s", at(syntactic.ByteOffset, syntactic.JSONPointer), syntactic.Err, printCard)
	case errors.As(err, &semantic) && errors.Is(err, json.ErrUnknownName):
		return fmt.Errorf("%s: unknown key; correct or delete it (%s)", at(semantic.ByteOffset, semantic.JSONPointer), printCard)
	case errors.As(err, &semantic):
		found := map[jsontext.Kind]string{'{': "an object", '[': "a list", '"': "text", '0': "a number", 't': "true", 'f': "false", 'n': "null"}[semantic.JSONKind]
		if len(semantic.JSONValue) > 0 {
			found = string(semantic.JSONValue)
		}
		return fmt.Errorf("%s: found %s, expected %s", at(semantic.ByteOffset, semantic.JSONPointer), found, wanted(semantic.GoType))
	}
	return fmt.Errorf("%s: %w", path, err)
}

// wanted is a type of a card's fields in words.
func wanted(t reflect.Type) string {
	if t == nil {
		return "another type"
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64, reflect.Pointer:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

// ranges collects the first number that is out of its range.
type ranges struct {
	where string
	err   error
}

func (r *ranges) number(key string, v, low, high float64) {
	r.that(v >= low && v <= high, key, "%s, expected %v to %v", foundNumber(v), low, high)
}

func (r *ranges) count(key string, v, low, high int) {
	r.that(v >= low && v <= high, key, "%s, expected %d to %d", foundNumber(float64(v)), low, high)
}

func (r *ranges) that(ok bool, key, format string, args ...any) {
	if r.err == nil && !ok {
		r.err = fmt.Errorf("%s: %s: %s", r.where, key, fmt.Sprintf(format, args...))
	}
}

// foundNumber says what a key holds. A decoded card does not tell 0 from a missing key.
func foundNumber(v float64) string {
	if v == 0 {
		return "found 0 or no such key"
	}
	return fmt.Sprintf("found %v", v)
}

// Ranges of the fitted numbers, wide enough for any hardware in sight.
const (
	shortest, longest = 0, 1.0    // seconds per call
	slowest, fastest  = 1e8, 1e18 // bytes or operations per second
)

func (m *Model) check(file string) error {
	r := &ranges{where: file}
	r.that(m.Name != "", "name", "the key is missing; give the card a name")
	r.that(m.Kind == "dense" || m.Kind == "moe", "kind", "found %q, expected dense or moe", m.Kind)
	r.count("layers", m.Layers, 1, 10_000)
	r.count("hidden", m.Hidden, 1, 1<<20)
	r.count("vocab", m.Vocab, 1, 1<<24)
	r.count("hq", m.QueryHeads, 1, 1<<16)
	r.count("hk", m.KVHeads, 1, m.QueryHeads)
	r.count("d", m.HeadDim, 1, 1<<16)
	r.count("window", m.Window, 0, 1<<24)
	r.count("shared_inter", m.SharedInter, 0, 1<<24)
	if m.Window > 0 {
		r.count("window_every", m.WindowEvery, 1, m.Layers)
	}
	if m.Kind == "moe" {
		r.count("experts", m.Experts, 1, 1<<16)
		r.count("topk", m.TopK, 1, m.Experts)
		r.count("moe_inter", m.ExpertInter, 1, 1<<24)
		r.count("dense_layers", m.DenseLayers, 0, m.Layers-1)
	}
	smallest := 0
	if m.Layers > m.MoELayers() {
		smallest = 1
	}
	r.count("inter", m.Inter, smallest, 1<<24)
	if m.MLA {
		r.count("q_lora", m.QLora, 1, 1<<20)
		r.count("kv_lora", m.KVLora, 1, 1<<20)
		r.count("rope", m.Rope, 1, 1<<16)
		r.count("nope", m.Nope, 1, 1<<16)
		r.count("vdim", m.VDim, 1, 1<<16)
		r.that(m.Window == 0, "window", "found %d, expected 0: a window is not supported together with mla", m.Window)
	}
	r.number("params_total", float64(m.ParamsTotal), 1, 1e15)
	r.number("params_embed_and_head", float64(m.ParamsEmbedAndHead), 0, float64(m.ParamsTotal))
	r.number("params_total", float64(m.ParamsTotal), float64(m.expertParams()+m.ParamsEmbedAndHead), 1e15)
	for _, dtype := range keys(m.KVBytesPerToken) {
		if want, err := m.KVBytes(dtype, 1); err != nil {
			r.that(false, "kv_bytes_per_token."+dtype, "%v", err)
		} else {
			r.that(m.KVBytesPerToken[dtype] == want, "kv_bytes_per_token."+dtype, "found %d, expected %d, which the shape gives; correct or delete it",
				m.KVBytesPerToken[dtype], want)
		}
	}
	return r.err
}

func (g *GPU) check(file string) error {
	r := &ranges{where: file}
	r.that(g.Name != "", "name", "the key is missing; give the card a name")
	r.number("visible_bytes", float64(g.VisibleBytes), 0, 1e15)
	r.number("spec.hbm_bytes", g.Spec.HBMBytes, 1e6, 1e15)
	r.number("spec.hbm_bw", g.Spec.HBMRate, slowest, fastest)
	r.number("attn_prefill.t0", g.AttnPrefill.T0, shortest, longest)
	r.number("attn_prefill.flops", g.AttnPrefill.Flops, slowest, fastest)
	r.number("attn_prefill.serial", g.AttnPrefill.Serial, shortest, longest)
	r.number("attn_prefill.io_bw", g.AttnPrefill.IORate, slowest, fastest)
	r.number("elem.per_layer", g.Elementwise.PerLayer, shortest, longest)
	r.number("elem.hidden_bytes", g.Elementwise.HiddenBytes, 0, 1e6)
	r.number("elem.inter_bytes", g.Elementwise.InterBytes, 0, 1e6)
	r.number("elem.head_bytes", g.Elementwise.HeadBytes, 0, 1e6)
	r.number("elem.head_bytes_qknorm", g.Elementwise.HeadBytesQKNorm, 0, 1e6)
	r.number("sampler.t0", g.Sampler.T0, shortest, longest)
	r.number("sampler.bytes_per_logit", g.Sampler.BytesPerLogit, 0, 1e6)
	switch mixed := &g.AttnMixed; mixed.Kind {
	case "sum":
	case "tile":
		r.count("attn_mixed.tile", mixed.Tile, 1, 1<<16)
		r.number("attn_mixed.tile_scale", mixed.TileScale, 0, 1e6)
		r.number("attn_mixed.kv_reread", mixed.KVReread, 0, 1e6)
		r.number("attn_mixed.serial", mixed.Serial, shortest, longest)
	default:
		r.that(false, "attn_mixed.kind", "found %q, expected sum or tile", mixed.Kind)
	}
	g.checkTables(r)
	return r.err
}

// checkTables checks the rows by data type. Which rows must be there depends on
// the model: New says what is missing.
func (g *GPU) checkTables(r *ranges) {
	row := func(table, key string, t0, perSeq, rate, flops, q float64) {
		at := table + "." + key + "."
		r.number(at+"t0", t0, shortest, longest)
		r.number(at+"per_seq", perSeq, shortest, longest)
		r.number(at+"bw", rate, slowest, fastest)
		r.number(at+"flops", flops, slowest, fastest)
		r.number(at+"q", q, 1, 100)
	}
	for _, k := range keys(g.GEMM) {
		v := g.GEMM[k]
		row("gemm", k, v.T0, 0, v.Rate, v.Flops, v.Q)
		r.number("gemm."+k+".act", v.Activation, 0, 1e6)
	}
	for _, k := range keys(g.AttnDecode) {
		v := g.AttnDecode[k]
		row("attn_decode", k, v.T0, v.PerSeq, v.Rate, slowest, 1)
	}
	for _, k := range keys(g.MoE) {
		v := g.MoE[k]
		row("moe", k, v.T0, 0, v.Rate, v.Flops, v.Q)
		r.number("moe."+k+".pad", v.Pad, 0, 1e6)
		r.number("moe."+k+".act_bw", v.ActivationRate, slowest, fastest)
	}
	for _, k := range keys(g.AllReduce) {
		v := g.AllReduce[k]
		row("allreduce", k, v.T0, 0, v.Rate, slowest, 1)
	}
	for _, k := range keys(g.MLADecode) {
		v := g.MLADecode[k]
		row("mla_decode", k, v.T0, v.PerSeq, v.Rate, v.Flops, v.Q)
		r.that(v.Q == 2, "mla_decode."+k+".q", "found %v, expected 2, the only value supported", v.Q)
	}
}
