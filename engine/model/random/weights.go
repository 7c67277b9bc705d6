package random

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"strings"

	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/internal/splitmix"
)

// chunkValues is the number of values generated per write: 64 KiB.
const chunkValues = 32 << 10

// writeWeights writes the safetensors file of a generated model, tensor by tensor in the order
// of [model.Config.Weights], all in bf16.
func writeWeights(out io.Writer, c *model.Config, seed uint64) error {
	weights := c.Weights()
	if _, err := out.Write(weightsHeader(weights)); err != nil {
		return err
	}
	buf := make([]byte, 0, 2*chunkValues)
	for _, w := range weights {
		values := newStream(seed, w)
		n := uint64(w.Values())
		for i := uint64(0); i < n; {
			buf = buf[:0]
			for end := min(n, i+chunkValues); i < end; i++ {
				buf = binary.LittleEndian.AppendUint16(buf, values.at(i))
			}
			if _, err := out.Write(buf); err != nil {
				return err
			}
		}
	}
	return nil
}

// weightsHeader returns the length and the JSON, padded with spaces so that the data begin at a
// multiple of 8, like the format's own writer.
func weightsHeader(weights []model.Weight) []byte {
	var b bytes.Buffer
	b.WriteString(`{"__metadata__":{"format":"pt"}`) // transformers requires it
	offset := 0
	for _, w := range weights {
		name, err := json.Marshal(w.Name)
		if err != nil {
			panic(fmt.Sprintf("random: tensor name %q: %v", w.Name, err)) // the generated names are ASCII
		}
		shape := strings.ReplaceAll(fmt.Sprint(w.Shape), " ", ",")
		end := offset + 2*w.Values()
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
func moments(w model.Weight) (mean, std float64) {
	switch {
	case len(w.Shape) == 2:
		return 0, 1 / math.Sqrt(float64(w.Shape[1]))
	case strings.HasSuffix(w.Name, ".bias"):
		return 0, 0.25
	}
	return 1, 0.1
}

// Generated values are the same bits on every machine: they come from a counter-based hash,
// integer sums, and IEEE multiplications that are rounded one by one (the explicit conversions
// keep compilers from fusing them with an addition).

// stream generates the values of one tensor by index.
type stream struct {
	key  uint64
	mean float64
	unit float64 // one step of the sum of four uniforms, in units of the value
}

// newStream returns the values of a weight of the model with this seed.
func newStream(seed uint64, w model.Weight) *stream {
	mean, std := moments(w)
	return streamOf(seed, w.Name, mean, std)
}

// streamOf returns a stream keyed by seed and tensor name. Values have the given mean and
// standard deviation.
func streamOf(seed uint64, name string, mean, std float64) *stream {
	// A uniform in (-1/2, 1/2) has variance 1/12, the sum of four 1/3, so sqrt(3) times the sum
	// has variance 1. A step of the sum is 2^-16.
	root, hash := math.Sqrt(3), fnv.New64a()
	hash.Write([]byte(name))
	return &stream{
		key:  splitmix.Mix(splitmix.Mix(seed+splitmix.Golden) ^ hash.Sum64()),
		mean: mean,
		unit: float64(float64(root*std) * (1.0 / (1 << 16))),
	}
}

// at returns value i of the tensor, rounded to bf16. The value is the sum of four uniform numbers,
// scaled: the 16-bit quarters of one splitmix64 output, each at the middle of its interval of
// 2^-16.
func (s *stream) at(i uint64) uint16 {
	z := splitmix.Mix(s.key + (i+1)*splitmix.Golden)
	sum := int64(z&0xffff) + int64(z>>16&0xffff) + int64(z>>32&0xffff) + int64(z>>48) + 2 - 2<<16
	v := float64(float64(sum) * s.unit)
	return f32.ToBF16(float32(float64(s.mean + v)))
}
