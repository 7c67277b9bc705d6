package cuda

// RaceDetector tells the tests outside of the package.
const RaceDetector = raceDetector

// OpenGolden tells the tests outside of the package too.
var OpenGolden = openGolden

// Wait waits for the goroutines of a backend that was closed.
func Wait(b *Backend) { <-b.done }

// Uploaded is how many bytes the last step sent to the device; nothing may be in flight.
func Uploaded(b *Backend) int { return b.dev.uploaded }
