package cuda

import "flag"

// RaceDetector exports raceDetector to external tests.
const RaceDetector = raceDetector

// OpenGolden exports openGolden to external tests.
var OpenGolden = openGolden

// Wait waits for the goroutines of a closed backend.
func Wait(b *Backend) { <-b.done }

// Uploaded returns the bytes that the last step uploaded. No batch may be in flight.
func Uploaded(b *Backend) int { return b.dev.uploaded }

// LimitStates bounds the buffer of split states to n bytes, unless a token needs more or n is 0.
func LimitStates(c *Config, n int) { c.statesMost = n }

// AllShapes is the flag -shapes, which TestGolden and TestConformanceOfShapes have in common.
var AllShapes = flag.Bool("shapes", false, "run the checks of kernels on models of all architectures and head sizes, the whole suite without graphs, and all golden prompts")
