//go:build !amd64

package prefetch

import "unsafe"

// Works tells whether this build can ask for memory; elsewhere the calls do nothing.
const Works = false

func lines(unsafe.Pointer, uintptr) {}

func heads(unsafe.Pointer, uintptr, uintptr) {}
