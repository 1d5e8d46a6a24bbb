package gateway

import (
	"fmt"
	"slices"

	"github.com/sluice-sim/sluice/gateway/recorder"
)

// makeRecorder begins to record if the configuration says so.
func (g *Gateway) makeRecorder() (err error) {
	c := &g.cfg.Recorder
	if c.Dir == "" {
		return nil
	}
	g.records, err = recorder.New(recorder.Config{
		Dir: c.Dir, Secret: g.secret, Sample: c.Sample, BlockTokens: int32(g.cfg.Prompt.Block), FileTurns: int(c.FileTurns),
		FileAge: seconds(c.FileAgeS), Files: int(c.Files), OpenTurns: int(c.OpenTurns), Idle: seconds(g.cfg.Limits.SessionIdleS), Log: g.log,
	})
	return err
}

func (g *Gateway) sessionEnded(key string) {
	if g.records != nil {
		g.records.EndSession(key)
	}
}

// record hands a turn that is about to end to the recorder. Where the engine did not say how many tokens it produced, the
// pieces of its stream count.
func (f *flight) record(outcome recorder.Outcome, output int32) {
	g := f.g
	if g.records == nil {
		return
	}
	t := recorder.Turn{
		Session: f.sessionKey(), Model: "other", Basis: f.basis, PromptTokens: f.chain.Tokens, OutputTokens: output,
		ArrivedNS: int64(f.came), Outcome: outcome,
	}
	if output == 0 {
		t.OutputTokens = f.attempt.tokens.Load()
	}
	alone := t.Session == ""
	if alone {
		t.Session = fmt.Sprintf("\x00%d", f.attempt.id)
	}
	if !g.records.Samples(t.Session) {
		return
	}
	g.driver.Do(func(b *Batch) {
		t.EndedNS, t.Thread = int64(b.Now()), int64(f.attempt.thread.number)
		if f.attempt.stage != over { // its content is still held
			t.Path = g.table.Path(f.attempt.prompt, nil)
		}
		if slices.ContainsFunc(g.replicas, func(r *replica) bool { return slices.Contains(r.models, f.parsed.Model) }) {
			t.Model = f.parsed.Model
		}
	})
	if t.Path != nil || outcome == recorder.Refused {
		g.records.Record(t)
	}
	if alone {
		g.records.EndSession(t.Session)
	}
}
