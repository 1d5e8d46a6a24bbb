package latency

import (
	"encoding/csv"
	"math"
	"os"
	"strconv"
	"testing"
)

// TestLinksAgainstMeasurements compares the law with the measured transfers, where they stand beside the repository,
// within the errors that the fits state.
func TestLinksAgainstMeasurements(t *testing.T) {
	f, err := os.Open(shared(t, "calibration", "points", "transfer.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	for _, c := range []struct {
		link, method string
		points       int
		mean         float64 // relative error, mean of the absolute values
		from         int64   // bytes of a block
	}{
		{"pcie5_dma", "DMA copy engine", 26, 0.04, 0},
		{"pcie5_copy_kernel", "copy kernel", 18, 0.04, 65536},
		{"rdma_8x_cx7_mooncake", "Mooncake transfer engine, whole KV of one request, all 8 ranks", 9, 0.031, 0},
	} {
		l, err := FindLink(c.link)
		if err != nil {
			t.Fatal(err)
		}
		sum, n := 0.0, 0
		for _, r := range rows[1:] {
			number := func(name string) float64 {
				v, err := strconv.ParseFloat(r[column[name]], 64)
				if err != nil {
					return 0
				}
				return v
			}
			if r[column["method"]] != c.method || int64(number("block_bytes")) < c.from {
				continue
			}
			measured := number("ms") / 1e3
			sum += math.Abs(l.Seconds(int64(number("blocks")), int64(number("total_bytes")))/measured - 1)
			n++
		}
		if n != c.points || sum/float64(n) > c.mean {
			t.Errorf("%s: mean error %.2f %% over %d points, expected at most %.2f %% over %d", c.link, 100*sum/float64(n), n, 100*c.mean, c.points)
		}
	}
	both, _ := FindLink("pcie5_dma")
	if sum := 2 * both.BothWays().Rate; math.Abs(sum/83.4e9-1) > 0.01 {
		t.Errorf("both directions of PCIe reach %.1f GB/s together, 83.4 were measured", sum/1e9)
	}
}

// TestHostTransfer has the published load of a 100,000-token prompt of an 8B model: 13 GB in about 0.3 s.
func TestHostTransfer(t *testing.T) {
	h100, err := FindGPU("h100_sxm")
	if err != nil {
		t.Fatal(err)
	}
	llama, err := FindModel("llama-3.1-8b")
	if err != nil {
		t.Fatal(err)
	}
	perToken, err := llama.KVBytes("bf16", 1)
	if err != nil {
		t.Fatal(err)
	}
	got := h100.HostTransfer(6250, 16*perToken)
	// 6,250 pieces of 2 MiB: 6250 * 3.5 us + 13,107,200,000 / 51e9 s
	if want := int64(21_875_000_000 + 257_003_921_569); got < want-1000 || got > want+1000 {
		t.Errorf("6,250 blocks take %d ps, expected %d", got, want)
	}
	if s := float64(got)/1e12 + 0.0103; math.Abs(s/0.310-1) > 0.08 {
		t.Errorf("with the overhead of a request it is %.3f s, 0.310 were measured", s)
	}
	for _, g := range GPUs() {
		want := "pcie4_dma"
		if g.Spec.PCIeGBPerS > 32 {
			want = "pcie5_dma"
		}
		if l := g.HostLink(); l.Name != want {
			t.Errorf("%s: %s, expected %s", g.Name, l.Name, want)
		}
	}
}

func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		o             Overlap
		load, compute int64
		layers        int
		want          int64
	}{
		{Asynchronous, 1000, 10, 4, 0},
		{Blocking, 1000, 10, 4, 1000},
		{Blocking, 0, 10, 4, 0},
		{LayerWise, 1000, 400, 4, 700},                  // 1000 - 400 * 3/4
		{LayerWise, 1000, 4000, 4, 250},                 // hidden but for the first layer
		{LayerWise, 1000, 1000, 4, 250},                 // both bounds meet
		{LayerWise, 1000, 0, 4, 1000},                   // nothing to hide behind
		{LayerWise, 1001, 4000, 4, 251},                 // rounded up
		{LayerWise, 1000, 4000, 1, 1000},                // one layer
		{LayerWise, 1 << 55, 1 << 55, 1 << 10, 1 << 45}, // no overflow
		{LayerWise, 10, 7, 3, 6},                        // 10 - floor(7 * 2/3)
	} {
		if got := c.o.Visible(c.load, c.compute, c.layers); got != c.want {
			t.Errorf("%v: load %d, compute %d, %d layers: %d, expected %d", c.o, c.load, c.compute, c.layers, got, c.want)
		}
	}
}

func TestFindLink(t *testing.T) {
	if l, err := FindLink("PCIe5 DMA"); err != nil || l.Name != "pcie5_dma" || !l.Fitted {
		t.Errorf("got %+v, %v", l, err)
	}
	if _, err := FindLink("pcie5_dm"); err == nil {
		t.Error("a name that is not there was found")
	}
	if len(Links()) != 14 {
		t.Errorf("%d links, expected 14", len(Links()))
	}
}

// TestTransferQueue has transfers over a link of 1 GB/s, or 0.75 in each direction when both are busy: in picoseconds a
// byte takes 1,000 or 1,333.
func TestTransferQueue(t *testing.T) {
	q := NewTransferQueue(&Link{Setup: 1e-9, Rate: 1e9, Duplex: 1.5})
	for i, c := range []struct {
		now        int64
		d          Direction
		bytes      int64
		begin, end int64
	}{
		{0, ToGPU, 10, 0, 11_000},
		{5_000, ToGPU, 10, 11_000, 22_000},  // behind the first
		{6_000, ToHost, 3, 6_000, 11_000},   // the other direction is busy
		{7_000, ToHost, 30, 11_000, 52_000}, // still
		{22_000, ToGPU, 10, 22_000, 36_333}, // the other direction is busy
		{60_000, ToHost, 10, 60_000, 71_000},
	} {
		if begin, end := q.Submit(c.now, c.d, 1, c.bytes); begin != c.begin || end != c.end {
			t.Errorf("transfer %d runs from %d to %d, expected %d to %d", i, begin, end, c.begin, c.end)
		}
	}
	if q.Free(ToGPU) != 36_333 || q.Free(ToHost) != 71_000 {
		t.Errorf("free at %d and %d", q.Free(ToGPU), q.Free(ToHost))
	}
}
