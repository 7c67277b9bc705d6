// Package splitmix owns the mixing function of SplitMix64, which makes equal pseudo-random bits on
// every machine. It keeps no state. Mix may be called from any goroutine.
//
//	h := splitmix.Mix(seed + splitmix.Golden)
package splitmix

// Golden is the increment of SplitMix64: 2^64 divided by the golden ratio.
const Golden = 0x9e3779b97f4a7c15

// Mix is the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014, with Stafford's variant 13
// of the constants): a bijection without fixed pattern.
func Mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
