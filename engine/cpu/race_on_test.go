//go:build race

package cpu

// underRace is set in builds with the race detector. It makes the portable path some ten times
// slower, and races show on any path, so tests skip work on it.
const underRace = true
