//go:build race

package cpu

// underRace: the race detector makes the portable path some ten times slower, and
// what it looks for shows on any path.
const underRace = true
