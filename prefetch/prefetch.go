// Package prefetch asks the processor for memory that will be needed soon, so that it is on its way while other work is done.
// It changes nothing: asking for the wrong memory, or too late, costs time and nothing else.
package prefetch

import "unsafe"

// Value asks for the lines of memory that *p is in.
func Value[T any](p *T) { lines(unsafe.Pointer(p), unsafe.Sizeof(*p)) }

// Front asks for the lines that the first n bytes of *p are in; n is at least 1.
func Front[T any](p *T, n uintptr) { lines(unsafe.Pointer(p), n) }

// Slice asks for the lines that the elements of s are in.
func Slice[T any](s []T) {
	if len(s) > 0 {
		lines(unsafe.Pointer(unsafe.SliceData(s)), uintptr(len(s))*unsafe.Sizeof(s[0]))
	}
}

// Heads asks for the line that each element of s begins in.
func Heads[T any](s []T) {
	if len(s) > 0 {
		heads(unsafe.Pointer(unsafe.SliceData(s)), uintptr(len(s)), unsafe.Sizeof(s[0]))
	}
}
