package prefetch

import "testing"

// Asking changes nothing, wherever a value begins and whatever its size, and for nothing at all.
func TestAsking(t *testing.T) {
	type odd struct{ b [97]byte }
	values := make([]odd, 100)
	for i := range values {
		for k := range values[i].b {
			values[i].b[k] = byte(i + k)
		}
	}
	for i := range values {
		Value(&values[i])
		Front(&values[i], uintptr(i)+1)
		Slice(values[i:])
		Heads(values[:i])
	}
	Slice[odd](nil)
	Heads([]odd{})
	for i := range values {
		for k := range values[i].b {
			if values[i].b[k] != byte(i+k) {
				t.Fatalf("byte %d of value %d changed", k, i)
			}
		}
	}
}

// BenchmarkChain is what asking ahead is for: each place that is looked at tells where the next one is, but could be foreseen.
func BenchmarkChain(b *testing.B) {
	type line [8]uint32
	lines := make([]line, 1<<22)
	for i := range lines {
		lines[i][0] = 1
	}
	at := func(i uint32) *line { return &lines[i*2654435769>>7%uint32(len(lines))] }
	for _, ahead := range []uint32{0, 8} {
		b.Run(map[uint32]string{0: "as needed", 8: "ahead"}[ahead], func(b *testing.B) {
			i := uint32(0)
			for range b.N {
				if ahead > 0 {
					Value(at(i + ahead))
				}
				i += at(i)[0]
			}
			if i != uint32(b.N) {
				b.Fatal(i)
			}
		})
	}
}
