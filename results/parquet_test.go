package results

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"
)

// allKinds is a row with every kind of column.
type allKinds struct {
	Text   string   `parquet:"text"`
	Int    int32    `parquet:"int"`
	Long   int64    `parquet:"long"`
	Double float64  `parquet:"double"`
	Flag   bool     `parquet:"flag"`
	Time   *float64 `parquet:"time"`
	Index  *int32   `parquet:"index"`
}

// drawKinds draws rows whose columns are constant, rare or wild, and their times in picoseconds.
func drawKinds(t *rapid.T, n int) (rows []allKinds, times []int64) {
	wild := rapid.IntRange(0, 3).Draw(t, "wild")
	rows, times = make([]allKinds, n), make([]int64, n)
	for i := range rows {
		r := &rows[i]
		times[i] = Missing
		switch wild {
		case 0:
			r.Text, r.Int, r.Long = "same", 7, -7
		case 1:
			r.Text = []string{"a", "b", ""}[i/9%3]
			r.Int, r.Long, r.Flag = int32(i), int64(i)*1e12, i%11 == 0
		default:
			r.Text = rapid.StringN(0, 3, 9).Draw(t, "text")
			r.Int = rapid.OneOf(rapid.Int32(), rapid.SampledFrom([]int32{math.MinInt32, math.MaxInt32})).Draw(t, "int")
			r.Long = rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64})).Draw(t, "long")
			r.Double = rapid.Float64().Draw(t, "double")
			r.Flag = rapid.Bool().Draw(t, "flag")
		}
		if rapid.IntRange(0, 3).Draw(t, "null") >= wild {
			times[i] = rapid.Int64Range(0, 1<<60).Draw(t, "time")
			r.Time = some(Seconds(times[i]))
			r.Index = new(int32)
			*r.Index = rapid.Int32Range(0, 100).Draw(t, "index")
		}
	}
	return rows, times
}

func writeKinds(t *rapid.T, path string, rows []allKinds, times []int64, pageRows, groupRows int) {
	p, err := newParquetFile[allKinds](&failingFS{}, path)
	if err != nil {
		t.Fatal(err)
	}
	p.pageRows, p.groupRows = pageRows, groupRows
	for len(rows) > 0 {
		n := min(len(rows), p.pageRows-p.rows, rapid.IntRange(1, 70).Draw(t, "rows at once"))
		some := rows[:n]
		labels(p, some, func(r *allKinds) string { return r.Text })
		fill(p.int32s(n), some, func(r *allKinds) int32 { return r.Int })
		fill(p.int64s(n), some, func(r *allKinds) int64 { return r.Long })
		fill(p.doubles(n), some, func(r *allKinds) uint64 { return math.Float64bits(r.Double) })
		fill(p.bools(n), some, func(r *allKinds) uint8 { return bit(r.Flag) })
		p.times(times[:n])
		p.indexes(fill(p.nullable(n), some, func(r *allKinds) int64 {
			if r.Index == nil {
				return -1
			}
			return int64(*r.Index)
		}))
		if err := p.endRows(n); err != nil {
			t.Fatal(err)
		}
		rows, times = rows[n:], times[n:]
	}
	if err := p.finish(); err != nil {
		t.Fatal(err)
	}
}

// Another implementation of Parquet reads what was written, over any number of pages and row groups, and the statistics of
// each row group bound its values.
func TestParquetReadsBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	rapid.Check(t, func(t *rapid.T) {
		want, times := drawKinds(t, rapid.IntRange(0, 400).Draw(t, "rows"))
		page := rapid.IntRange(1, 200).Draw(t, "page")
		_ = os.Remove(path)
		writeKinds(t, path, want, times, page, page*rapid.IntRange(1, 3).Draw(t, "pages"))
		got, err := parquet.ReadFile[allKinds](path)
		if err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if len(want) != len(got) {
			t.Fatalf("%d rows, expected %d", len(got), len(want))
		}
		for i := range want {
			if d := cmp.Diff(want[i], got[i]); d != "" {
				t.Fatalf("row %d: %s", i, d)
			}
		}
		checkStatistics(t, path, want)
	})
}

func checkStatistics(t *rapid.T, path string, rows []allKinds) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	file, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, g := range file.Metadata().RowGroups {
		least, most, nulls := int64(math.MaxInt64), int64(math.MinInt64), int64(0)
		for _, r := range rows[at : at+int(g.NumRows)] {
			least, most = min(least, r.Long), max(most, r.Long)
			if r.Time == nil {
				nulls++
			}
		}
		s := g.Columns[2].MetaData.Statistics
		if lo, hi := parquet.Int64.Value(s.MinValue).Int64(), parquet.Int64.Value(s.MaxValue).Int64(); lo != least || hi != most {
			t.Fatalf("statistics: %d to %d, expected %d to %d", lo, hi, least, most)
		}
		if s := g.Columns[5].MetaData.Statistics; s.NullCount != nulls {
			t.Fatalf("statistics: %d nulls, expected %d", s.NullCount, nulls)
		}
		at += int(g.NumRows)
	}
}

// What Parquet's specification shows for integers and levels, byte by byte.
func TestEncodings(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want []byte
	}{
		{"deltas, first example: 1 to 5", appendDelta[int32](nil, []int32{1, 2, 3, 4, 5}, 32), []byte{128, 1, 4, 5, 2, 2, 0, 0, 0, 0}},
		{"deltas, second example: 7, 5, 3, 1, 2, 3, 4, 5 has differences -2 to 1 in two bits",
			appendDelta[int64](nil, []int64{7, 5, 3, 1, 2, 3, 4, 5}, 64),
			[]byte{128, 1, 4, 8, 14, 3, 2, 0, 0, 0, 0b11_00_00_00, 0b00_11_11_11, 0, 0, 0, 0, 0, 0}},
		{"packed, example: 0 to 7 in three bits", appendPacked[uint8](nil, []uint8{0, 1, 2, 3, 4, 5, 6, 7}, 3), []byte{0b10001000, 0b11000110, 0b11111010}},
		{"a run", appendHybrid[uint8](nil, []uint8{1, 1, 1, 1, 1, 1, 1, 1, 1}, 1), []byte{9 << 1, 1}},
		{"a group and a run", appendHybrid[uint8](nil, []uint8{0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 1),
			[]byte{1<<1 | 1, 0b10101010, 8 << 1, 1}},
		{"split", appendSplit(nil, []uint64{0x0807060504030201, 0x1817161514131211}),
			[]byte{1, 0x11, 2, 0x12, 3, 0x13, 4, 0x14, 5, 0x15, 6, 0x16, 7, 0x17, 8, 0x18}},
	} {
		if d := cmp.Diff(c.want, c.got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}
