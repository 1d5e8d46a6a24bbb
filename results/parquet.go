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

// smallFile is the number of rows from which on room for a whole page is made.
const smallFile = 256

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

// parquetFile is a Parquet file of flat rows being written, column by column. A row is written by one call for each of
// its columns, in their order, and endRow.
type parquetFile struct {
	file    File
	buffer  *bufio.Writer
	offset  int64 // bytes written
	columns []column
	at      int // next column of the row
	rows    int // of the page
	group   int // rows of the row group, without those of the page
	meta    format.FileMetaData
	plain   []byte
	packed  []byte

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

func (p *parquetFile) text(s string) { p.next().appendText(s) }

func (p *parquetFile) int32(v int32) {
	c := p.next()
	c.ints = append(c.ints, v)
}

func (p *parquetFile) int64(v int64) {
	c := p.next()
	c.longs = append(c.longs, v)
}

func (p *parquetFile) bool(v bool) {
	c := p.next()
	b := uint8(0)
	if v {
		b = 1
	}
	c.bools = append(c.bools, b)
}

func (p *parquetFile) double(v float64) {
	c := p.next()
	c.doubles = append(c.doubles, math.Float64bits(v))
}

// time writes a nullable time of picoseconds in seconds.
func (p *parquetFile) time(ps int64) {
	c := p.next()
	if ps == Missing {
		c.levels = append(c.levels, 0)
		return
	}
	c.levels = append(c.levels, 1)
	c.doubles = append(c.doubles, math.Float64bits(Seconds(ps)))
}

// index writes a nullable index, null when it is negative.
func (p *parquetFile) index(v int32) {
	c := p.next()
	if v < 0 {
		c.levels = append(c.levels, 0)
		return
	}
	c.levels = append(c.levels, 1)
	c.ints = append(c.ints, v)
}

// endRow completes a row. The writer of the file keeps the error of an earlier call, so only full pages cost something.
func (p *parquetFile) endRow() error {
	p.at = 0
	p.rows++
	if p.rows == p.pageRows {
		return p.endPage()
	}
	if p.rows == smallFile && p.group == 0 && len(p.meta.RowGroups) == 0 {
		for i := range p.columns {
			p.columns[i].reserve(p.pageRows)
		}
	}
	return nil
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
