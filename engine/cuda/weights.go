package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/internal/f32"
	"github.com/coppice-llm/coppice/kv"
)

// weights are a model's weights on the device. Matrices of the same input are stacked. Vectors (norms
// and biases) are f32: they take few bytes, and rounding them to bf16 would cost as much accuracy as
// rounding the matrices does. The embedding keeps the file's type if that is f16 or f32.
type weights struct {
	embed, head  matrix
	embedType    int32 // of tableTypes
	norm         cudrv.Ptr
	layers       []layer
	cosine, sine cudrv.Ptr // [position][head dim/2], f32
	widest       int       // bytes of the largest quantised matrix of a layer in bf16
}

// Types of an embedding table, as in layers.cu.
var tableTypes = map[kv.DType]int32{kv.BF16: 0, kv.F16: 1, kv.F32: 2}

// layer holds the weights of one layer; weights that the model lacks are 0.
type layer struct {
	qkv, o, gateUp, down                   matrix
	attnNorm, qkvBias, qNorm, kNorm, oBias cudrv.Ptr
	ffnNorm, gateUpBias, downBias          cudrv.Ptr
}

// supported returns an error that lists the features of a model that the kernels lack.
func supported(c *model.Config) error {
	var errs []error
	if !slices.Contains(kernels.HeadDims(), c.HeadDim) {
		errs = append(errs, fmt.Errorf("cuda: heads of %d, the kernels have %v", c.HeadDim, kernels.HeadDims()))
	}
	if c.Hidden%2 != 0 {
		errs = append(errs, fmt.Errorf("cuda: hidden size %d, want an even one", c.Hidden))
	}
	if c.Heads/c.KVHeads > 16 {
		errs = append(errs, fmt.Errorf("cuda: %d query heads for a KV head, at most 16", c.Heads/c.KVHeads))
	}
	if c.Vocab > kernels.MaxVocab {
		errs = append(errs, fmt.Errorf("cuda: a vocabulary of %d tokens, at most %d", c.Vocab, kernels.MaxVocab))
	}
	return errors.Join(errs...)
}

// weightPlan has the needs of a model's weights on the device.
type weightPlan struct {
	bytes  int             // of memory
	forms  []*kernels.Form // of all matrices that stay quantised
	widest int             // bytes of the largest of a layer in bf16
}

// uploader copies weights through one pinned buffer.
type uploader struct {
	*device
	plan        weightPlan
	staging     []byte    // nil: bytes are counted, nothing is allocated or copied
	wide        []float32 // scratch of encode
	done, total int       // bytes copied and to copy, for progress
	err         error
}

const (
	stagingBytes = 4 << 20
	allocUnit    = 512 // the driver rounds an allocation up to at least this
)

// planWeights returns what upload allocates.
func (d *device) planWeights(m *model.Model, positions int) weightPlan {
	u := &uploader{device: d}
	u.all(m, positions)
	d.w = weights{}
	return u.plan
}

// upload copies the model's weights, total bytes, to the device.
func (d *device) upload(m *model.Model, positions, total int) error {
	staging, err := d.ctx.HostAlloc(stagingBytes)
	if err != nil {
		return err
	}
	u := &uploader{device: d, staging: staging, total: total}
	u.all(m, positions)
	return errors.Join(u.err, d.ctx.HostFree(staging))
}

func (u *uploader) all(m *model.Model, positions int) {
	c := m.Config()
	w := &u.w
	if u.form(c.Hidden, m.Embed()) != nil {
		w.embed = u.matrix(c.Hidden, m.Embed())
	} else {
		table := kv.BF16
		if e := m.Embed(); !e.Quantized() && !u.cfg.MakeWeights {
			table = e.DType
		}
		w.embed, w.embedType = matrix{{at: u.stack(table, c.Hidden, m.Embed()), rows: c.Vocab}}, tableTypes[table]
	}
	w.head = w.embed
	if !c.TiedHead || w.embedType != tableTypes[kv.BF16] {
		w.head = u.matrix(c.Hidden, m.Head())
	}
	u.plan.widest = 0
	w.norm = u.vectors(m.Norm())
	heads, ffn := c.Heads*c.HeadDim, kernels.Padded(c.FFN)
	for i := range m.Layers() {
		l := &m.Layers()[i]
		w.layers = append(w.layers, layer{
			attnNorm: u.vectors(l.AttnNorm), ffnNorm: u.vectors(l.FFNNorm),
			qkv: u.matrix(c.Hidden, l.Q, l.K, l.V), o: u.matrix(heads, l.O),
			gateUp: u.gateUp(c.Hidden, ffn, l.Gate, l.Up), down: u.matrix(c.FFN, l.Down),
			qNorm: u.vectors(l.QNorm), kNorm: u.vectors(l.KNorm),
			qkvBias: u.vectors(l.QBias, l.KBias, l.VBias), oBias: u.vectors(l.OBias),
			gateUpBias: u.interleaved(kv.F32, 1, 1, ffn, l.GateBias, l.UpBias), downBias: u.vectors(l.DownBias),
		})
	}
	w.cosine, w.sine = u.rope(c, positions)
}

// stack uploads tensors, matrices of the given number of columns, one above the other, as elements
// of type as. It pads the rows and returns the device address.
func (u *uploader) stack(as kv.DType, columns int, tensors ...*model.Tensor) cudrv.Ptr {
	stride, total := kernels.Padded(columns), 0
	for _, t := range tensors {
		total += t.Len() / columns
	}
	p := u.room(as.Size(total * stride))
	if u.made(p, 2*total*stride, "make_weights", total*stride/4) { // rows are multiples of 32
		return p
	}
	to := p
	for _, t := range tensors {
		if stride == columns {
			u.put(to, as, t, t.Len(), t.Len())
		} else {
			u.put(to, as, t, columns, stride)
		}
		to += cudrv.Ptr(as.Size(t.Len() / columns * stride))
	}
	return p
}

// interleaved uploads gate and up, two matrices of the given number of columns, as one, in which
// four rows of gate and four of up alternate: the product expects gates and values in that order.
// Each matrix is padded with zeros to rows rows of stride elements. It returns 0 if gate is nil.
func (u *uploader) interleaved(as kv.DType, columns, stride, rows int, gate, up *model.Tensor) cudrv.Ptr {
	if gate == nil {
		return 0
	}
	p := u.room(as.Size(2 * rows * stride))
	if u.staging == nil || stride > 1 && u.made(p, 4*rows*stride, "make_weights", rows*stride/2) {
		return p
	}
	turn := as.Size(8 * stride) // bytes of four rows of each
	most := stagingBytes / turn
	for lo := 0; lo < rows/4 && u.err == nil; lo += most {
		n := min(most, rows/4-lo)
		clear(u.staging[:n*turn])
		for i := range 8 * n {
			t, row := gate, 4*(lo+i/8)+i%4
			if i%8 >= 4 {
				t = up
			}
			if row < t.Len()/columns {
				u.encode(u.staging[as.Size(i*stride):], as, t, row*columns, (row+1)*columns)
			}
		}
		u.copy(p+cudrv.Ptr(lo*turn), n*turn)
	}
	return p
}

// vectors uploads tensors in f32, one after another. It returns 0 if they are nil.
func (u *uploader) vectors(tensors ...*model.Tensor) cudrv.Ptr {
	if tensors[0] == nil {
		return 0
	}
	total := 0
	for _, t := range tensors {
		total += t.Len()
	}
	p := u.room(4 * total)
	to := p
	for _, t := range tensors {
		u.put(to, kv.F32, t, t.Len(), t.Len())
		to += cudrv.Ptr(4 * t.Len())
	}
	return p
}

// made reports whether Config.MakeWeights is set. If so, it fills the matrix of bytes bytes at p, including
// padding, with random values, by a kernel whose threads write n parts of it, unless the uploader only
// counts bytes.
func (u *uploader) made(p cudrv.Ptr, bytes int, kernel string, n int) bool {
	if !u.cfg.MakeWeights {
		return false
	}
	if u.staging == nil {
		return true
	}
	if u.done += bytes; u.cfg.Progress != nil {
		u.cfg.Progress(u.done, u.total)
	}
	if u.err == nil {
		u.err = u.ctx.Launch(u.run[kernel], cudrv.Launch{Grid: [3]int{blocks(n, 256), 1, 1}, Block: [3]int{256, 1, 1}, Stream: u.stream,
			Args: cudrv.Args(p, uint64(n), uint64(u.plan.bytes))})
	}
	return true
}

// rope uploads tables of cosines and sines for positions [0, positions), with the values of the other
// backends.
func (u *uploader) rope(c *model.Config, positions int) (cosine, sine cudrv.Ptr) {
	n := positions * c.HeadDim / 2
	cosine, sine = u.room(4*n), u.room(4*n)
	if u.staging == nil {
		return 0, 0
	}
	cos, sin := c.RopeTables(positions)
	for i, to := range []cudrv.Ptr{cosine, sine} {
		data, _ := binary.Append(nil, binary.LittleEndian, [][]float32{cos, sin}[i]) // can't fail for numbers
		u.put(to, kv.F32, &model.Tensor{DType: kv.F32, Data: data}, n, n)
	}
	return cosine, sine
}

// room allocates n bytes of zeroed device memory. If the uploader only counts bytes, it returns 0.
func (u *uploader) room(n int) cudrv.Ptr {
	u.plan.bytes += (n + allocUnit - 1) / allocUnit * allocUnit
	if u.err != nil || u.staging == nil {
		return 0
	}
	p, err := u.alloc(n)
	if err == nil {
		err = u.ctx.Fill(u.stream, p, 0, n)
	}
	u.err = err
	return p
}

// put uploads tensor t to dst as elements of type as. It takes t as rows of n elements; on the
// device the rows begin stride elements apart.
func (u *uploader) put(dst cudrv.Ptr, as kv.DType, t *model.Tensor, n, stride int) {
	if u.staging == nil {
		return
	}
	most := stagingBytes / as.Bytes()
	for row := range t.Len() / n {
		for lo := 0; lo < n && u.err == nil; lo += most {
			m := min(most, n-lo)
			u.encode(u.staging, as, t, row*n+lo, row*n+lo+m)
			u.copy(dst+cudrv.Ptr(as.Size(row*stride+lo)), as.Size(m))
		}
	}
}

// encode writes elements [lo, hi) of tensor t to dst as type as: unchanged if the file has them in
// that type, else as f32 or rounded to bf16.
func (u *uploader) encode(dst []byte, as kv.DType, t *model.Tensor, lo, hi int) {
	if as == t.DType && !t.Quantized() {
		copy(dst, t.Data[as.Size(lo):as.Size(hi)])
		return
	}
	if u.wide == nil {
		u.wide = make([]float32, stagingBytes/2)
	}
	t.Widen(u.wide, lo, hi)
	for i, x := range u.wide[:hi-lo] {
		if as == kv.F32 {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
		} else {
			binary.LittleEndian.PutUint16(dst[2*i:], f32.ToBF16(x))
		}
	}
}

// copy copies the first n bytes of the staging buffer to dst, and waits.
func (u *uploader) copy(dst cudrv.Ptr, n int) {
	if u.err == nil {
		u.err = errors.Join(u.ctx.CopyIn(u.stream, dst, u.staging[:n]), u.ctx.SyncStream(u.stream))
	}
	if u.done += n; u.cfg.Progress != nil {
		u.cfg.Progress(u.done, u.total)
	}
}
