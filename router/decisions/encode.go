package decisions

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"

	"github.com/coppice-llm/coppice/kv"
)

// Limits of a recording.
const (
	maxBlocks     = 1 << 14 // of a prompt; later blocks are left out
	MaxCandidates = 32      // of a decision
	// maxKnown bounds the hashes that the Encoder remembers to have written. After that it writes prompts in full again. 2^20 take
	// about 40 MB.
	maxKnown = 1 << 20
)

// Encoder writes a recording. It is for one goroutine.
type Encoder struct {
	cipher  cipher.Block
	known   map[Hash]struct{}
	workers map[kv.Rank]int
}

// NewEncoder returns an Encoder that encrypts hashes under this key.
func NewEncoder(key [16]byte) *Encoder {
	c, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the key has a valid length
	}
	e := &Encoder{cipher: c}
	e.restart()
	return e
}

// restart makes the Encoder ready for a new recording, under the same key.
func (e *Encoder) restart() { e.known, e.workers = map[Hash]struct{}{}, map[kv.Rank]int{} }

// AppendHead appends the head of a new recording to dst.
func (e *Encoder) AppendHead(dst []byte, h Head) []byte {
	e.restart()
	h.Version = Version
	return line{Head: &h}.appendTo(dst)
}

// Worker returns the index of w in the recording. If w is new there, Worker appends its description to dst, which describe returns.
func (e *Encoder) Worker(dst []byte, w kv.Rank, describe func(kv.Rank) Worker) ([]byte, int) {
	at, ok := e.workers[w]
	if !ok {
		at = len(e.workers)
		e.workers[w] = at
		d := describe(w)
		dst = line{Worker: &d}.appendTo(dst)
	}
	return dst, at
}

// AppendDecision appends d to dst. hashes are the chained hashes of its prompt's blocks, session that of its session, 0 for none:
// AppendDecision sets the fields of d that have their encrypted form.
func (e *Encoder) AppendDecision(dst []byte, d *Decision, hashes []kv.BlockHash, session uint64) []byte {
	if d.Cut = len(hashes) > maxBlocks; d.Cut {
		hashes = hashes[:maxBlocks]
	}
	if session != 0 {
		d.Session = e.encrypt(session, 1)
	}
	d.After, d.Blocks = 0, d.Blocks[:0]
	if len(e.known)+len(hashes) > maxKnown {
		e.known = map[Hash]struct{}{}
	}
	for _, hash := range hashes {
		h := e.encrypt(uint64(hash), 0)
		if _, ok := e.known[h]; ok && len(d.Blocks) == 0 {
			d.After = h
			continue
		}
		e.known[h] = struct{}{}
		d.Blocks = append(d.Blocks, h)
	}
	return line{Decision: d}.appendTo(dst)
}

// encrypt returns half of a block of AES, which is a random function of hash and kind to a reader without the key. It is never 0.
func (e *Encoder) encrypt(hash uint64, kind byte) Hash {
	var in, out [aes.BlockSize]byte
	binary.LittleEndian.PutUint64(in[:], hash)
	in[8] = kind
	e.cipher.Encrypt(out[:], in[:])
	return max(1, Hash(binary.LittleEndian.Uint64(out[:])))
}
