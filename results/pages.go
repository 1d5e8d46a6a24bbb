package results

// pageStore keeps the encoded pages of a row group, in blocks that are used again for the next one.
type pageStore struct {
	blocks [][]byte
	at     int // block being filled
}

// Bytes of the first block and of a large one.
const (
	firstBlock = 1 << 14
	largeBlock = 1 << 20
)

// keep copies a page until reset.
func (s *pageStore) keep(head, body []byte) []byte {
	n := len(head) + len(body)
	for ; s.at < len(s.blocks); s.at++ {
		if block := s.blocks[s.at]; n <= cap(block)-len(block) {
			break
		}
	}
	if s.at == len(s.blocks) {
		s.blocks = append(s.blocks, make([]byte, 0, max(min(firstBlock<<min(s.at, 16), largeBlock), n)))
	}
	block := append(append(s.blocks[s.at], head...), body...)
	s.blocks[s.at] = block
	return block[len(block)-n:]
}

func (s *pageStore) reset() {
	s.at = 0
	for i := range s.blocks {
		s.blocks[i] = s.blocks[i][:0]
	}
}
