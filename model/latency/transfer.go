package latency

import (
	_ "embed"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
)

// Link is what a transfer of KV goes over, with the coefficients of its law:
//
//	time = setup + blocks * per block + bytes / rate
//
// A block is one contiguous piece. Transfers in one direction at once share the rate (spec: latency 5).
type Link struct {
	Name     string  `json:"-"`
	Setup    float64 `json:"setup_s"`     // seconds per transfer
	PerBlock float64 `json:"per_block_s"` // seconds per piece
	Rate     float64 `json:"rate"`        // bytes per second in one direction
	// Duplex is how many times Rate both directions reach together when both are busy; 0 is unknown.
	Duplex float64 `json:"duplex_factor"`
	Source string  `json:"source"`
	Fitted bool    `json:"fitted"` // to measurements; otherwise assumed
	Block  string  `json:"meaning_of_block"`
}

//go:embed cards/links.json
var linksJSON []byte

var links = func() []*Link {
	var file struct {
		Units string           `json:"units"`
		Law   string           `json:"law"`
		Links map[string]*Link `json:"links"`
	}
	if err := json.Unmarshal(linksJSON, &file, json.RejectUnknownMembers(true)); err != nil {
		panic("latency: embedded links: " + err.Error())
	}
	list := make([]*Link, 0, len(file.Links))
	for _, name := range keys(file.Links) {
		l := file.Links[name]
		l.Name = name
		if l.Rate <= 0 || l.Setup < 0 || l.PerBlock < 0 || l.Duplex < 0 || l.Duplex > 2 {
			panic("latency: embedded links: " + name + " has a coefficient out of range")
		}
		list = append(list, l)
	}
	return list
}()

// Links returns the embedded links by name. They are shared: do not change them.
func Links() []*Link { return slices.Clone(links) }

// FindLink returns an embedded link by its name, as FindGPU does a card.
func FindLink(name string) (*Link, error) {
	names := make([][]string, len(links))
	for i, l := range links {
		names[i] = []string{l.Name}
	}
	i, err := find("link", name, names)
	if err != nil {
		return nil, err
	}
	return links[i], nil
}

// Seconds is the time of a transfer that has the link, or its direction, to itself.
func (l *Link) Seconds(blocks, bytes int64) float64 {
	return float64(l.Setup+float64(float64(blocks)*l.PerBlock)) + float64(float64(bytes)/l.Rate)
}

// Picoseconds is Seconds in the simulator's unit, at least 1.
func (l *Link) Picoseconds(blocks, bytes int64) int64 {
	ps, _ := picoseconds(l.Seconds(blocks, bytes))
	return max(ps, 1)
}

// BothWays is a link as one direction sees it while the other one is busy as well. A link of which that was not
// measured is returned as it is.
func (l *Link) BothWays() *Link {
	if l.Duplex == 0 || l.Duplex == 2 {
		return l
	}
	shared := *l
	shared.Rate = float64(l.Rate * l.Duplex / 2)
	return &shared
}

// HostLink is the link between a GPU and the memory of its host, driven by the copy engine: by the generation of PCIe
// on the card's spec sheet.
func (g *GPU) HostLink() *Link {
	name := "pcie4_dma"
	if g.Spec.PCIeGBPerS >= 64 {
		name = "pcie5_dma"
	}
	for _, l := range links {
		if l.Name == name {
			return l
		}
	}
	panic(fmt.Sprintf("latency: no embedded link %s", name))
}

// HostTransfer is the time in picoseconds to load or store n blocks of KV between a GPU and its host's memory, each block
// one piece of the given bytes on this GPU, all layers together, as in vLLM since 0.12. Under tensor parallelism every
// GPU moves its share over its own link at the same time.
func (g *GPU) HostTransfer(n, blockBytes int64) int64 {
	return g.HostLink().Picoseconds(n, n*blockBytes)
}

// Overlap is how the load of KV and the computation of a step go together.
type Overlap uint8

const (
	// Asynchronous loads delay only the request that loads: it stays out of the batch until they are done. vLLM's
	// offloading connector.
	Asynchronous Overlap = iota
	// Blocking loads stall the step.
	Blocking
	// LayerWise loads run one layer ahead of the computation.
	LayerWise
)

// String is the name in scenarios.
func (o Overlap) String() string {
	switch o {
	case Blocking:
		return "blocking"
	case LayerWise:
		return "layer-wise"
	}
	return "asynchronous"
}

// Visible is by how much a load lengthens the step with the request that loads, which computes for compute in the
// model's layers; times in one unit, each at most 2^55. Asynchronous loads are over before their step.
func (o Overlap) Visible(load, compute int64, layers int) int64 {
	n := int64(layers)
	switch {
	case o == Asynchronous || load <= 0:
		return 0
	case o == Blocking || n < 2:
		return load
	}
	// The first layer waits for its part; the rest hides behind the other layers' computation. Dividing first keeps
	// the product in range.
	hidden := compute/n*(n-1) + compute%n*(n-1)/n
	return max(load-hidden, (load+n-1)/n)
}
