package kv

import (
	"unsafe"

	"github.com/sluice-sim/sluice/prefetch"
	"github.com/sluice-sim/sluice/prefix"
)

// Prefetch asks for the memory that the pool's next operation touches (see package prefetch): in stage 0 the pool itself, in
// stage 1 where things are found.
func (p *Extent) Prefetch(stage int) {
	if stage == 0 {
		prefetch.Front(p, unsafe.Offsetof(p.guards))
		return
	}
	prefetch.Slice(p.lanes)
	prefetch.Slice(p.contents)
	prefetch.Slice(p.index.slots)
	p.prefetchPiece(p.oldestIdle)
	p.prefetchPiece(p.newestIdle)
	p.prefetchPiece(p.sparePiece)
}

func (p *Extent) prefetchPiece(i int32) {
	if i != nowhere {
		prefetch.Value(&p.pieces[i])
	}
}

// PrefetchTable asks for what the release of table h touches, in stages 0 to 2, the last one after both of Prefetch.
func (p *Extent) PrefetchTable(h Handle, stage int) {
	t := &p.tables[h]
	switch stage {
	case 0:
		prefetch.Value(t)
	case 1:
		prefetch.Slice(t.spans)
	case 2:
		for i := range t.spans {
			p.prefetchPiece(p.lanes[t.spans[i].lane].tail)
		}
	}
}

// PrefetchPath asks for what the lookup of a path touches, after both stages of Prefetch.
func (p *Extent) PrefetchPath(path []prefix.Segment) {
	for i := range path {
		if c := p.index.get(path[i].Stream); c != nowhere {
			p.prefetchPiece(p.contents[c].left)
			p.prefetchPiece(p.contents[c].right)
		}
	}
}
