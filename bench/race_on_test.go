//go:build race

package bench

// underRace: the detector makes the kernels some fifty times slower, and what it
// looks for shows at any size.
const underRace = true
