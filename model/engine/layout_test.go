package engine

import (
	"testing"
	"unsafe"
)

// TestRequestFillsLines holds what every step looks at of a request to one line of 64 bytes, and a request to two.
func TestRequestFillsLines(t *testing.T) {
	var r request
	if at := unsafe.Offsetof(r.id); at != 64 {
		t.Errorf("the part that steps look at has %d bytes", at)
	}
	if n := unsafe.Sizeof(r); n != 128 {
		t.Errorf("a request has %d bytes", n)
	}
}
