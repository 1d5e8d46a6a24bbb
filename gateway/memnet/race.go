//go:build race

package memnet

const raced = true
