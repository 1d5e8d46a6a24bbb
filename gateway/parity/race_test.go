//go:build race

package parity

// The race detector makes everything several times slower, engines that keep real time included.
const raced = true
