// Package predict owns what the scheduler learns about its own work: how long steps take, and how
// long outputs get. It never decides by it: the scheduler asks what fits into a target time, and
// how many tokens an output has left. All figures come from the backend's Info and from steps and
// outputs that have ended, so a replay learns the same. The owner of the scheduler calls it.
package predict
