package golden

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// storesOnly is an ev field without its evictions, and their number.
func storesOnly(raw json.RawMessage) (string, int, error) {
	var ev, kept [][]any
	if len(raw) == 0 {
		return "", 0, nil
	}
	if err := json.Unmarshal(raw, &ev); err != nil {
		return "", 0, fmt.Errorf("ev: %w", err)
	}
	for _, e := range ev {
		if len(e) > 0 && e[0] == "s" {
			kept = append(kept, e)
		}
	}
	if len(kept) == 0 {
		return "", len(ev), nil
	}
	return text(kept), len(ev) - len(kept), nil
}

// expected is the canonical text of a recorded field; numbers keep the digits of the shortest float that reads the
// same.
func expected(raw json.RawMessage, field string) (string, error) {
	if len(raw) == 0 {
		return "", nil
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return "", fmt.Errorf("%s: %w", field, err)
	}
	return string(canonical(nil, v)), nil
}

// text is the canonical form in which fields are compared and shown.
func text(v any) string { return string(canonical(nil, v)) }

// canonical appends v, what the replay made or what was decoded with json.Number, to b.
func canonical(b []byte, v any) []byte {
	switch x := v.(type) {
	case json.Number:
		f, err := x.Float64()
		if err != nil {
			return append(b, x...)
		}
		return strconv.AppendFloat(b, f, 'g', -1, 64)
	case float64:
		return strconv.AppendFloat(b, x, 'g', -1, 64)
	case int:
		return canonical(b, float64(x))
	case int32:
		return canonical(b, float64(x))
	case int64:
		return canonical(b, float64(x))
	case uint32:
		return canonical(b, float64(x))
	case string:
		return append(b, x...)
	case []any:
		return list(b, x)
	case []int:
		return list(b, x)
	case []int32:
		return list(b, x)
	case []int64:
		return list(b, x)
	case [][]int64:
		return list(b, x)
	case [][]any:
		return list(b, x)
	}
	return fmt.Append(b, v)
}

func list[T any](b []byte, x []T) []byte {
	b = append(b, '[')
	for i := range x {
		if i > 0 {
			b = append(b, ' ')
		}
		b = canonical(b, x[i])
	}
	return append(b, ']')
}

// withoutBlocks is a field off.load or off.store without its GPU blocks.
func withoutBlocks(raw json.RawMessage, field string) (string, error) {
	if len(raw) == 0 {
		return "", nil
	}
	var jobs [][]any
	if err := json.Unmarshal(raw, &jobs); err != nil {
		return "", fmt.Errorf("%s: %w", field, err)
	}
	at := 2
	if field == "off.load" {
		at = 3
	}
	for i := range jobs {
		if len(jobs[i]) != 4 {
			return "", fmt.Errorf("%s: a job has %d parts, expected 4", field, len(jobs[i]))
		}
		jobs[i][at] = []any{}
	}
	return text(jobs), nil
}
