package cuda

// RaceDetector exports raceDetector to external tests.
const RaceDetector = raceDetector

// OpenGolden exports openGolden to external tests.
var OpenGolden = openGolden

// Wait waits for the goroutines of a closed backend.
func Wait(b *Backend) { <-b.done }

// Uploaded returns the bytes that the last step uploaded. No batch may be in flight.
func Uploaded(b *Backend) int { return b.dev.uploaded }
