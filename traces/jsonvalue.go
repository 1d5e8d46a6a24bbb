package traces

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// jsonSeconds is a JSON number of seconds and jsonMillis one of milliseconds, both held as integer nanoseconds.
type (
	jsonSeconds int64
	jsonMillis  int64
)

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (ns *jsonSeconds) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	n, err := decodeTime(d, "seconds", 1e9, 1e8)
	*ns = jsonSeconds(n)
	return err
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (ns *jsonMillis) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	n, err := decodeTime(d, "milliseconds", 1e6, 4e12)
	*ns = jsonMillis(n)
	return err
}

// decodeTime reads a number of units of unitNS nanoseconds, at most limit of them.
func decodeTime(d *jsontext.Decoder, unit string, unitNS, limit int64) (int64, error) {
	v, err := d.ReadValue()
	if err != nil {
		return 0, err
	}
	if v.Kind() == '0' {
		if n, ok := parseTime(string(v), unitNS, limit); ok {
			return n, nil
		}
	}
	return 0, &InputError{Key: jsonKey(d.StackPointer()), Found: shorten(string(v)),
		Expected: fmt.Sprintf("a number of %s of at most %d", unit, limit)}
}

// parseTime turns a decimal JSON number into nanoseconds without passing through a float; digits below a nanosecond are
// cut. Only numbers with an exponent, which programs write for very large or small values, pass through one.
func parseTime(s string, unitNS, limit int64) (ns int64, ok bool) {
	if strings.ContainsAny(s, "eE") {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || f > float64(limit) || f < -float64(limit) {
			return 0, false
		}
		return int64(f * float64(unitNS)), true
	}
	digits, negative := strings.CutPrefix(s, "-")
	whole, frac, _ := strings.Cut(digits, ".")
	w, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || w > limit {
		return 0, false
	}
	ns = w * unitNS
	scale := unitNS
	for i := 0; i < len(frac) && scale > 1; i++ {
		scale /= 10
		ns += int64(frac[i]-'0') * scale
	}
	if negative {
		ns = -ns
	}
	return ns, true
}

// hashIDs is a JSON array of whole numbers, scanned by hand: nearly all bytes of a hashed trace are such arrays.
type hashIDs []int64

// UnmarshalJSONFrom implements json.UnmarshalerFrom. The decoder checks the grammar, scanIntegers only the numbers.
func (h *hashIDs) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	v, err := d.ReadValue()
	if err != nil {
		return err
	}
	out, err := scanIntegers(v, (*h)[:0])
	if err != nil {
		return &InputError{Key: jsonKey(d.StackPointer()), Found: err.Error(), Expected: "an array of whole numbers of at least 0"}
	}
	*h = out
	return nil
}

// scanIntegers appends the numbers of a well-formed JSON array to dst. It accepts exactly the arrays of whole numbers
// between 0 and 2^63-1 without fraction or exponent.
func scanIntegers(v []byte, dst []int64) ([]int64, error) {
	if len(v) < 2 || v[0] != '[' {
		return dst, errors.New(shorten(string(v)))
	}
	if cap(dst) == 0 {
		dst = make([]int64, 0, len(v)/5+1)
	}
	i := 1
	for {
		for v[i] == ' ' || v[i] == ',' || v[i] == '\n' || v[i] == '\t' || v[i] == '\r' {
			i++
		}
		if v[i] == ']' {
			return dst, nil
		}
		start, n := i, uint64(0)
		for ; v[i]-'0' <= 9; i++ {
			n = n*10 + uint64(v[i]-'0')
		}
		next := v[i]
		end := next == ',' || next == ']' || next == ' ' || next == '\n' || next == '\t' || next == '\r'
		if i == start || !end || i-start > 19 || n > 1<<63-1 {
			return dst, fmt.Errorf("%s at place %d", element(v[start:]), len(dst))
		}
		dst = append(dst, int64(n))
	}
}

// element is the first array element of v, for a message.
func element(v []byte) string {
	s := string(v[:min(len(v), 80)])
	if i := strings.IndexAny(s, ",] \n\t\r"); i > 0 {
		s = s[:i]
	}
	return shorten(s)
}

// decodeJSON reads one JSON value from b into v. Members that v does not know are skipped, for sources add some;
// duplicate members and invalid UTF-8 are errors.
func decodeJSON(b []byte, limits Limits, v any) error {
	if !withinDepth(b, limits.Depth) {
		return overLimit("levels of nesting", "Depth", limits.Depth)
	}
	err := json.Unmarshal(b, v)
	if err == nil {
		return nil
	}
	var in *InputError
	if errors.As(err, &in) {
		return in
	}
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		return &InputError{Key: jsonKey(semantic.JSONPointer), Found: found(semantic), Expected: expected(semantic)}
	}
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		e := &InputError{Key: jsonKey(syntactic.JSONPointer), Found: "text that is not JSON at byte " + strconv.FormatInt(syntactic.ByteOffset, 10),
			Expected: "JSON", Err: syntactic.Err}
		rest := b[min(int(syntactic.ByteOffset), len(b)):]
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			e.Found, e.Do = "the end of the text inside a value", "the file is cut short: fetch it again"
		case errors.Is(err, jsontext.ErrDuplicateName):
			e.Found, e.Expected = "the same key twice", "every key once"
		case len(rest) > 0 && (rest[0] == 'N' || rest[0] == 'I'):
			e.Found, e.Expected, e.Do = element(rest), "a finite number", "NaN and infinity are no JSON: leave out what is not known"
		}
		return e
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return &InputError{Found: "the end of the text inside a value", Expected: "a whole JSON value", Do: "the file is cut short: fetch it again"}
	}
	return &InputError{Found: "unreadable JSON", Err: err}
}

func found(e *json.SemanticError) string {
	if len(e.JSONValue) > 0 {
		return shorten(string(e.JSONValue))
	}
	switch e.JSONKind {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "a number"
}

func expected(e *json.SemanticError) string {
	if e.GoType == nil {
		return "a value of another type"
	}
	switch name := e.GoType.String(); {
	case strings.HasSuffix(name, "int64"):
		return "a whole number"
	case strings.HasSuffix(name, "string"):
		return "a string"
	case strings.HasPrefix(name, "[]"):
		return "an array"
	}
	return "an object"
}

// jsonKey writes a JSON pointer the way people write paths: /requests/4/in is requests[4].in.
func jsonKey(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		if _, err := strconv.ParseUint(token, 10, 32); err == nil {
			fmt.Fprintf(&b, "[%s]", token)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(shorten(token))
	}
	return b.String()
}

// shorten keeps messages readable whatever the input holds.
func shorten(s string) string {
	const most = 60
	if len(s) > most {
		s = s[:most] + "..."
	}
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return strconv.QuoteToASCII(s)
		}
	}
	return s
}

// withinDepth says whether arrays and objects nest at most limit deep.
func withinDepth(b []byte, limit int64) bool {
	depth := int64(0)
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '[', '{':
			if depth++; depth > limit {
				return false
			}
		case ']', '}':
			depth--
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		}
	}
	return true
}
