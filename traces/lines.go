package traces

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// eachLine calls do with every line that is not blank, without its line end, and with its number from 1. A line over
// the limit is refused after that many bytes. The bytes are valid until do returns.
func eachLine(s *source, limits Limits, do func(number int64, line []byte) error) error {
	r := bufio.NewReaderSize(s, 64<<10)
	var long []byte
	for number := int64(1); ; number++ {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long[:0], line...)
			for errors.Is(err, bufio.ErrBufferFull) {
				if int64(len(long)) > limits.Line {
					return at(overLimit("bytes in one line", "Line", limits.Line), s.name, number)
				}
				line, err = r.ReadSlice('\n')
				long = append(long, line...)
			}
			line = long
		}
		if err != nil && err != io.EOF {
			return at(err, s.name, number)
		}
		if int64(len(line)) > limits.Line {
			return at(overLimit("bytes in one line", "Line", limits.Line), s.name, number)
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if err := do(number, line); err != nil {
				return at(err, s.name, number)
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}
