package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/sluice-sim/sluice/model/engine"
	"github.com/sluice-sim/sluice/model/latency"
	"github.com/sluice-sim/sluice/scenarios"
)

// replica is what one replica of a scenario comes to.
type replica struct {
	setup  latency.Setup
	engine engine.Config
	blocks int32 // usable KV blocks
}

// resolveCluster reads the cards and derives what a replica is, all that can be checked before a trace is read. Errors name
// the key of the scenario.
func resolveCluster(sc *scenarios.Scenario) (*replica, error) {
	var r replica
	var err error
	if r.setup, err = deployment(sc); err != nil {
		return nil, err
	}
	law, err := latency.New(r.setup)
	if err != nil {
		return nil, sc.Problem("cluster.gpu", err.Error())
	}
	if r.blocks, err = kvBlocks(sc, r.setup); err != nil {
		return nil, err
	}
	r.engine = engineConfig(sc, r.setup, law)
	if r.engine.MaxNumSeqs > r.engine.MaxBatchedTokens {
		return nil, sc.Problem("cluster.engine.max_num_seqs", fmt.Sprintf("%d is above max_num_batched_tokens, which is %d on this GPU; vLLM refuses that",
			r.engine.MaxNumSeqs, r.engine.MaxBatchedTokens))
	}
	_, err = maxModelLen(sc, r.blocks)
	return &r, err
}

// checkTrace says whether the trace of a scenario is there, before anything else is done.
func checkTrace(sc *scenarios.Scenario) error {
	const key = "workload.trace.path"
	if sc.Workload.Source != "trace" {
		return nil
	}
	path := sc.Path(key)
	switch _, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return badInput(sc.Problem(key, fmt.Sprintf("found no file or folder %s; set workload.trace.path to where your copy of the trace is (--set workload.trace.path=FOLDER)", path)))
	case err != nil:
		return badInput(sc.Problem(key, err.Error()))
	}
	return nil
}

// runDigest names a run by content: the scenario's digest, or where it names card files one that covers them too.
func runDigest(sc *scenarios.Scenario) (string, error) {
	h := sha256.New()
	files := 0
	for _, key := range []string{"cluster.model", "cluster.gpu"} {
		name, _ := sc.Value(key)
		if !isFile(name) {
			continue
		}
		files++
		data, err := os.ReadFile(sc.Path(key))
		if err != nil {
			return "", badInput(sc.Problem(key, err.Error()))
		}
		fmt.Fprintf(h, "%s %d\n", key, len(data))
		h.Write(data)
	}
	if files == 0 {
		return sc.Digest(), nil
	}
	h.Write(sc.Resolved())
	return hex.EncodeToString(h.Sum(nil)[:6]), nil
}
