package prefetch

import "unsafe"

// Works tells whether this build can ask for memory; elsewhere the calls do nothing.
const Works = true

// lines asks for the lines that the n bytes from p on are in; n is at least 1.
//
//go:noescape
func lines(p unsafe.Pointer, n uintptr)

// heads asks for the lines at n places, each stride bytes after the one before; n is at least 1.
//
//go:noescape
func heads(p unsafe.Pointer, n, stride uintptr)
