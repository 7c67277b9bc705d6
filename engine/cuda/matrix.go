package cuda

import (
	"slices"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/kv"
)

// matrix is a matrix of a product on the device, in pieces: each piece has some of the result's columns,
// in ascending order. Pieces of quantised weights keep the file's values; all others are one piece in bf16,
// [row][column] with padded rows.
type matrix []piece

// piece is rows [first, first+rows) of a matrix. form is nil if it is bf16.
type piece struct {
	at          cudrv.Ptr
	form        *kernels.Form
	first, rows int
}

// form returns the form in which tensors of that many columns stay quantised in one piece, or nil.
func (u *uploader) form(columns int, tensors ...*model.Tensor) *kernels.Form {
	t := tensors[0]
	for _, other := range tensors {
		if other == nil || !other.Quantized() || other.Quant != t.Quant || u.cfg.BF16Weights {
			return nil
		}
	}
	if f := kernels.FormOf(t.Quant, columns); f != nil && f.Bytes(1, columns) <= stagingBytes {
		return f
	}
	return nil
}

// matrix uploads tensors, matrices of the given number of columns, one above the other. Neighbours of one
// form are one piece if they fill tiles.
func (u *uploader) matrix(columns int, tensors ...*model.Tensor) matrix {
	var m matrix
	var rows int
	var row []func(i int) []byte // by piece
	whole := true
	for _, t := range tensors {
		n, f := t.Len()/columns, u.form(columns, t)
		if whole = whole && f != nil; whole {
			size := f.Type.Bytes(columns)
			of := func(i int) []byte { return t.Data[i*size:][:size] }
			if last := len(m) - 1; last >= 0 && m[last].form == f && m[last].rows%kernels.TileRows == 0 {
				before, from := m[last].rows, row[last]
				m[last].rows += n
				row[last] = func(i int) []byte {
					if i < before {
						return from(i)
					}
					return of(i - before)
				}
			} else {
				m, row = append(m, piece{form: f, first: rows, rows: n}), append(row, of)
			}
		}
		rows += n
	}
	if !whole {
		return matrix{{at: u.stack(kv.BF16, columns, tensors...), rows: rows}}
	}
	u.plan.widest = max(u.plan.widest, 2*rows*columns)
	for i := range m {
		m[i].at = u.pack(m[i].form, m[i].rows, columns, row[i])
	}
	return m
}

// gateUp uploads gate and up as one matrix of 2·ffn rows, in which four rows of each alternate: the product
// expects gates and values in that order. Rows past a tensor's last one are zero.
func (u *uploader) gateUp(columns, ffn int, gate, up *model.Tensor) matrix {
	f := u.form(columns, gate, up)
	if f == nil {
		return matrix{{at: u.interleaved(kv.BF16, columns, kernels.Padded(columns), ffn, gate, up), rows: 2 * ffn}}
	}
	u.plan.widest = max(u.plan.widest, 4*ffn*columns)
	size := f.Type.Bytes(columns)
	at := u.pack(f, 2*ffn, columns, func(i int) []byte {
		t, row := gate, i/8*4+i%4
		if i%8 >= 4 {
			t = up
		}
		if row >= t.Len()/columns {
			return nil
		}
		return t.Data[row*size:][:size]
	})
	return matrix{{at: at, form: f, rows: 2 * ffn}}
}

// pack uploads a matrix in the form f. row returns the blocks of row i, or nil for zeros.
func (u *uploader) pack(f *kernels.Form, rows, columns int, row func(i int) []byte) cudrv.Ptr {
	if !slices.Contains(u.plan.forms, f) {
		u.plan.forms = append(u.plan.forms, f)
	}
	n := f.Bytes(rows, columns)
	p := u.room(n)
	if u.made(p, n, f.Kernel("make"), n/4) || u.staging == nil {
		return p
	}
	most := stagingBytes / f.Bytes(1, columns) * kernels.TileRows
	for lo := 0; lo < rows && u.err == nil; lo += most {
		n := min(most, rows-lo)
		size := f.Bytes(n, columns)
		f.Pack(u.staging[:size], n, columns, func(i int) []byte { return row(lo + i) })
		u.copy(p+cudrv.Ptr(f.Bytes(lo, columns)), size)
	}
	return p
}

// product queues out = in·Wᵀ + bias for m rows of in, n rows of W and a depth of k. The rows of in
// and w are padded. kind says how the product is stored. bias may be 0. live is the address of the
// actual number of rows; 0 means m.
func (l *launcher) product(out, in cudrv.Ptr, w matrix, bias cudrv.Ptr, m, n, k int, kind int32, live cudrv.Ptr) {
	k = kernels.Padded(k)
	if w[0].form != nil && kernels.Widened(m) && 2*n*k <= l.w.widest {
		for _, x := range w {
			l.launch(x.form.Kernel("widen"), x.rows, blocks(k, 2048), 256, 0, l.room.widened+cudrv.Ptr(2*x.first*k), x.at, int32(k))
		}
		w = matrix{{at: l.room.widened, rows: n}}
	}
	slices, g := kernels.Slices(m, n, k, l.multiprocessors), kernels.GEMMFor(m)
	for _, x := range w {
		name, shared := func(kernel string) string { return kernel }, g.SharedBytes
		var stride []any // the kernels for bf16 know it
		if x.form != nil {
			name, shared, stride = x.form.Kernel, x.form.SharedBytes(g), []any{int32(n)}
		}
		if slices > 1 {
			l.launch(name("gemm_slices"), blocks(x.rows, 128), blocks(m, 128)*slices, 256, 0,
				append([]any{l.room.parts + cudrv.Ptr(4*x.first), in, x.at, int32(m), int32(x.rows), int32(k), live}, stride...)...)
			continue
		}
		to, from := out, bias
		if x.first > 0 {
			to += cudrv.Ptr(outBytes[kind] * x.first)
			if bias != 0 {
				from += cudrv.Ptr(4 * x.first)
			}
		}
		gridX, gridY := g.Grid(m, x.rows)
		l.launch(name(g.Name), gridX, gridY, 256, shared, append([]any{to, in, x.at, from, int32(m), int32(x.rows), int32(k), kind, live}, stride...)...)
	}
	if slices > 1 {
		l.launch("gemm_sum", blocks(n, 256), m, 256, 0, out, l.room.parts, bias, int32(m), int32(n), int32(k), kind, live)
	}
}
