package schedtest

import (
	"fmt"

	"github.com/zeebo/xxh3"
)

// digest is a chain of XXH3-64: each link hashes the text of a plan, output or event together with
// the previous hash.
type digest struct {
	sum uint64
	buf []byte
}

// add adds a link for the values. They must hold no pointers, whose texts would be addresses.
func (d *digest) add(values ...any) {
	d.buf = fmt.Append(d.buf[:0], values...)
	d.sum = xxh3.HashSeed(d.buf, d.sum)
}
