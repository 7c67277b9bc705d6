package events

import (
	"bytes"

	"github.com/coppice-llm/coppice/kv"
)

// media are the names of the tiers on the wire: vLLM's and SGLang's GPU, CPU and
// DISK, and one of our own for page-locked memory.
var media = [...]string{kv.TierDevice: "GPU", kv.TierPinned: "CPU_PINNED", kv.TierHost: "CPU", kv.TierDisk: "DISK"}

var mediaBytes = func() (b [len(media)][]byte) {
	for t, name := range media {
		b[t] = []byte(name)
	}
	return b
}()

// tierOf reads a medium in either case. None is the device, as old publishers
// knew no other.
func tierOf(medium []byte) (kv.Tier, bool) {
	if medium == nil {
		return kv.TierDevice, true
	}
	for t := range mediaBytes {
		if bytes.EqualFold(medium, mediaBytes[t]) {
			return kv.Tier(t), true
		}
	}
	return 0, false
}
