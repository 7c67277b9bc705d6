package mempool

import (
	"fmt"
	"math"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Storage is a piece of memory that views look at: an address and a size, in a tier. It
// holds no memory; who made it keeps that alive.
type Storage struct {
	Tier  kv.Tier
	Addr  uint64
	Bytes int64
}

// View is a row-major tensor in a piece of memory: elements of a type, a shape, and where
// each element lies. Views are values and share the storage; nothing is copied.
type View struct {
	storage Storage
	dtype   kv.DType
	shape   []int
	strides []int64 // bytes
	offset  int64   // bytes, of the element with all indices 0
}

// NewView looks at the beginning of a storage as a tensor. It fails if the storage is too
// small, a side is negative, or the type has no elements of their own (q8_0).
func NewView(s Storage, d kv.DType, shape ...int) (View, error) {
	if d.Size(32) != 32*d.Bytes() {
		return View{}, fmt.Errorf("mempool: a view of %s: its elements stand in blocks", d)
	}
	v := View{storage: s, dtype: d, shape: slices.Clone(shape), strides: make([]int64, len(shape))}
	stride := int64(d.Bytes())
	for i := len(shape) - 1; i >= 0; i-- {
		v.strides[i] = stride
		if shape[i] < 0 || shape[i] > 0 && stride > math.MaxInt64/int64(shape[i]) {
			return View{}, fmt.Errorf("mempool: a view of shape %v: side %d is negative or too long", shape, i)
		}
		stride *= int64(max(shape[i], 1))
	}
	if n := v.Bytes(); n > s.Bytes {
		return View{}, fmt.Errorf("mempool: shape %v of %s needs %d bytes, the storage has %d", shape, d, n, s.Bytes)
	}
	return v, nil
}

// Storage is what v looks at.
func (v View) Storage() Storage { return v.storage }

// DType is the type of the elements.
func (v View) DType() kv.DType { return v.dtype }

// Shape is the sides, outermost first; a copy.
func (v View) Shape() []int { return slices.Clone(v.shape) }

// Strides are the distances in bytes of neighbours along each side; a copy.
func (v View) Strides() []int64 { return slices.Clone(v.strides) }

// Elements is the number of elements.
func (v View) Elements() int64 {
	n := int64(1)
	for _, s := range v.shape {
		n *= int64(s)
	}
	return n
}

// Bytes is the size of all elements.
func (v View) Bytes() int64 { return v.Elements() * int64(v.dtype.Bytes()) }

// Contiguous reports whether the elements follow on each other without gaps.
func (v View) Contiguous() bool {
	stride := int64(v.dtype.Bytes())
	for i := len(v.shape) - 1; i >= 0; i-- {
		if v.shape[i] > 1 && v.strides[i] != stride {
			return v.Elements() == 0
		}
		stride *= int64(v.shape[i])
	}
	return true
}

// Slice is v with indices [lo, hi) of one side.
func (v View) Slice(side, lo, hi int) (View, error) {
	if side < 0 || side >= len(v.shape) || lo < 0 || lo > hi || hi > v.shape[side] {
		return View{}, fmt.Errorf("mempool: slice [%d, %d) of side %d in shape %v", lo, hi, side, v.shape)
	}
	v.shape = slices.Clone(v.shape)
	v.shape[side] = hi - lo
	v.offset += int64(lo) * v.strides[side]
	return v, nil
}

// Offset is where an element begins, in bytes from the storage's beginning.
func (v View) Offset(index ...int) (int64, error) {
	if len(index) != len(v.shape) {
		return 0, fmt.Errorf("mempool: %d indices for shape %v", len(index), v.shape)
	}
	at := v.offset
	for i, x := range index {
		if x < 0 || x >= v.shape[i] {
			return 0, fmt.Errorf("mempool: index %v in shape %v", index, v.shape)
		}
		at += int64(x) * v.strides[i]
	}
	return at, nil
}

// Address is the address of an element.
func (v View) Address(index ...int) (uint64, error) {
	at, err := v.Offset(index...)
	return v.storage.Addr + uint64(at), err
}

// Copy is a run of bytes to be copied from one storage to another, by offsets.
type Copy struct {
	To, From, Bytes int64
}

// AppendCopies appends the copies that give the elements of from to those of to: host to
// device, device to host, or within one. Shapes and types must be equal. Runs are as long
// as both sides are without gaps, so views of whole pages are one copy.
func AppendCopies(dst []Copy, to, from View) ([]Copy, error) {
	if to.dtype != from.dtype || !slices.Equal(to.shape, from.shape) {
		return dst, fmt.Errorf("mempool: a copy of %v %s to %v %s", from.shape, from.dtype, to.shape, to.dtype)
	}
	if from.Elements() == 0 {
		return dst, nil
	}
	run := int64(from.dtype.Bytes())
	outer := len(from.shape)
	for outer > 0 && (from.shape[outer-1] == 1 || from.strides[outer-1] == run && to.strides[outer-1] == run) {
		outer--
		run *= int64(from.shape[outer])
	}
	index := make([]int, outer)
	for {
		c := Copy{To: to.offset, From: from.offset, Bytes: run}
		for i, x := range index {
			c.To += int64(x) * to.strides[i]
			c.From += int64(x) * from.strides[i]
		}
		if last := len(dst) - 1; last >= 0 && dst[last].To+dst[last].Bytes == c.To && dst[last].From+dst[last].Bytes == c.From {
			dst[last].Bytes += run
		} else {
			dst = append(dst, c)
		}
		i := outer - 1
		for ; i >= 0; i-- {
			if index[i]++; index[i] < from.shape[i] {
				break
			}
			index[i] = 0
		}
		if i < 0 {
			return dst, nil
		}
	}
}

// Transfer makes copies between two pieces of host memory, which are those of the
// storages. A copy beyond either of them panics.
func Transfer(to, from []byte, copies []Copy) {
	for _, c := range copies {
		copy(to[c.To:c.To+c.Bytes], from[c.From:c.From+c.Bytes])
	}
}
