//go:build !race

package parity

const raced = false
