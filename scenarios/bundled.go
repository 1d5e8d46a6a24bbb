package scenarios

import (
	"embed"
	"errors"
	"io/fs"
	"strings"
)

//go:embed bundled/*.yaml
var bundled embed.FS

// ErrNotBundled is returned by Source for a name that no bundled scenario has.
var ErrNotBundled = errors.New("no bundled scenario of that name")

// Bundled is the names of the bundled scenarios, sorted.
func Bundled() []string {
	files, _ := fs.Glob(bundled, "bundled/*.yaml") // the pattern is well-formed
	for i, f := range files {
		files[i] = strings.TrimSuffix(strings.TrimPrefix(f, "bundled/"), ".yaml")
	}
	return files
}

// Source is the text of a bundled scenario, comments included. Parse(name, text) decodes it.
func Source(name string) ([]byte, error) {
	data, err := bundled.ReadFile("bundled/" + name + ".yaml")
	if err != nil {
		return nil, ErrNotBundled
	}
	return data, nil
}

// Title is the first comment line of a bundled scenario.
func Title(source []byte) string {
	line, _, _ := strings.Cut(string(source), "\n")
	return strings.TrimSpace(strings.TrimPrefix(line, "#"))
}
