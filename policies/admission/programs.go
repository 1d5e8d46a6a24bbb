package admission

import (
	"slices"

	"github.com/sluice-sim/sluice/exact"
	"github.com/sluice-sim/sluice/policies"
)

// programStage is what the table knows of a thread.
type programStage uint8

const (
	noProgram programStage = iota
	newcomer               // its first turn waits and it has no place
	inPlace                // it counts on a backend
	setAside               // paused: it counts nowhere
)

// program is one thread: a context that grows turn by turn. It reasons while a turn of it runs or waits, and acts (runs a
// tool) in between.
type program struct {
	stage   programStage
	marked  bool // it is paused when its turn ends
	resumed bool
	backend policies.ReplicaID // of a program in place; NoReplica after its replica was lost
	running int32              // turns
	waits   policies.AttemptID // the newest turn at the gate; noTurn if none
	since   policies.Time      // when that turn arrived
	acting  policies.Time      // since when it acts
	tokens  int32
	order   int32 // of registration
}

const noTurn policies.AttemptID = -1

func (p *program) reasons() bool { return p.running > 0 || p.waits != noTurn }

// backend is the sums over the programs in place on one replica.
type backend struct {
	reasoning, acting int64 // tokens
	programs          int64
	room              float64 // scratch of a tick
}

// table is the programs and what they hold. Every program is counted on at most one backend.
type table struct {
	weight   float64       // of the tokens of acting programs
	overhead int64         // tokens added for each program
	halfLife policies.Time // of acting tokens where they decay; 0 for never

	programs []program           // by thread
	live     []policies.ThreadID // that have a stage, in order of registration
	backends []backend           // by replica
	count    int32               // registered so far
	aside    int                 // programs that are newcomers or set aside
}

// cover has a backend for each of n replicas.
func (b *table) cover(n int) {
	for n > len(b.backends) {
		b.backends = append(b.backends, backend{})
	}
}

func (b *table) of(t policies.ThreadID) *program {
	for int(t) >= len(b.programs) {
		b.programs = append(b.programs, program{waits: noTurn})
	}
	return &b.programs[t]
}

// register makes t a newcomer with a number of running turns.
func (b *table) register(t policies.ThreadID, running int32) *program {
	p := b.of(t)
	*p = program{stage: newcomer, waits: noTurn, backend: policies.NoReplica, running: running, order: b.count}
	b.count++
	b.aside++
	b.live = append(b.live, t)
	return p
}

// forget takes t out of the table.
func (b *table) forget(t policies.ThreadID) {
	p := b.of(t)
	if p.stage == noProgram {
		return
	}
	b.lift(p)
	b.aside--
	p.stage = noProgram
	i, _ := slices.BinarySearchFunc(b.live, p.order, func(t policies.ThreadID, order int32) int { return int(b.programs[t].order - order) })
	b.live = append(b.live[:i], b.live[i+1:]...)
}

// put counts p, which is nowhere, on r.
func (b *table) put(p *program, r policies.ReplicaID) {
	p.stage, p.backend, p.marked = inPlace, r, false
	b.aside--
	b.charge(p, 1)
}

// lift sets p aside.
func (b *table) lift(p *program) {
	if p.stage == inPlace {
		b.charge(p, -1)
		p.stage, p.backend, p.marked = setAside, policies.NoReplica, false
		b.aside++
	}
}

// charge adds p to its backend's sums, or takes it out.
func (b *table) charge(p *program, by int64) {
	if p.stage != inPlace || p.backend == policies.NoReplica {
		return
	}
	x := &b.backends[p.backend]
	x.programs += by
	if p.reasons() {
		x.reasoning += by * int64(p.tokens)
	} else {
		x.acting += by * int64(p.tokens)
	}
}

// change applies f to p and keeps the sums right.
func (b *table) change(p *program, f func(p *program)) {
	b.charge(p, -1)
	f(p)
	b.charge(p, 1)
}

// lose forgets where the programs on r were; they are placed anew with their next turn.
func (b *table) lose(r policies.ReplicaID) {
	for _, t := range b.live {
		if p := &b.programs[t]; p.stage == inPlace && p.backend == r {
			b.charge(p, -1)
			p.backend = policies.NoReplica
		}
	}
}

// used is the tokens that count on r.
func (b *table) used(r policies.ReplicaID) float64 {
	x := &b.backends[r]
	return float64(x.reasoning) + float64(b.weight*float64(x.acting)) + float64(b.overhead*x.programs)
}

// decayed is used with the tokens of each acting program halved with every half-life that it acts.
func (b *table) decayed(now policies.Time, r policies.ReplicaID) float64 {
	if b.halfLife == 0 {
		return b.used(r)
	}
	x := &b.backends[r]
	sum := float64(x.reasoning) + float64(b.overhead*x.programs)
	for _, t := range b.live {
		if p := &b.programs[t]; p.stage == inPlace && p.backend == r && !p.reasons() {
			left := exact.Exp2(-float64(now-p.acting) / float64(b.halfLife))
			sum += float64(b.weight * float64(float64(p.tokens)*left))
		}
	}
	return sum
}
