package routing

import "github.com/sluice-sim/sluice/policies"

// batchSource says where a router takes a replica's number of requests (BS) from.
type batchSource uint8

const (
	batchMax    batchSource = iota // the larger of sample and ledger: dispatches younger than the sample count
	batchSample                    // running + waiting of the last sample
	batchLedger                    // turns in flight
)

var batchNames = []string{"max", "sample", "ledger"}

func batchKnob() policies.Knob {
	return policies.Knob{
		Name: "batch", Kind: policies.EnumKnob, Default: policies.Value{Text: batchNames[batchMax]}, Enum: batchNames,
		Doc: "where a replica's number of requests comes from: the last sample, the router's ledger, or the larger of them; a replica without a sample counts by the ledger",
	}
}

func batchOf(p policies.Params) batchSource {
	for i, name := range batchNames {
		if p["batch"].Text == name {
			return batchSource(i)
		}
	}
	return batchMax
}

func (b batchSource) of(v *policies.View, r policies.ReplicaID) int64 {
	switch b {
	case batchLedger:
		return int64(v.InFlight(r))
	case batchSample:
		if s := v.Sample(r); s.Has&policies.HasRunning != 0 && s.Has&policies.HasWaiting != 0 {
			return int64(s.Running) + int64(s.Waiting)
		}
	}
	return int64(v.Batch(r))
}

// hitsOf returns the estimated hits of t on every replica, in scratch if it is large enough.
func hitsOf(v *policies.View, t *policies.Turn, scratch []int32) []int32 {
	if n := v.Replicas(); cap(scratch) < n {
		scratch = make([]int32, n)
	} else {
		scratch = scratch[:n]
	}
	v.EstimateHits(t, scratch)
	return scratch
}
