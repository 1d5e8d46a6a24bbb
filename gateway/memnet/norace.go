//go:build !race

package memnet

const raced = false
