package events

import (
	"bytes"

	"github.com/coppice-llm/coppice/kv"
)

// media are the names of the tiers on the wire: GPU, CPU and DISK as in vLLM and SGLang,
// and two of our own.
var media = [kv.Tiers]string{kv.TierDevice: "GPU", kv.TierHost: "CPU", kv.TierDisk: "DISK", kv.TierShared: "SHARED", kv.TierObject: "OBJECT"}

// pinned is a former name on our wire for page-locked host memory.
var pinned = []byte("CPU_PINNED")

var mediaBytes = func() (b [len(media)][]byte) {
	for t, name := range media {
		b[t] = []byte(name)
	}
	return b
}()

// tierOf returns the tier with the given name on the wire; letter case does not matter. nil
// means the device, because old publishers know only that. The second result is false for an
// unknown name.
func tierOf(medium []byte) (kv.Tier, bool) {
	if medium == nil {
		return kv.TierDevice, true
	}
	for t := range mediaBytes {
		if bytes.EqualFold(medium, mediaBytes[t]) {
			return kv.Tier(t), true
		}
	}
	if bytes.EqualFold(medium, pinned) {
		return kv.TierHost, true
	}
	return 0, false
}
