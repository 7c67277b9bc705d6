//go:build race

package bench

// underRace reports whether the race detector is on. It makes the kernels some fifty
// times slower, and races show at small sizes too, so tests shrink their loads.
const underRace = true
