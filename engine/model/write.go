package model

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
)

// chunkValues is the number of values generated per write: 64 KiB.
const chunkValues = 32 << 10

// writeWeights writes the safetensors file of a generated model, tensor by tensor in the order
// of slots, all in bf16.
func writeWeights(w io.Writer, c *Config, seed uint64) error {
	m := &Model{config: c, layers: make([]Layer, c.Layers)}
	slots := m.slots()
	if _, err := w.Write(weightsHeader(slots)); err != nil {
		return err
	}
	buf := make([]byte, 0, 2*chunkValues)
	for _, s := range slots {
		mean, std := moments(s)
		values := newStream(seed, s.name, mean, std)
		n := uint64(product(s.shape))
		for i := uint64(0); i < n; {
			buf = buf[:0]
			for end := min(n, i+chunkValues); i < end; i++ {
				buf = binary.LittleEndian.AppendUint16(buf, values.at(i))
			}
			if _, err := w.Write(buf); err != nil {
				return err
			}
		}
	}
	return nil
}

// weightsHeader returns the length and the JSON, padded with spaces so that the data begin at a
// multiple of 8, like the format's own writer.
func weightsHeader(slots []slot) []byte {
	var b bytes.Buffer
	b.WriteString(`{"__metadata__":{"format":"pt"}`) // transformers requires it
	offset := 0
	for _, s := range slots {
		name, err := json.Marshal(s.name)
		if err != nil {
			panic(fmt.Sprintf("model: tensor name %q: %v", s.name, err)) // the generated names are ASCII
		}
		shape := strings.ReplaceAll(fmt.Sprint(s.shape), " ", ",")
		end := offset + 2*product(s.shape)
		fmt.Fprintf(&b, `,%s:{"dtype":"BF16","shape":%s,"data_offsets":[%d,%d]}`, name, shape, offset, end)
		offset = end
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(b.Len())), b.Bytes()...)
}

// moments returns the mean and standard deviation of a generated weight. Matrices have
// deviation 1/sqrt(inputs), so that a normalised input gives outputs of variance one. Norms
// differ from 1, so that a missing norm is noticed. The embedding is small, as a tied head
// requires; the first norm undoes it, and the layers' contributions outweigh it, so that the
// next token does not merely repeat the last one. Biases are a quarter of the values that they
// are added to: enough for a missing bias to be noticed.
func moments(s slot) (mean, std float64) {
	switch {
	case len(s.shape) == 2:
		return 0, 1 / math.Sqrt(float64(s.shape[1]))
	case strings.HasSuffix(s.name, ".bias"):
		return 0, 0.25
	}
	return 1, 0.1
}

func product(shape []int) int {
	n := 1
	for _, s := range shape {
		n *= s
	}
	return n
}
