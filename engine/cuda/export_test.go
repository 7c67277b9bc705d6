package cuda

// RaceDetector tells the tests outside of the package.
const RaceDetector = raceDetector
