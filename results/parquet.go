package results

import (
	"bufio"
	"encoding/binary"
	"errors"
	"math"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

const parquetMagic = "PAR1"

// Rows of a page, which are kept as values, and of a row group, which are kept as encoded pages.
const (
	defaultPageRows  = 1 << 13
	defaultGroupRows = 1 << 17 // a multiple of it
)

// compressor only takes out what repeats: the other bytes of times are noise. It is shared, because it is expensive to make.
// Each page is compressed on its own, so the bytes do not depend on how many goroutines use it.
var compressor = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false),
		zstd.WithNoEntropyCompression(true))
	if err != nil {
		panic(err) // an option is wrong
	}
	return e
})

// parquetFile is a Parquet file of flat rows being written, column by column. Rows are written some at a time, at most the
// rest of a page, by one call for each of their columns, in order, and endRows.
type parquetFile struct {
	file    File
	buffer  *bufio.Writer
	offset  int64 // bytes written
	columns []column
	at      int // next column of the rows
	rows    int // of the page
	group   int // rows of the row group, without those of the page
	pages   pageStore
	meta    format.FileMetaData
	plain   []byte
	packed  []byte
	work    []int64

	pageRows, groupRows int
}

// newParquetFile starts a file with the columns of T, a struct with parquet tags.
func newParquetFile[T any](fsys FS, path string) (*parquetFile, error) {
	f, err := fsys.Create(path)
	if err != nil {
		return nil, err
	}
	p := &parquetFile{file: f, buffer: bufio.NewWriterSize(f, 1<<16), pageRows: defaultPageRows, groupRows: defaultGroupRows}
	schema := parquet.SchemaOf(new(T))
	root := format.SchemaElement{Name: "schema"}
	root.NumChildren.Set(int32(len(schema.Fields())))
	p.meta = format.FileMetaData{Version: 1, CreatedBy: "sluice version 1(build 0)", Schema: []format.SchemaElement{root}}
	for _, field := range schema.Fields() {
		p.meta.Schema = append(p.meta.Schema, schemaElement(field))
		p.meta.ColumnOrders = append(p.meta.ColumnOrders, format.ColumnOrder{Value: new(format.TypeDefinedOrder)})
		p.columns = append(p.columns, column{name: field.Name(), kind: field.Type().Kind(), optional: field.Optional()})
	}
	p.write([]byte(parquetMagic))
	return p, nil
}

func schemaElement(field parquet.Field) format.SchemaElement {
	e := format.SchemaElement{Name: field.Name()}
	e.Type.Set(*field.Type().PhysicalType())
	e.RepetitionType.Set(format.Required)
	if field.Optional() {
		e.RepetitionType.Set(format.Optional)
	}
	if t := field.Type().LogicalType(); t != nil {
		e.LogicalType = *t
	}
	if t := field.Type().ConvertedType(); t != nil {
		e.ConvertedType.Set(*t)
	}
	return e
}

func (p *parquetFile) next() *column {
	p.at++
	return &p.columns[p.at-1]
}

// fill makes the values of a column out of rows.
func fill[V, T any](values []V, rows []T, of func(*T) V) []V {
	for i := range values {
		values[i] = of(&rows[i])
	}
	return values
}

// room makes values n longer. What is larger than a small file gets room for a page.
func room[V any](values *[]V, n, page int) []V {
	at := len(*values)
	if at+n > cap(*values) {
		size := n
		if at > 0 {
			size = max(page, at+n)
		}
		*values = append(make([]V, 0, size), *values...)
	}
	*values = (*values)[:at+n]
	return (*values)[at:]
}

// These are where the next column takes n values.

func (p *parquetFile) int32s(n int) []int32   { return room(&p.next().ints, n, p.pageRows) }
func (p *parquetFile) int64s(n int) []int64   { return room(&p.next().longs, n, p.pageRows) }
func (p *parquetFile) bools(n int) []uint8    { return room(&p.next().bools, n, p.pageRows) }
func (p *parquetFile) doubles(n int) []uint64 { return room(&p.next().doubles, n, p.pageRows) } // as bits

// label writes the same text n times, as it does in all rows of a page.
func (p *parquetFile) label(s string, n int) {
	c := p.next()
	c.indexOf(s)
	c.alike += n
}

// labels writes texts of which there are few.
func labels[T any](p *parquetFile, rows []T, of func(*T) string) {
	c := p.next()
	texts := room(&c.texts, len(rows), p.pageRows)
	for i := range rows {
		texts[i] = c.indexOf(of(&rows[i]))
	}
}

// nullable is room for n values of times or indexes.
func (p *parquetFile) nullable(n int) []int64 {
	return grown(&p.work, n)
}

// times writes nullable times of picoseconds in seconds.
func (p *parquetFile) times(ps []int64) {
	c := p.next()
	levels, values := room(&c.levels, len(ps), p.pageRows), room(&c.doubles, len(ps), p.pageRows)
	n := 0
	for i, v := range ps {
		values[n] = math.Float64bits(Seconds(v))
		levels[i] = 0
		if v != Missing {
			levels[i] = 1
			n++
		}
	}
	c.doubles = c.doubles[:len(c.doubles)-len(ps)+n]
}

// indexes writes nullable indexes, null when negative.
func (p *parquetFile) indexes(v []int64) {
	c := p.next()
	levels, values := room(&c.levels, len(v), p.pageRows), room(&c.ints, len(v), p.pageRows)
	n := 0
	for i, v := range v {
		values[n] = int32(v)
		levels[i] = 0
		if v >= 0 {
			levels[i] = 1
			n++
		}
	}
	c.ints = c.ints[:len(c.ints)-len(levels)+n]
}

// endRows completes n rows. The writer of the file keeps the error of an earlier call, so only full pages cost something.
func (p *parquetFile) endRows(n int) error {
	p.at = 0
	p.rows += n
	if p.rows < p.pageRows {
		return nil
	}
	return p.endPage()
}

func (p *parquetFile) endPage() error {
	if p.rows == 0 {
		return nil
	}
	for i := range p.columns {
		if err := p.columns[i].endPage(p, p.rows); err != nil {
			return err
		}
	}
	p.group += p.rows
	p.rows = 0
	if p.group < p.groupRows {
		return nil
	}
	return p.endGroup()
}

// endGroup writes the pages of the row group.
func (p *parquetFile) endGroup() error {
	if p.group == 0 {
		return nil
	}
	g := format.RowGroup{NumRows: int64(p.group), FileOffset: p.offset, Ordinal: int16(len(p.meta.RowGroups))}
	for i := range p.columns {
		c := &p.columns[i]
		chunk, err := c.endChunk(p, int64(p.group))
		if err != nil {
			return err
		}
		g.Columns = append(g.Columns, chunk)
		g.TotalByteSize += chunk.MetaData.TotalUncompressedSize
		g.TotalCompressedSize += chunk.MetaData.TotalCompressedSize
	}
	p.pages.reset()
	p.meta.RowGroups = append(p.meta.RowGroups, g)
	p.meta.NumRows += g.NumRows
	p.group = 0
	return nil
}

// write keeps an error for the flush in finish, as bufio does.
func (p *parquetFile) write(data []byte) {
	n, _ := p.buffer.Write(data)
	p.offset += int64(n)
}

// finish completes the file.
func (p *parquetFile) finish() error {
	if err := p.endPage(); err != nil {
		return err
	}
	if err := p.endGroup(); err != nil {
		return err
	}
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), &p.meta)
	if err != nil {
		return err
	}
	p.write(footer)
	p.write(binary.LittleEndian.AppendUint32(nil, uint32(len(footer))))
	p.write([]byte(parquetMagic))
	if err := p.buffer.Flush(); err != nil {
		return err
	}
	err = errors.Join(p.file.Sync(), p.file.Close())
	p.file = nil
	return err
}

// close drops the file; the folder it is in is removed by the caller.
func (p *parquetFile) close() {
	if p != nil && p.file != nil {
		_ = p.file.Close()
		p.file = nil
	}
}
