package routing

import "github.com/sluice-sim/sluice/policies"

// Reads the ledger's in-flight counts (F). Keeps a map thread -> replica of the most recently routed threads; routing a
// thread refreshes it. First turns and ties go to the fewest in flight, lowest replica. There is no bound on the load of
// a thread's replica.
// Source: verl-project/verl, verl/workers/rollout/llm_server.py; spec: policies 2.12.

// Sticky declares the router that keeps a thread on its replica.
func Sticky() policies.Declaration {
	return policies.Declaration{
		Name:    "sticky",
		Doc:     "Sends a thread where its last turn went, whatever the load there; a new, forgotten or homeless thread goes to the fewest turns in flight.",
		Source:  "verl-project/verl, verl/workers/rollout/llm_server.py; spec: policies 2.12",
		Missing: "It reads no signal.",
		Omits:   "weights never change, so the map is never cleared for that; nor is there the mode that places every session by its hash.",
		Knobs: []policies.Knob{{
			Name: "capacity_threads", Kind: policies.IntKnob, Default: policies.Value{Number: 10000}, Min: 1, Max: 1e8,
			Unit: "threads", Doc: "threads remembered; the least recently routed is forgotten first",
		}},
		NewRouter: func(_ policies.Env, p policies.Params) policies.Router {
			return &sticky{homes: newHomes(int(p["capacity_threads"].Number))}
		},
	}
}

type sticky struct{ homes homes }

func (*sticky) Observe(policies.Time, *policies.View, *policies.Fact) {}

func (s *sticky) Route(_ policies.Time, v *policies.View, t *policies.Turn) (policies.ReplicaID, policies.Reason) {
	home, known := s.homes.of(t)
	if known && v.IsUp(home) {
		s.homes.put(t.Thread, home)
		return home, policies.Affinity
	}
	why := policies.FirstPlacement
	if known {
		why = policies.HomeLost
	}
	to := v.LeastInFlight()
	if to != policies.NoReplica {
		s.homes.put(t.Thread, to)
	}
	return to, why
}

func (s *sticky) Peek(_ policies.Time, v *policies.View, t *policies.Turn) policies.ReplicaID {
	if home, ok := s.homes.of(t); ok && v.IsUp(home) {
		return home
	}
	return v.LeastInFlight()
}

// homes is a map from threads to replicas that forgets the thread whose entry was written least recently.
type homes struct {
	capacity int
	byThread []int32 // slot + 1, 0 if the thread has none
	slots    []homeSlot
	newest   int32 // of a ring: newest.older is the one before, newest.newer the oldest of all
}

type homeSlot struct {
	thread       policies.ThreadID
	replica      policies.ReplicaID
	older, newer int32
}

func newHomes(capacity int) homes { return homes{capacity: capacity} }

// of is where the thread of t is; nowhere if t opens it.
func (h *homes) of(t *policies.Turn) (policies.ReplicaID, bool) {
	if t.Opens() {
		return policies.NoReplica, false
	}
	return h.get(t.Thread)
}

// get does not refresh.
func (h *homes) get(t policies.ThreadID) (policies.ReplicaID, bool) {
	if int(t) >= len(h.byThread) || h.byThread[t] == 0 {
		return policies.NoReplica, false
	}
	return h.slots[h.byThread[t]-1].replica, true
}

// put writes and refreshes.
func (h *homes) put(t policies.ThreadID, r policies.ReplicaID) {
	for int(t) >= len(h.byThread) {
		h.byThread = append(h.byThread, 0)
	}
	slot := h.byThread[t] - 1
	switch {
	case slot >= 0:
		h.unlink(slot)
	case len(h.slots) < h.capacity:
		h.slots = append(h.slots, homeSlot{})
		slot = int32(len(h.slots) - 1)
	default:
		slot = h.slots[h.newest].newer
		h.byThread[h.slots[slot].thread] = 0
		h.unlink(slot)
	}
	h.byThread[t] = slot + 1
	h.slots[slot].thread, h.slots[slot].replica = t, r
	h.link(slot)
}

func (h *homes) unlink(slot int32) {
	s := h.slots[slot]
	h.slots[s.older].newer, h.slots[s.newer].older = s.newer, s.older
	if h.newest == slot {
		h.newest = s.older
	}
}

// link makes slot the newest.
func (h *homes) link(slot int32) {
	if len(h.slots) == 1 {
		h.slots[slot].older, h.slots[slot].newer, h.newest = slot, slot, slot
		return
	}
	oldest := h.slots[h.newest].newer
	h.slots[slot].older, h.slots[slot].newer = h.newest, oldest
	h.slots[h.newest].newer, h.slots[oldest].older = slot, slot
	h.newest = slot
}
