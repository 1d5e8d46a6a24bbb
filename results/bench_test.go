package results

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// benchRun feeds a sink with what a run of that many turns on eight replicas looks like: sessions of 40 turns interleaved,
// prompts that grow, latencies spread over two orders of magnitude, 2,000 intervals a replica.
func benchRun(sink Sink, turns int) (*Totals, error) {
	const replicas, perSession, gap = 8, 40, 125_000_000_000
	r := rand.New(rand.NewPCG(1, 2))
	spread := func(least int64) int64 { return least + r.Int64N(least)<<r.IntN(7) }
	now := int64(0)
	var row Turn
	for i := range turns {
		now += spread(gap / 16)
		session, number := int32(i/(8*perSession)*8+i%8), int32(i/8%perSession+1)
		prompt, output := number*3000+r.Int32N(3000), 50+r.Int32N(500)
		row = Turn{Session: session, Number: number, Attempt: 1, Final: true, Group: -1, Replica: session % replicas,
			PrefillReplica: session % replicas, ArrivalPS: now, AdmittedPS: now, SentPS: now + 1, ScheduledPS: now + spread(2_000_000_000),
			AdmitReason: "open", RouteReason: []string{"owner", "owner", "balance"}[r.IntN(3)], PromptTokens: prompt, OutputTokens: output,
			HitGPU: prompt / 16 * 12, ComputedTokens: prompt - prompt/16*12, CeilingTokens: prompt / 16 * 14, ITLMaxPS: spread(9_000_000_000),
			ToolGapPS: spread(1_000_000_000_000), IdleTTFTPS: Missing, IdleTPOTPS: Missing}
		row.FirstTokenPS = row.ScheduledPS + spread(40_000_000_000)
		row.DonePS = row.FirstTokenPS + int64(output-1)*spread(6_000_000_000)
		if err := sink.Turn(&row); err != nil {
			return nil, err
		}
	}
	for i := range int32(turns/perSession + 1) {
		s := Session{Session: i, Name: "session-" + strconv.Itoa(int(i)), Group: -1, StartPS: int64(i) * perSession * gap,
			EndPS: int64(i+1) * perSession * gap, Turns: perSession, FinishedTurns: perSession, Complete: true, ReplicasUsed: 1}
		if err := sink.Session(&s); err != nil {
			return nil, err
		}
	}
	const intervals = 2000
	for k := range int64(intervals) {
		for i := range int32(replicas) {
			s := Sample{Replica: i, EndPS: (k + 1) * (now / intervals), Running: r.Int32N(9), InFlight: r.Int32N(9), Usage: r.Float64(),
				ResidentTokens: r.Int64N(1 << 20), ComputedTokens: r.Int64N(1 << 16), OutputTokens: r.Int64N(1 << 10), BusyPS: r.Int64N(now / intervals)}
			if err := sink.Sample(&s); err != nil {
				return nil, err
			}
		}
	}
	return &Totals{EndPS: now, Replicas: replicas, GPUs: replicas, Turns: int64(turns), Sessions: int64(turns/perSession + 1), ITL: NewHistogram()}, nil
}

// BenchmarkWriter measures a run's results from the simulator's calls to the complete folder, by turn. Ten million turns,
// which take half a minute and 1.7 GB of disk, go through the scratch file. The largest memory of the process is printed, so
// run them alone:
//
//	go test ./results -run '^$' -bench Writer/turns=10000000 -benchtime 1x
func BenchmarkWriter(b *testing.B) {
	for _, turns := range []int{30_000, 300_000, 10_000_000} {
		b.Run(fmt.Sprintf("turns=%d", turns), func(b *testing.B) {
			dir := b.TempDir()
			b.ReportAllocs()
			size := int64(0)
			for n := 0; b.Loop(); n++ {
				w, err := Create(filepath.Join(dir, strconv.Itoa(n)), smallInfo(), Options{})
				if err != nil {
					b.Fatal(err)
				}
				totals, err := benchRun(w, turns)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := w.Finish(totals); err != nil {
					b.Fatal(err)
				}
				info, err := os.Stat(filepath.Join(dir, strconv.Itoa(n), TurnsFile))
				if err != nil {
					b.Fatal(err)
				}
				size = info.Size()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(turns), "ns/turn")
			b.ReportMetric(float64(size)/float64(turns), "bytes/turn")
			if peak := peakMemory(); peak > 0 {
				b.ReportMetric(peak, "peak-MiB")
			}
		})
	}
}

// peakMemory is the largest resident memory of this process so far, 0 where the system does not tell.
func peakMemory() (mib float64) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(status) {
		if kib, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			n, _ := strconv.ParseFloat(string(bytes.TrimSuffix(bytes.TrimSpace(kib), []byte(" kB"))), 64)
			return n / 1024
		}
	}
	return 0
}
