package returns

import "math"

// Kept is an estimate of how often what comes back is of use then, by the length of what was left: an agent whose history
// has grown too long replaces it by a summary, and comes back without use for what it left. Lengths are divided into
// 16 for each doubling, as the limit of a client is a single length. The zero value expects all to be of use.
type Kept struct {
	seen, used [keptBins]float32
	cost       [keptBins]uint16
}

// keptBins is the number of lengths that are told apart: up to 1<<24 tokens, and all above.
const keptBins = 24 * 16

// keptSeen is how firm the belief is that all is of use, in observations. After keptHalf observations of a length older
// ones count half.
const (
	keptSeen = 8.0
	keptHalf = 512
)

// Length returns the number of a length.
func Length(tokens int) uint16 {
	return uint16(min(max(16*math.Log2(float64(max(tokens, 1))), 0), keptBins-1))
}

// Came counts something of a length that came back, and whether it was of use.
func (k *Kept) Came(length uint16, used bool) {
	if k.seen[length] >= keptHalf {
		k.seen[length] /= 2
		k.used[length] /= 2
	}
	k.seen[length]++
	if used {
		k.used[length]++
	}
	share := (float64(k.used[length]) + keptSeen) / (float64(k.seen[length]) + keptSeen)
	k.cost[length] = uint16(math.Round(-Octave * math.Log2(share)))
}

// Cost returns the part of a worth that the chance of a return without use takes away.
func (k *Kept) Cost(length uint16) uint16 { return k.cost[length] }
