package traces

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func writeFile(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	write(t, path, text)
	return path
}

// wantInputError checks that the error is the user's to mend, names the file, and holds every part.
func wantInputError(t testing.TB, err error, file string, parts ...string) {
	t.Helper()
	var in *InputError
	if !errors.As(err, &in) {
		t.Errorf("got %v, want an InputError with %q", err, parts)
		return
	}
	for _, p := range append(parts, file) {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("got %q, want %q in it", err, p)
		}
	}
}

func gzipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, text)
	z.Close()
	return b.String()
}

const goodCall = `{"t":0,"type":"n","model":"m","in":130,"out":5,"api_time":1,"hash_ids":[1,2]}`

func kvDoc(calls ...string) string {
	return `{"id":"x","block_size":64,"hash_id_scope":"local","requests":[` + strings.Join(calls, ",") + `]}`
}

func TestBadInputOfKVCacheTester(t *testing.T) {
	change := func(from, to string) string { return kvDoc(goodCall, strings.Replace(goodCall, from, to, 1)) }
	for name, c := range map[string]struct {
		text  string
		parts []string
	}{
		"truncated gzip":     {gzipped(kvDoc(goodCall))[:60], []string{"truncated gzip"}},
		"cut text":           {kvDoc(goodCall)[:90], []string{"cut short"}},
		"NaN":                {change(`"t":0`, `"t":NaN`), []string{"requests[1].t", "NaN"}},
		"negative time":      {change(`"t":0`, `"t":-3.5`), []string{"requests[1].t", "-3.5 s", "at least 0"}},
		"huge time":          {change(`"t":0`, `"t":1e300`), []string{"requests[1].t", "1e300"}},
		"time as text":       {change(`"t":0`, `"t":"0"`), []string{"requests[1].t", `"0"`, "number of seconds"}},
		"negative length":    {change(`"in":130`, `"in":-130`), []string{"requests[1].in", "-130", "between 1 and"}},
		"no length":          {change(`"in":130,`, ``), []string{"requests[1].in", "nothing"}},
		"length as fraction": {change(`"in":130`, `"in":130.5`), []string{"requests[1].in", "130.5", "whole number"}},
		"negative output":    {change(`"out":5`, `"out":-5`), []string{"requests[1].out", "-5"}},
		"negative api_time":  {change(`"api_time":1`, `"api_time":-1`), []string{"requests[1].api_time", "-1 s"}},
		"ids out of order":   {change(`[1,2]`, `[2,1]`), []string{"requests[1].hash_ids[0]", "id 2 after no id", "after id 1"}},
		"id twice":           {change(`[1,2]`, `[1,1]`), []string{"requests[1].hash_ids[1]", "id 1 after id 1"}},
		"too few ids":        {change(`[1,2]`, `[1]`), []string{"requests[1].hash_ids", "1 ids", "2, one for each full block"}},
		"too many ids":       {change(`[1,2]`, `[1,2,3]`), []string{"requests[1].hash_ids", "3 ids"}},
		"fraction as id":     {change(`[1,2]`, `[1,2.0]`), []string{"requests[1].hash_ids", "2.0 at place 1"}},
		"negative id":        {change(`[1,2]`, `[1,-2]`), []string{"requests[1].hash_ids", "-2 at place 1"}},
		"unknown type":       {change(`"n"`, `"x"`), []string{"requests[1].type", "found x"}},
		"key twice":          {change(`"out":5`, `"out":5,"out":6`), []string{"twice"}},
		"other block size":   {strings.Replace(kvDoc(goodCall), "64", "16", 1), []string{"block_size", "16", "64"}},
		"no requests":        {kvDoc(), []string{"requests", "no requests"}},
		"nested subagent": {kvDoc(goodCall, `{"t":9,"type":"subagent","requests":[{"t":0,"type":"subagent"}]}`),
			[]string{"requests[1].requests[0]", "subagent inside"}},
		"negative duration": {kvDoc(goodCall, `{"t":9,"type":"subagent","duration_ms":-1,"requests":[]}`), []string{"requests[1].duration_ms"}},
		"deep":              {`{"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}", []string{"limit Depth"}},
		"not JSON":          {"hello", []string{"not JSON"}},
		"empty":             {"", []string{"end of the text"}},
	} {
		path := writeFile(t, "x.json", c.text)
		_, err := Open(path, "", Options{})
		t.Log(name, ":", err)
		wantInputError(t, err, path, c.parts...)
	}
}

func TestBadInputOfMooncake(t *testing.T) {
	good := `{"timestamp":5,"input_length":600,"output_length":5,"hash_ids":[1,2]}`
	change := func(from, to string) string { return good + "\n" + strings.Replace(good, from, to, 1) + "\n" }
	for name, c := range map[string]struct {
		text  string
		parts []string
	}{
		"truncated gzip":   {gzipped(good)[:40], []string{"truncated gzip"}},
		"cut line":         {good + "\n" + good[:40], []string{":2", "cut short"}},
		"NaN":              {change(`:5,`, `:NaN,`), []string{":2: timestamp", "NaN"}},
		"negative time":    {change(`:5,`, `:-5,`), []string{":2: timestamp", "-0.005 s"}},
		"time goes back":   {change(`:5,`, `:4,`), []string{":2: timestamp", "0.004 s after 0.005 s", "sort"}},
		"time as text":     {change(`:5,`, `:"5",`), []string{":2: timestamp", "number of milliseconds"}},
		"negative length":  {change(`600`, `-600`), []string{":2: input_length", "-600"}},
		"ids out of order": {change(`[1,2]`, `[2,1]`), []string{":2: hash_ids[0]", "id 2 after no id"}},
		"missing part id":  {change(`[1,2]`, `[1]`), []string{":2: hash_ids", "1 ids", "part block included"}},
		"some sessions":    {change(`"input`, `"session_id":"a","input`), []string{":2: session_id", "all rows or in none"}},
		"delay only":       {strings.Replace(good, `"timestamp":5`, `"session_id":"a","delay":5`, 1), []string{"timestamp", "first row of a session"}},
		"no lines":         {"\n\n", []string{"no lines"}},
	} {
		path := writeFile(t, "x.jsonl", c.text)
		_, err := Open(path, "", Options{})
		t.Log(name, ":", err)
		wantInputError(t, err, path, c.parts...)
		if _, err := OpenStats(path, "", Limits{}); err == nil {
			t.Errorf("%s: statistics of a bad file", name)
		}
	}
}

func TestBadPaths(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(dir, "", Options{})
	wantInputError(t, err, dir, "a folder without .json")
	_, err = Open(filepath.Join(dir, "no.json"), "", Options{})
	wantInputError(t, err, "no.json", "no such file")
	_, err = Open(dir, "mooncake", Options{})
	wantInputError(t, err, dir, "a folder", "a file")
	_, err = Open(dir, "nonsense", Options{})
	wantInputError(t, err, "", "nonsense", "kv-cache-tester, mooncake")
	unknown := writeFile(t, "x.bin", "hello")
	_, err = Open(unknown, "", Options{})
	wantInputError(t, err, unknown, "unknown format")
	write(t, filepath.Join(dir, "a.json"), kvDoc(goodCall))
	write(t, filepath.Join(dir, "b.json.gz"), gzipped(kvDoc(goodCall)))
	_, err = Open(dir, "", Options{})
	wantInputError(t, err, "b.json.gz", "a.json has too")
}

func TestLimits(t *testing.T) {
	other := strings.Replace(goodCall, `"t":0`, `"t":9`, 1)
	kv := writeFile(t, "x.json", kvDoc(goodCall, other))
	line := `{"timestamp":5,"input_length":600,"output_length":5,"hash_ids":[1,2]}` + "\n"
	mc := writeFile(t, "x.jsonl", line+line+line)
	for _, c := range []struct {
		path, part string
		limits     Limits
	}{
		{kv, "limit Document", Limits{Document: 100}}, {kv, "limit Rows", Limits{Rows: 1}},
		{kv, "limit TurnsPerSession", Limits{TurnsPerSession: 1}}, {kv, "between 1 and 64", Limits{BlocksPerTurn: 1}},
		{kv, "limit Depth", Limits{Depth: 2}}, {mc, "limit Line", Limits{Line: 20}}, {mc, "limit Rows", Limits{Rows: 2}},
		{mc, "limit TurnsPerSession", Limits{TurnsPerSession: 2}}, {mc, "limit Bytes", Limits{Bytes: 100}}, {kv, "limit Bytes", Limits{Bytes: 100}},
	} {
		_, err := Open(c.path, "", Options{Limits: c.limits})
		wantInputError(t, err, c.path, c.part)
		if strings.Contains(err.Error(), "raise the limit") { // no flag does
			t.Errorf("%v", err)
		}
	}
}

// A gigabyte in one line is refused after the limit, not read to its end.
func TestGigabyteLine(t *testing.T) {
	for _, name := range []string{"big.jsonl", "big.json"} {
		path := filepath.Join(t.TempDir(), name)
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(1 << 30); err != nil { // a sparse file of zero bytes
			t.Skip(err)
		}
		f.Close()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = Open(path, "", Options{})
		runtime.ReadMemStats(&after)
		wantInputError(t, err, path, "limit")
		if used := after.TotalAlloc - before.TotalAlloc; used > 128<<20 {
			t.Errorf("%s: %d bytes allocated", name, used)
		}
	}
}

func TestScanIntegers(t *testing.T) {
	for text, want := range map[string]string{
		"[]": "[] true", "[ ]": "[] true", "[1]": "[1] true", "[1,2 , 3]": "[1 2 3] true", "[9223372036854775807]": "[9223372036854775807] true",
		"[9223372036854775808]": "false", "[99999999999999999999]": "false", "[-1]": "false", "[1.5]": "false", "[1e3]": "false",
		"[null]": "false", "[[1]]": "false", `["1"]`: "false", "{}": "false", "null": "false",
	} {
		got, err := scanIntegers([]byte(text), nil)
		s := fmt.Sprint(got, err == nil)
		if err != nil {
			s = "false"
		}
		if s != want {
			t.Errorf("%s: got %s, want %s", text, s, want)
		}
	}
}

func TestParseTime(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "0.0": 0, "12.345": 12345000000, "-0.5": -500000000, "440281.797": 440281797000000,
		"1e-3": 1000000, "0.1234567891": 123456789, "100000000": 1e17} {
		if got, ok := parseTime(text, 1e9, 1e8); !ok || got != want {
			t.Errorf("%s: got %d, want %d", text, got, want)
		}
	}
	for _, text := range []string{"100000001", "1e9", "99999999999999999999"} {
		if got, ok := parseTime(text, 1e9, 1e8); ok {
			t.Errorf("%s: got %d, want a refusal", text, got)
		}
	}
}
