package results

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// column is one column of a Parquet file being written. It keeps the values of a page, in the field of its kind, and the
// encoded pages of a row group.
type column struct {
	name     string
	kind     parquet.Kind
	optional bool

	levels  []uint8 // of an optional column: 1 where there is a value, 0 where there is none
	bools   []uint8
	ints    []int32
	longs   []int64
	doubles []uint64 // their bits
	texts   []uint32 // indexes of the dictionary
	alike   int      // rows that all have the last text, instead

	index  map[string]uint32 // dictionary of the row group
	labels []string
	last   uint32 // index of the text before

	pages        [][]byte
	uncompressed int64 // bytes of the pages before compression
	values       int64 // that are not null
	least, most  int64 // of them
}

// fewLabels is the number of texts up to which looking at all is faster than the index.
const fewLabels = 8

// indexOf is the index of a text in the dictionary.
func (c *column) indexOf(s string) uint32 {
	if len(c.labels) > 0 && c.labels[c.last] == s {
		return c.last
	}
	if len(c.labels) <= fewLabels {
		if i := slices.Index(c.labels, s); i >= 0 {
			c.last = uint32(i)
			return c.last
		}
	}
	i, ok := c.index[s]
	if !ok {
		if c.index == nil {
			c.index = map[string]uint32{}
		}
		i = uint32(len(c.labels))
		c.index[s] = i
		c.labels = append(c.labels, s)
	}
	c.last = i
	return i
}

// encoding is how the values of a kind are written. Differences of integers need no compression after it.
func (c *column) encoding() format.Encoding {
	switch c.kind {
	case parquet.Int32, parquet.Int64:
		return format.DeltaBinaryPacked
	case parquet.Double:
		return format.ByteStreamSplit
	case parquet.ByteArray:
		return format.RLEDictionary
	default:
		return format.Plain
	}
}

func (c *column) codec() format.CompressionCodec {
	if c.kind == parquet.Double || c.kind == parquet.ByteArray {
		return format.Zstd
	}
	return format.Uncompressed
}

// endPage encodes the values of a page of that many rows.
func (c *column) endPage(p *parquetFile, rows int) error {
	body := p.plain[:0]
	if c.optional {
		body = appendHybrid(append(body, 0, 0, 0, 0), c.levels, 1)
		binary.LittleEndian.PutUint32(body, uint32(len(body)-4))
		c.levels = c.levels[:0]
	}
	n := 0
	switch c.kind {
	case parquet.Boolean:
		n = len(c.bools)
		c.bools = append(c.bools, make([]uint8, -n&7)...)
		body = appendPacked(body, c.bools, 1)
		c.bools = c.bools[:0]
	case parquet.Int32:
		n = len(c.ints)
		noteEnds(c, c.ints)
		body = appendDelta(body, c.ints, 32)
		c.ints = c.ints[:0]
	case parquet.Int64:
		n = len(c.longs)
		noteEnds(c, c.longs)
		body = appendDelta(body, c.longs, 64)
		c.longs = c.longs[:0]
	case parquet.Double:
		n = len(c.doubles)
		noteEnds(c, c.doubles)
		body = appendSplit(body, c.doubles)
		c.doubles = c.doubles[:0]
	case parquet.ByteArray:
		n = len(c.texts) + c.alike
		width := max(bits.Len(uint(len(c.labels)-1)), 1)
		body = append(body, byte(width))
		if c.alike >= leastRun {
			body = appendRun(body, c.last, c.alike, width)
		} else {
			body = appendHybrid(body, append(c.texts, slices.Repeat([]uint32{c.last}, c.alike)...), width)
		}
		c.texts, c.alike = c.texts[:0], 0
	}
	c.values += int64(n)
	p.plain = body
	header := format.PageHeader{Type: format.DataPage}
	header.DataPageHeader.Set(format.DataPageHeader{NumValues: int32(rows), Encoding: c.encoding(),
		DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE,
		Statistics: format.Statistics{NullCount: int64(rows - n)}})
	head, body, err := c.encodePage(p, header, body)
	c.pages = append(c.pages, p.pages.keep(head, body))
	return err
}

// encodePage compresses a page.
func (c *column) encodePage(p *parquetFile, header format.PageHeader, body []byte) (head, packed []byte, err error) {
	header.UncompressedPageSize = int32(len(body))
	if c.codec() == format.Zstd {
		p.packed = compressor().EncodeAll(body, p.packed[:0])
		body = p.packed
	}
	header.CompressedPageSize = int32(len(body))
	head, err = thrift.Marshal(new(thrift.CompactProtocol), &header)
	c.uncompressed += int64(len(head)) + int64(header.UncompressedPageSize)
	return head, body, err
}

// endChunk writes the pages of a row group and describes them.
func (c *column) endChunk(p *parquetFile, rows int64) (format.ColumnChunk, error) {
	meta := format.ColumnMetaData{Type: format.Type(c.kind), PathInSchema: []string{c.name}, Codec: c.codec(), NumValues: rows,
		Encoding:   []format.Encoding{c.encoding(), format.RLE},
		Statistics: c.statistics(rows)}
	start := p.offset
	meta.DataPageOffset = start
	if c.kind == parquet.ByteArray {
		if err := c.writeDictionary(p); err != nil {
			return format.ColumnChunk{}, err
		}
		meta.Encoding = append(meta.Encoding, format.Plain)
		meta.DictionaryPageOffset, meta.DataPageOffset = start, p.offset
	}
	for _, page := range c.pages {
		p.write(page)
	}
	clear(c.pages)
	meta.TotalCompressedSize, meta.TotalUncompressedSize = p.offset-start, c.uncompressed
	c.pages, c.uncompressed, c.values = c.pages[:0], 0, 0
	return format.ColumnChunk{FileOffset: start, MetaData: meta}, nil
}

// writeDictionary writes the page of the distinct texts in order of appearance, and starts the next row group's.
func (c *column) writeDictionary(p *parquetFile) error {
	body := p.plain[:0]
	for _, label := range c.labels {
		body = append(binary.LittleEndian.AppendUint32(body, uint32(len(label))), label...)
	}
	p.plain = body
	header := format.PageHeader{Type: format.DictionaryPage}
	header.DictionaryPageHeader.Set(format.DictionaryPageHeader{NumValues: int32(len(c.labels)), Encoding: format.Plain})
	clear(c.index)
	clear(c.labels)
	c.labels, c.last = c.labels[:0], 0
	head, body, err := c.encodePage(p, header, body)
	p.write(head)
	p.write(body)
	return err
}

// noteEnds widens the smallest and the largest value of the row group by those of a page. Doubles come as their bits, which
// are in the same order as long as none is negative.
func noteEnds[T int32 | int64 | uint64](c *column, values []T) {
	if len(values) == 0 {
		return
	}
	least, most := c.least, c.most
	if c.values == 0 {
		least, most = int64(values[0]), int64(values[0])
	}
	for _, v := range values {
		if v := int64(v); v < least {
			least = v
		} else if v > most {
			most = v
		}
	}
	c.least, c.most = least, most
}

// statistics let readers skip row groups. Doubles that are negative or no numbers have none.
func (c *column) statistics(rows int64) format.Statistics {
	s := format.Statistics{NullCount: rows - c.values}
	known := c.values > 0 && (c.kind == parquet.Int32 || c.kind == parquet.Int64 ||
		c.kind == parquet.Double && c.least >= 0 && c.most <= int64(math.Float64bits(math.Inf(1))))
	if known {
		s.MinValue = binary.LittleEndian.AppendUint64(nil, uint64(c.least))
		s.MaxValue = binary.LittleEndian.AppendUint64(nil, uint64(c.most))
		if c.kind == parquet.Int32 {
			s.MinValue, s.MaxValue = s.MinValue[:4], s.MaxValue[:4]
		}
	}
	return s
}
