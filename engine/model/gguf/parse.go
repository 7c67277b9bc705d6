package gguf

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// Errors about files; each states the offset. Package model gives them to its callers as its own.
var (
	// ErrFormat is wrapped by errors about files that are damaged or not GGUF.
	ErrFormat = errors.New("model: damaged file")
	// ErrUnsupported is wrapped by errors about valid files that this package can't read.
	ErrUnsupported = errors.New("model: unsupported model")
)

// Limits on the contents of a file. ggml has the first two.
const (
	maxAxes       = 4
	maxNameBytes  = 64 // of a tensor, one of them for C's zero
	maxKeyBytes   = 1<<16 - 1
	maxAlignment  = 1 << 20
	minTensor     = 8 + 4 + 8 + 4 + 8 // a table entry with an empty name and one axis
	minPair       = 8 + 4 + 1         // a metadata pair with an empty key
	alignmentKey  = "general.alignment"
	defaultAlign  = 32
	magic         = "GGUF"
	oldestVersion = 2
	newestVersion = 3
)

// File is a parsed GGUF file.
type File struct {
	Version int
	Meta    Meta
	Tensors []Tensor // in the order of the table
}

// Tensor is an entry of the table.
type Tensor struct {
	Name  string
	Type  Type
	Shape []int  // outermost first, the reverse of the file's order
	Data  []byte // a slice of the parsed bytes; rows are whole blocks
}

// Parse parses a whole file: header, metadata, tensor table and the ranges of the data. Errors
// wrap [ErrFormat] or [ErrUnsupported].
func Parse(data []byte) (*File, error) {
	r, f := &reader{data: data}, &File{}
	tensors, pairs := r.header(f)
	r.metadata(&f.Meta, pairs)
	alignment := r.alignment(&f.Meta)
	entries := r.table(tensors)
	f.Tensors = r.place(entries, alignment)
	if r.err != nil {
		return nil, r.err
	}
	return f, nil
}

// reader parses a file from front to back. It keeps its first error and reads nothing after it: all
// numbers are then 0, all bytes nil.
type reader struct {
	data []byte
	at   int
	err  error
}

// fail records an error of the given kind about the item at byte at, unless there is one already.
func (r *reader) fail(kind error, at int, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: at byte %d: %s", kind, at, fmt.Sprintf(format, args...))
	}
}

func (r *reader) left() int { return len(r.data) - r.at }

// take returns the next n bytes. what names them in the error if fewer are left.
func (r *reader) take(n uint64, what string) []byte {
	if r.err == nil && n > uint64(r.left()) {
		r.fail(ErrFormat, r.at, "%s has %d bytes, %d are left; the file is cut short", what, n, r.left())
	}
	if r.err != nil {
		return nil
	}
	b := r.data[r.at : r.at+int(n)]
	r.at += int(n)
	return b
}

func (r *reader) u32(what string) uint32 {
	if b := r.take(4, what); r.err == nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64(what string) uint64 {
	if b := r.take(8, what); r.err == nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// text returns a string, whose length precedes it in the file. what names it in the error if it
// has more than most bytes.
func (r *reader) text(what string, most uint64) []byte {
	n := r.u64(what)
	if n > most {
		r.fail(ErrFormat, r.at-8, "%s of %d bytes, at most %d are read", what, n, most)
	}
	return r.take(n, what)
}

// header parses the magic and the version, and returns the numbers of tensors and of metadata
// pairs.
func (r *reader) header(f *File) (tensors, pairs uint64) {
	if !bytes.HasPrefix(r.data, []byte(magic)) {
		r.fail(ErrFormat, 0, "it begins with %q, not with %q", r.data[:min(4, len(r.data))], magic)
		return 0, 0
	}
	r.at = len(magic)
	version := r.u32("the version")
	if version < oldestVersion || version > newestVersion {
		if v := bits.ReverseBytes32(version); v <= newestVersion {
			r.fail(ErrUnsupported, r.at-4, "big-endian, version %d; little-endian files are read", v)
		}
		r.fail(ErrUnsupported, r.at-4, "version %d; %d and %d are read", version, oldestVersion, newestVersion)
	}
	f.Version = int(version)
	return r.count("tensors", minTensor), r.count("metadata pairs", minPair)
}

// count parses a number of items, each of at least size bytes. It fails if that number of items
// does not fit into the rest of the file; what names the items in the error.
func (r *reader) count(what string, size int) uint64 {
	n := r.u64("the number of " + what)
	if most := uint64(r.left() / size); n > most {
		r.fail(ErrFormat, r.at-8, "%d %s, %d would fit the file; it is damaged or cut short, download it again", n, what, most)
		return 0
	}
	return n
}

// metadata parses n pairs of key and value.
func (r *reader) metadata(m *Meta, n uint64) {
	m.values = map[string]value{}
	for range n {
		start := r.at
		key := string(r.text("a metadata key", maxKeyBytes))
		if m.Has(key) {
			r.fail(ErrFormat, start, "metadata %q occurs twice", clip(key))
		}
		v := r.value(key)
		if r.err != nil {
			return
		}
		m.values[key] = v
		m.keys = append(m.keys, key)
	}
}

func (r *reader) kind(key string) Kind {
	k := r.u32("the type of metadata " + clip(key))
	if int(k) >= len(kindBytes) {
		r.fail(ErrFormat, r.at-4, "metadata %q has type %d, the last is %d", clip(key), k, len(kindBytes)-1)
		return 0
	}
	return Kind(k)
}

func (r *reader) value(key string) value {
	v := value{kind: r.kind(key)}
	what := "metadata " + clip(key)
	switch v.kind {
	case String:
		v.raw = r.text(what, uint64(r.left()))
	case Array:
		r.array(&v, key, what)
	default:
		v.raw = r.take(uint64(kindBytes[v.kind]), what)
	}
	return v
}

// array parses the elements of v. what names v in errors.
func (r *reader) array(v *value, key, what string) {
	v.elem = r.kind(key)
	size := kindBytes[v.elem]
	switch v.elem {
	case Array:
		r.fail(ErrUnsupported, r.at-4, "metadata %q is an array of arrays", clip(key))
		return
	case String:
		size = 8 // length of a string
	}
	n := r.count("elements of "+what, size)
	v.n = int(n)
	if v.elem != String {
		v.raw = r.take(n*uint64(size), what)
		return
	}
	from := r.at
	for i := uint64(0); i < n && r.err == nil; i++ {
		r.text("a text of "+what, uint64(r.left()))
	}
	v.raw = r.data[from:r.at]
}

// alignment returns the alignment of the tensors' data.
func (r *reader) alignment(m *Meta) uint64 {
	if !m.Has(alignmentKey) {
		return defaultAlign
	}
	a, ok := m.Uint(alignmentKey)
	if !ok || a == 0 || a > maxAlignment || a&(a-1) != 0 {
		r.fail(ErrFormat, r.at, "%s is %s, want a power of two up to %d", alignmentKey, m.Text(alignmentKey), maxAlignment)
		return defaultAlign
	}
	return a
}

// entry is a tensor of the table with its offset.
type entry struct {
	Tensor
	offset, bytes uint64
	at            int // offset of the entry in the file
	order         int
}

// table parses n entries of the tensor table.
func (r *reader) table(n uint64) []entry {
	var entries []entry
	seen := map[string]bool{}
	for i := range n {
		e := entry{at: r.at, order: int(i)}
		e.Name = string(r.text("a tensor's name", maxNameBytes-1))
		if seen[e.Name] {
			r.fail(ErrFormat, e.at, "tensor %q occurs twice", clip(e.Name))
		}
		seen[e.Name] = true
		r.shape(&e)
		e.offset = r.u64("the offset of tensor " + clip(e.Name))
		if r.err != nil {
			return nil
		}
		entries = append(entries, e)
	}
	return entries
}

// shape parses the axes and the type of e, and computes its size in bytes.
func (r *reader) shape(e *entry) {
	name := clip(e.Name)
	axes := r.u32("the number of axes of tensor " + name)
	if axes > maxAxes {
		r.fail(ErrFormat, r.at-4, "tensor %q has %d axes, at most %d are read", name, axes, maxAxes)
		return
	}
	e.Shape = make([]int, axes)
	values := uint64(1)
	for i := range axes {
		n := r.u64("an axis of tensor " + name)
		hi, lo := bits.Mul64(values, n)
		if n == 0 || hi != 0 || lo > 1<<48 {
			r.fail(ErrFormat, r.at-8, "axis %d of tensor %q is %d", i, name, n)
			return
		}
		values = lo
		e.Shape[int(axes)-1-int(i)] = int(n)
	}
	e.Type = Type(r.u32("the type of tensor " + name))
	if !e.Type.Known() {
		r.fail(ErrUnsupported, r.at-4, "tensor %q is of %v; read are %v", name, e.Type, Types())
		return
	}
	l := e.Type.layout()
	if axes == 0 && l.values > 1 || axes > 0 && e.Shape[axes-1]%l.values != 0 {
		r.fail(ErrFormat, r.at-4, "tensor %q is of %v, whose blocks have %d values, and its rows have shape %v", name, e.Type, l.values, e.Shape)
	}
	e.bytes = values / uint64(l.values) * uint64(l.bytes)
}

// place assigns to each entry its bytes of the data, which begin at the next multiple of alignment.
// It fails if an offset is no such multiple, or if tensors overlap or pass the end. Gaps between
// tensors are allowed.
func (r *reader) place(entries []entry, alignment uint64) []Tensor {
	size := uint64(len(r.data))
	begin := (uint64(r.at) + alignment - 1) / alignment * alignment
	if begin > size && len(entries) > 0 {
		r.fail(ErrFormat, r.at, "the tensors' data begin at %d of %d bytes; the file is cut short", begin, size)
	}
	if r.err != nil {
		return nil
	}
	data := r.data[min(begin, size):]
	byOffset := slices.Clone(entries)
	slices.SortFunc(byOffset, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.order, b.order))
	})
	tensors := make([]Tensor, len(entries))
	end, last := uint64(0), ""
	for _, e := range byOffset {
		name := clip(e.Name)
		switch {
		case e.offset%alignment != 0:
			r.fail(ErrFormat, e.at, "tensor %q begins at %d of the data, no multiple of %d", name, e.offset, alignment)
		case e.offset > uint64(len(data)) || e.bytes > uint64(len(data))-e.offset:
			r.fail(ErrFormat, e.at, "tensor %q takes %d bytes from %d on, the file has %d; it is cut short, download it again",
				name, e.bytes, begin+e.offset, size)
		case e.offset < end:
			r.fail(ErrFormat, e.at, "tensor %q begins at %d of the data, within tensor %q", name, e.offset, clip(last))
		}
		if r.err != nil {
			return nil
		}
		end, last = e.offset+e.bytes, e.Name
		e.Data = data[e.offset:end:end]
		tensors[e.order] = e.Tensor
	}
	return tensors
}
