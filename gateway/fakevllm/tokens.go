package fakevllm

import (
	"unicode"
	"unicode/utf8"
)

// A token is a piece of text of at most four bytes, and its id is made of those bytes, so that ids are the same in every
// server and every version, and turn into text without a vocabulary. Ids are below 2^31.
//
//	0x000000 - 0x7fffffff  one to four bytes, big-endian, none of them below 0x20 unless it stands alone
//	0x01000000 | n         special token n of the chat template
//	0x02000000 | r         the rune r, if it takes four bytes
const (
	specialToken = 0x01000000
	wideToken    = 0x02000000
)

// The special tokens.
const (
	tokenBegin   uint32 = specialToken | iota + 1 // of a prompt
	tokenRole                                     // the role of a message follows
	tokenMessage                                  // the text of a message follows
	tokenEnd                                      // of a message: what the model says when it stops
)

var specialText = map[uint32]string{
	tokenBegin: "<|begin|>", tokenRole: "<|role|>", tokenMessage: "<|message|>", tokenEnd: "<|end|>",
}

// encode appends the tokens of a text to dst: letters and digits in pieces of up to four bytes, of which the first may be
// a space; every other character by itself. A text that starts with a space continues any other without changing the
// tokens of that one.
func encode(text string, dst []uint32) []uint32 {
	for len(text) > 0 {
		n := pieceLen(text)
		dst = append(dst, pieceID(text[:n]))
		text = text[n:]
	}
	return dst
}

// pieceLen is the length of the first piece of a text that is not empty.
func pieceLen(text string) int {
	n, most := 0, 4
	switch {
	case text[0] == ' ':
		n = 1
	case text[0] >= utf8.RuneSelf:
		most = 3 // four would be an id above 2^31
	}
	for n < len(text) {
		r, size := utf8.DecodeRuneInString(text[n:])
		if n+size > most || size == 4 || !(unicode.IsLetter(r) || unicode.IsDigit(r)) {
			break
		}
		n += size
	}
	if n == 0 {
		_, n = utf8.DecodeRuneInString(text)
	}
	return n
}

func pieceID(piece string) uint32 {
	if r, size := utf8.DecodeRuneInString(piece); size == 4 {
		return wideToken | uint32(r)
	}
	id := uint32(0)
	for i := range len(piece) {
		id = id<<8 | uint32(piece[i])
	}
	return id
}

// decode appends the text of a token to dst. Tokens that nothing encodes to have no text.
func decode(id uint32, dst []byte) []byte {
	switch id >> 24 {
	case specialToken >> 24:
		return append(dst, specialText[id]...)
	case wideToken >> 24:
		return utf8.AppendRune(dst, rune(id&0xffffff))
	case 0:
		switch {
		case id > 0xffff:
			return append(dst, byte(id>>16), byte(id>>8), byte(id))
		case id > 0xff:
			return append(dst, byte(id>>8), byte(id))
		}
		return append(dst, byte(id))
	}
	return append(dst, byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
}

// chatMessage is a message as the template sees it.
type chatMessage struct {
	role, text string
}

// chatTokens is the chat template: the tokens of a conversation. A later turn that repeats this one's messages and the
// answer has the tokens of this prompt and its output as its first.
func chatTokens(messages []chatMessage, generationPrompt bool) []uint32 {
	ids := []uint32{tokenBegin}
	for _, m := range messages {
		ids = encode(m.role, append(ids, tokenRole))
		ids = encode(m.text, append(ids, tokenMessage))
		ids = append(ids, tokenEnd)
	}
	if generationPrompt {
		ids = append(encode("assistant", append(ids, tokenRole)), tokenMessage)
	}
	return ids
}

// mix is the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// word is output token i of the text that a seed stands for: a space and three letters.
func word(seed uint64, i int32) uint32 {
	const first, vowel = "bcdfghjklmnprstvwz", "aeiou"
	x := mix(seed + uint64(i+1)*0x9e3779b97f4a7c15)
	a := first[x%18]
	b := vowel[(x>>16)%5]
	c := first[(x>>32)%18]
	return uint32(' ')<<24 | uint32(a)<<16 | uint32(b)<<8 | uint32(c)
}
