//go:build race

package residency

const raceEnabled = true
