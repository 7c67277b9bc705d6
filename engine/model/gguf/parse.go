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
	r := &reader{data: data}
	f := &File{}
	tensors, pairs, err := r.header(f)
	if err != nil {
		return nil, err
	}
	if err := r.metadata(&f.Meta, pairs); err != nil {
		return nil, err
	}
	alignment := uint64(defaultAlign)
	if f.Meta.Has(alignmentKey) {
		a, ok := f.Meta.Uint(alignmentKey)
		if !ok || a == 0 || a > maxAlignment || a&(a-1) != 0 {
			return nil, fmt.Errorf("%w: %s is %s, want a power of two up to %d", ErrFormat, alignmentKey, f.Meta.Text(alignmentKey), maxAlignment)
		}
		alignment = a
	}
	entries, err := r.table(tensors)
	if err != nil {
		return nil, err
	}
	begin := (uint64(r.at) + alignment - 1) / alignment * alignment
	if begin > uint64(len(data)) {
		if len(entries) > 0 {
			return nil, r.damaged("the tensors' data begin at %d of %d bytes; the file is cut short", begin, len(data))
		}
		begin = uint64(len(data))
	}
	f.Tensors, err = place(entries, data[begin:], begin, alignment)
	return f, err
}

// reader parses a file from front to back.
type reader struct {
	data []byte
	at   int
}

func (r *reader) damaged(format string, args ...any) error {
	return fmt.Errorf("%w: at byte %d: %s", ErrFormat, r.at, fmt.Sprintf(format, args...))
}

func (r *reader) unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: at byte %d: %s", ErrUnsupported, r.at, fmt.Sprintf(format, args...))
}

func (r *reader) left() int { return len(r.data) - r.at }

// take returns the next n bytes. what names them in the error if fewer are left.
func (r *reader) take(n uint64, what string) ([]byte, error) {
	if n > uint64(r.left()) {
		return nil, r.damaged("%s has %d bytes, %d are left; the file is cut short", what, n, r.left())
	}
	b := r.data[r.at : r.at+int(n)]
	r.at += int(n)
	return b, nil
}

func (r *reader) u32(what string) (uint32, error) {
	b, err := r.take(4, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (r *reader) u64(what string) (uint64, error) {
	b, err := r.take(8, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// text returns a string, whose length precedes it in the file. what names it in the error if it
// has more than most bytes.
func (r *reader) text(what string, most uint64) ([]byte, error) {
	n, err := r.u64(what)
	if err != nil {
		return nil, err
	}
	if n > most {
		r.at -= 8
		return nil, r.damaged("%s of %d bytes, at most %d are read", what, n, most)
	}
	return r.take(n, what)
}

// header parses the magic and the version, and returns the numbers of tensors and of metadata
// pairs.
func (r *reader) header(f *File) (tensors, pairs uint64, err error) {
	if !bytes.HasPrefix(r.data, []byte(magic)) {
		return 0, 0, fmt.Errorf("%w: at byte 0: it begins with %q, not with %q", ErrFormat, r.data[:min(4, len(r.data))], magic)
	}
	r.at = len(magic)
	version, err := r.u32("the version")
	if err != nil {
		return 0, 0, err
	}
	if version < oldestVersion || version > newestVersion {
		r.at -= 4
		if v := bits.ReverseBytes32(version); v <= newestVersion {
			return 0, 0, r.unsupported("big-endian, version %d; little-endian files are read", v)
		}
		return 0, 0, r.unsupported("version %d; %d and %d are read", version, oldestVersion, newestVersion)
	}
	f.Version = int(version)
	if tensors, err = r.count("tensors", minTensor); err != nil {
		return 0, 0, err
	}
	pairs, err = r.count("metadata pairs", minPair)
	return tensors, pairs, err
}

// count parses a number of items, each of at least size bytes. It fails if that number of items
// does not fit into the rest of the file; what names the items in the error.
func (r *reader) count(what string, size int) (uint64, error) {
	n, err := r.u64("the number of " + what)
	if err != nil {
		return 0, err
	}
	if most := uint64(r.left() / size); n > most {
		r.at -= 8
		return 0, r.damaged("%d %s, %d would fit the file; it is damaged or cut short, download it again", n, what, most)
	}
	return n, nil
}

// metadata parses n pairs of key and value.
func (r *reader) metadata(m *Meta, n uint64) error {
	m.values = map[string]Value{}
	for range n {
		start := r.at
		raw, err := r.text("a metadata key", maxKeyBytes)
		if err != nil {
			return err
		}
		key := string(raw)
		if m.Has(key) {
			r.at = start
			return r.damaged("metadata %q occurs twice", clip(key))
		}
		v, err := r.value(key)
		if err != nil {
			return err
		}
		m.values[key] = v
		m.keys = append(m.keys, key)
	}
	return nil
}

func (r *reader) kind(key string) (Kind, error) {
	k, err := r.u32("the type of metadata " + clip(key))
	if err == nil && int(k) >= len(kindBytes) {
		r.at -= 4
		err = r.damaged("metadata %q has type %d, the last is %d", clip(key), k, len(kindBytes)-1)
	}
	return Kind(k), err
}

func (r *reader) value(key string) (Value, error) {
	k, err := r.kind(key)
	if err != nil {
		return Value{}, err
	}
	v := Value{Kind: k}
	what := "metadata " + clip(key)
	switch k {
	case String:
		v.raw, err = r.text(what, uint64(r.left()))
		return v, err
	case Array:
		return r.array(key, what)
	}
	v.raw, err = r.take(uint64(kindBytes[k]), what)
	return v, err
}

func (r *reader) array(key, what string) (Value, error) {
	v := Value{Kind: Array}
	var err error
	if v.Elem, err = r.kind(key); err != nil {
		return v, err
	}
	if v.Elem == Array {
		r.at -= 4
		return v, r.unsupported("metadata %q is an array of arrays", clip(key))
	}
	size := kindBytes[v.Elem]
	if v.Elem == String {
		size = 8 // length of a string
	}
	n, err := r.count("elements of "+what, size)
	if err != nil {
		return v, err
	}
	v.n = int(n)
	if v.Elem != String {
		v.raw, err = r.take(n*uint64(kindBytes[v.Elem]), what)
		return v, err
	}
	from := r.at
	for range n {
		if _, err := r.text("a text of "+what, uint64(r.left())); err != nil {
			return v, err
		}
	}
	v.raw = r.data[from:r.at]
	return v, nil
}

// entry is a tensor of the table with its offset.
type entry struct {
	Tensor
	offset, bytes uint64
	at            int // offset of the entry in the file
	order         int
}

// table parses n entries of the tensor table.
func (r *reader) table(n uint64) ([]entry, error) {
	var entries []entry
	seen := map[string]bool{}
	for i := range n {
		start := r.at
		raw, err := r.text("a tensor's name", maxNameBytes-1)
		if err != nil {
			return nil, err
		}
		e := entry{Tensor: Tensor{Name: string(raw)}, at: start, order: int(i)}
		if seen[e.Name] {
			r.at = start
			return nil, r.damaged("tensor %q occurs twice", clip(e.Name))
		}
		seen[e.Name] = true
		if err := r.shape(&e); err != nil {
			return nil, err
		}
		if e.offset, err = r.u64("the offset of tensor " + clip(e.Name)); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// shape parses the axes and the type of e, and computes its size in bytes.
func (r *reader) shape(e *entry) error {
	name := clip(e.Name)
	axes, err := r.u32("the number of axes of tensor " + name)
	if err != nil {
		return err
	}
	if axes > maxAxes {
		r.at -= 4
		return r.damaged("tensor %q has %d axes, at most %d are read", name, axes, maxAxes)
	}
	e.Shape = make([]int, axes)
	values := uint64(1)
	for i := range axes {
		n, err := r.u64("an axis of tensor " + name)
		if err != nil {
			return err
		}
		hi, lo := bits.Mul64(values, n)
		if n == 0 || hi != 0 || lo > 1<<48 {
			r.at -= 8
			return r.damaged("axis %d of tensor %q is %d", i, name, n)
		}
		values = lo
		e.Shape[int(axes)-1-int(i)] = int(n)
	}
	number, err := r.u32("the type of tensor " + name)
	if err != nil {
		return err
	}
	e.Type = Type(number)
	l := e.Type.find()
	switch {
	case l.values == 0:
		r.at -= 4
		return r.unsupported("tensor %q is of %v; read are %v", name, e.Type, Types())
	case axes == 0 && l.values > 1, axes > 0 && e.Shape[axes-1]%l.values != 0:
		r.at -= 4
		return r.damaged("tensor %q is of %v, whose blocks have %d values, and its rows have shape %v", name, e.Type, l.values, e.Shape)
	}
	e.bytes = values / uint64(l.values) * uint64(l.bytes)
	return nil
}

// place assigns to each entry its bytes of data, which is the file from byte begin on. It fails if
// an offset is no multiple of alignment, or if tensors overlap or pass the end. Gaps between
// tensors are allowed.
func place(entries []entry, data []byte, begin, alignment uint64) ([]Tensor, error) {
	byOffset := slices.Clone(entries)
	slices.SortFunc(byOffset, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.order, b.order))
	})
	tensors := make([]Tensor, len(entries))
	end, last := uint64(0), ""
	for _, e := range byOffset {
		at := fmt.Sprintf("at byte %d: tensor %q", e.at, clip(e.Name))
		switch {
		case e.offset%alignment != 0:
			return nil, fmt.Errorf("%w: %s begins at %d of the data, no multiple of %d", ErrFormat, at, e.offset, alignment)
		case e.offset > uint64(len(data)) || e.bytes > uint64(len(data))-e.offset:
			return nil, fmt.Errorf("%w: %s takes %d bytes from %d on, the file has %d; it is cut short, download it again",
				ErrFormat, at, e.bytes, begin+e.offset, begin+uint64(len(data)))
		case e.offset < end:
			return nil, fmt.Errorf("%w: %s begins at %d of the data, within tensor %q", ErrFormat, at, e.offset, clip(last))
		}
		end, last = e.offset+e.bytes, e.Name
		e.Data = data[e.offset:end:end]
		tensors[e.order] = e.Tensor
	}
	return tensors, nil
}
