package mempool

import (
	"fmt"
	"math"
	"slices"

	"github.com/coppice-llm/coppice/kv"
)

// Storage describes a piece of memory: address, size and tier. It does not own the
// memory; the code that made the Storage keeps the memory allocated.
type Storage struct {
	Tier  kv.Tier
	Addr  uint64
	Bytes int64
}

// View is a tensor in a piece of memory: element type, shape, strides and offset. Views
// are values and share the memory; creating or slicing a View copies no elements.
type View struct {
	storage Storage
	dtype   kv.DType
	shape   []int
	strides []int64 // bytes
	offset  int64   // bytes, of the element with all indices 0
}

// NewView returns a row-major tensor of elements d at the beginning of storage s. shape has
// its sides, outermost first. It fails if the storage is too small, a side is negative, or
// the type stores its elements in blocks (q8_0).
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
		// A side of 0 counts as 1 in the strides of the outer sides; no element uses them.
		stride *= int64(max(shape[i], 1))
	}
	if n := v.Bytes(); n > s.Bytes {
		return View{}, fmt.Errorf("mempool: shape %v of %s needs %d bytes, the storage has %d", shape, d, n, s.Bytes)
	}
	return v, nil
}

// Storage returns the memory of v.
func (v View) Storage() Storage { return v.storage }

// DType returns the type of the elements.
func (v View) DType() kv.DType { return v.dtype }

// Shape returns a copy of the sides, outermost first.
func (v View) Shape() []int { return slices.Clone(v.shape) }

// Strides returns a copy of the distances between neighbours along each side, in bytes.
// A new view of 2 by 3 f16 elements has strides 6 and 2.
func (v View) Strides() []int64 { return slices.Clone(v.strides) }

// Elements returns the number of elements.
func (v View) Elements() int64 {
	n := int64(1)
	for _, s := range v.shape {
		n *= int64(s)
	}
	return n
}

// Bytes returns the size of all elements.
func (v View) Bytes() int64 { return v.Elements() * int64(v.dtype.Bytes()) }

// Contiguous reports whether the elements follow each other without gaps.
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

// Slice returns v restricted to indices [lo, hi) of one side, counted from 0 for the
// outermost. It fails if the side or the indices are out of range.
func (v View) Slice(side, lo, hi int) (View, error) {
	if side < 0 || side >= len(v.shape) || lo < 0 || lo > hi || hi > v.shape[side] {
		return View{}, fmt.Errorf("mempool: slice [%d, %d) of side %d in shape %v", lo, hi, side, v.shape)
	}
	v.shape = slices.Clone(v.shape)
	v.shape[side] = hi - lo
	v.offset += int64(lo) * v.strides[side]
	return v, nil
}

// Offset returns the place of an element, in bytes from the storage's beginning. index has
// the element's index on each side. It fails if there is no such element.
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

// Address returns the address of an element. It fails as Offset does.
func (v View) Address(index ...int) (uint64, error) {
	at, err := v.Offset(index...)
	return v.storage.Addr + uint64(at), err
}

// Copy is a run of Bytes bytes to copy from offset From of one storage to offset To of
// another.
type Copy struct {
	To, From, Bytes int64
}

// AppendCopies returns dst with the copies appended that copy the elements of from to those of
// to. It fails if the shapes or types differ. A copy is as long as the elements have no gap in
// both views, so two contiguous views need one copy.
func AppendCopies(dst []Copy, to, from View) ([]Copy, error) {
	if to.dtype != from.dtype || !slices.Equal(to.shape, from.shape) {
		return dst, fmt.Errorf("mempool: a copy of %v %s to %v %s", from.shape, from.dtype, to.shape, to.dtype)
	}
	if from.Elements() == 0 {
		return dst, nil
	}
	// run is the number of bytes that are contiguous in both views: those of the innermost
	// sides without gaps. outer is the number of the other sides.
	run := int64(from.dtype.Bytes())
	outer := len(from.shape)
	for outer > 0 && (from.shape[outer-1] == 1 || from.strides[outer-1] == run && to.strides[outer-1] == run) {
		outer--
		run *= int64(from.shape[outer])
	}
	// index counts through the outer sides, the last one fastest. A copy that begins where
	// the previous copy ends, in both views, extends the previous copy.
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

// Transfer executes copies between two pieces of host memory. A copy beyond either of
// them panics.
func Transfer(to, from []byte, copies []Copy) {
	for _, c := range copies {
		copy(to[c.To:c.To+c.Bytes], from[c.From:c.From+c.Bytes])
	}
}
