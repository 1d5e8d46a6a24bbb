package latency

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/sluice-sim/sluice/nearest"
)

//go:embed cards/models.json
var modelsJSON []byte

//go:embed cards/gpus.json
var gpusJSON []byte

var models = func() []*Model {
	var file struct {
		Units  string            `json:"units"`
		Fields map[string]string `json:"fields"`
		Models map[string]*Model `json:"models"`
	}
	if err := json.Unmarshal(modelsJSON, &file, json.RejectUnknownMembers(true)); err != nil {
		panic("latency: embedded model cards: " + err.Error())
	}
	list := make([]*Model, 0, len(file.Models))
	for _, name := range keys(file.Models) {
		m := file.Models[name]
		m.Name = name
		if err := m.check("embedded card " + name); err != nil {
			panic("latency: " + err.Error())
		}
		list = append(list, m)
	}
	return list
}()

var gpus = func() []*GPU {
	var file struct {
		Units string          `json:"units"`
		GPUs  map[string]*GPU `json:"gpus"`
	}
	if err := json.Unmarshal(gpusJSON, &file, json.RejectUnknownMembers(true)); err != nil {
		panic("latency: embedded GPU cards: " + err.Error())
	}
	list := make([]*GPU, 0, len(file.GPUs))
	for _, name := range keys(file.GPUs) {
		g := file.GPUs[name]
		g.Name = name
		if err := g.check("embedded card " + name); err != nil {
			panic("latency: " + err.Error())
		}
		list = append(list, g)
	}
	return list
}()

// Models returns the embedded model cards by name. The cards are shared: do not
// change them.
func Models() []*Model { return slices.Clone(models) }

// GPUs returns the embedded GPU cards by name. The cards are shared: do not
// change them.
func GPUs() []*GPU { return slices.Clone(gpus) }

// FindModel returns an embedded model card by its name or an alias. Case,
// punctuation and an owner before a slash do not matter. The error suggests
// names that are close.
func FindModel(name string) (*Model, error) {
	names := make([][]string, len(models))
	for i, m := range models {
		names[i] = append([]string{m.Name}, m.Aliases...)
	}
	i, err := find("model", name, names)
	if err != nil {
		return nil, err
	}
	return models[i], nil
}

// FindGPU returns an embedded GPU card as FindModel does a model card.
func FindGPU(name string) (*GPU, error) {
	names := make([][]string, len(gpus))
	for i, g := range gpus {
		names[i] = append([]string{g.Name}, g.Aliases...)
	}
	i, err := find("gpu", name, names)
	if err != nil {
		return nil, err
	}
	return gpus[i], nil
}

// ModelJSON is the embedded model card that answers to a name as a file that
// LoadModelCard reads. The error is FindModel's.
func ModelJSON(name string) ([]byte, error) {
	m, err := FindModel(name)
	if err != nil {
		return nil, err
	}
	var file struct {
		Cards map[string]jsontext.Value `json:"models"`
	}
	err = json.Unmarshal(modelsJSON, &file)
	return cardFile(m.Name, file.Cards[m.Name], err)
}

// GPUJSON is an embedded GPU card as ModelJSON is a model card.
func GPUJSON(name string) ([]byte, error) {
	g, err := FindGPU(name)
	if err != nil {
		return nil, err
	}
	var file struct {
		Cards map[string]jsontext.Value `json:"gpus"`
	}
	err = json.Unmarshal(gpusJSON, &file)
	return cardFile(g.Name, file.Cards[g.Name], err)
}

// cardFile is one card with its name, which the embedded file has as a key.
func cardFile(name string, card jsontext.Value, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	text := jsontext.Value(fmt.Sprintf(`{"name": %q, `, name) + strings.TrimPrefix(strings.TrimSpace(string(card)), "{"))
	err = text.Indent(jsontext.WithIndent("  "))
	return append(text, '\n'), err
}

// find returns the index of the card that answers to name; the first of its
// names is the card's own.
func find(what, name string, names [][]string) (int, error) {
	wanted := plain(name)
	for i, list := range names {
		for _, alias := range list {
			if plain(alias) == wanted {
				return i, nil
			}
		}
	}
	return 0, unknownName(what, name, names)
}

// plain reduces a name to its lower-case letters and digits, without an owner.
func plain(name string) string {
	name = name[strings.LastIndexByte(name, '/')+1:]
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return -1
	}, name)
}

// unknownName builds the error for a name that no card answers to. Close is a
// card with a name that differs in few letters, contains the other, or begins
// with the same four.
func unknownName(what, name string, names [][]string) error {
	const most, family = 3, 4
	wanted := plain(name)
	type near struct {
		card     string
		distance int
	}
	var found []near
	var all []string
	for _, list := range names {
		all = append(all, list[0])
		best := -1
		for _, alias := range list {
			a := plain(alias)
			d := nearest.Distance(wanted, a)
			part := len(wanted) >= 3 && (strings.Contains(a, wanted) || strings.Contains(wanted, a))
			part = part || len(wanted) >= family && strings.HasPrefix(a, wanted[:family])
			if (part || d <= max(1, len(wanted)/4)) && (best < 0 || d < best) {
				best = d
			}
		}
		if best >= 0 {
			found = append(found, near{list[0], best})
		}
	}
	if len(found) == 0 {
		return fmt.Errorf("unknown %s %q: the embedded cards are %s", what, name, strings.Join(all, ", "))
	}
	slices.SortStableFunc(found, func(a, b near) int { return a.distance - b.distance })
	var cards []string
	for _, f := range found[:min(most, len(found))] {
		cards = append(cards, f.card)
	}
	return fmt.Errorf("unknown %s %q: did you mean %s?", what, name, strings.Join(cards, " or "))
}
