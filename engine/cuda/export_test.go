package cuda

// RaceDetector tells the tests outside of the package.
const RaceDetector = raceDetector

// Wait waits for the goroutines of a backend that was closed.
func Wait(b *Backend) { <-b.done }
