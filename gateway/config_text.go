package gateway

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

func joined(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// keysOf is the keys of a section, in order.
func keysOf(t reflect.Type) []string {
	keys := make([]string, t.NumField())
	for i := range keys {
		keys[i] = t.Field(i).Tag.Get("yaml")
	}
	return keys
}

func parseNumber(text string) (float64, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) || strings.ContainsAny(text, "_xXpP") {
		return 0, fmt.Errorf("no number: %q", text)
	}
	return x, nil
}

// wanted describes the values of a key.
func wanted(kind reflect.Kind, f reflect.StructField) string {
	switch kind {
	case reflect.Struct:
		return "a mapping of keys"
	case reflect.Slice:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		if enum := f.Tag.Get("enum"); enum != "" {
			return "one of " + strings.ReplaceAll(enum, ",", ", ")
		}
		return "text"
	}
	what := "a number"
	if kind == reflect.Int64 {
		what = "an integer"
	}
	return fmt.Sprintf("%s from %s to %s%s", what, f.Tag.Get("min"), f.Tag.Get("max"), unitOf(f))
}

func unitOf(f reflect.StructField) string {
	if u := f.Tag.Get("unit"); u != "" {
		return " (" + u + ")"
	}
	return ""
}

// Reference is the table of all keys but those of the policy, in Markdown.
func Reference() string {
	var b strings.Builder
	b.WriteString("| key | values | default | meaning |\n| --- | --- | --- | --- |\n")
	reference(&b, "", reflect.TypeFor[Config]())
	return b.String()
}

func reference(b *strings.Builder, path string, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		key := joined(path, f.Tag.Get("yaml"))
		def, ok := f.Tag.Lookup("def")
		switch {
		case f.Type.Kind() == reflect.Slice || f.Type.Kind() == reflect.Struct:
			def = ""
		case !ok:
			def = "required"
		case def == "":
			def = "empty"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", key, wanted(f.Type.Kind(), f), def, f.Tag.Get("doc"))
		switch {
		case key == "policy":
		case f.Type.Kind() == reflect.Struct:
			reference(b, key, f.Type)
		case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
			reference(b, key+"[]", f.Type.Elem())
		}
	}
}

// seconds as a duration.
func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }
