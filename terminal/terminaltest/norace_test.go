//go:build !race

package terminaltest

const raceEnabled = false
