package cpu

import (
	"fmt"
	"sync/atomic"
)

// aloneTokens bounds the rows of light work that one goroutine does without the
// others, as aloneWork does for multiply-adds.
const aloneTokens = 8

// forward runs all layers; x holds the last one's output. It gives false if
// abort was set, which is looked at before each layer.
func (s *step) forward(abort *atomic.Bool) bool {
	s.layer = 0
	s.rows = len(s.tokens)
	s.byBlock(phaseEmbed)
	for s.layer < len(s.w.layers) {
		if abort.Load() {
			return false
		}
		l := &s.w.layers[s.layer]
		s.product(l.qkv, s.qkv)
		s.byBlock(phaseWrite)
		s.acts.k = s.config.Heads * s.config.HeadDim
		s.attention()
		if s.attn != nil {
			s.byBlock(phaseAttnActs)
		}
		s.product(l.o, s.wide)
		s.byBlock(phaseFFNNorm)
		if l.gateUp.paired {
			s.productPairs(l.gateUp)
		} else {
			s.product(l.gateUp, s.wide)
			s.byBlock(phaseGate)
		}
		s.product(l.down, s.wide)
		s.layer++
		s.byBlock(phaseNextNorm)
	}
	return true
}

// byBlock runs a phase whose units are blocks of activation rows.
func (s *step) byBlock(p phase) {
	switch p {
	case phaseEmbed, phaseFFNNorm, phaseNextNorm, phaseHeadNorm:
		s.acts.k = s.config.Hidden
	case phaseGate:
		s.acts.k = s.config.FFN
	}
	s.phase = p
	s.crew.do((s.rows+blockRows-1)/blockRows, s.rows <= aloneTokens)
}

// product runs out = acts · m, [rows][m.stride()].
func (s *step) product(m *matrix, out []float32) {
	if s.acts.k != m.k {
		panic(fmt.Sprintf("cpu: activations of %d for a matrix of %d", s.acts.k, m.k))
	}
	s.phase, s.mat, s.out = phaseProduct, m, out
	s.productUnits()
}

// productPairs computes the inputs of the product after m, a paired matrix, and makes
// them the activations.
func (s *step) productPairs(m *matrix) {
	s.gated.k = m.n / 2
	s.phase, s.mat = phaseGatePairs, m
	s.productUnits()
	s.acts, s.gated = s.gated, s.acts
}

func (s *step) productUnits() {
	s.crew.do(s.units().count(), s.rows*s.mat.k*s.mat.n < s.ops.aloneWork())
}

func (s *step) attention() {
	work := 0
	for _, p := range s.pos {
		work += (int(p) + 1) * s.config.Heads * s.config.HeadDim * 2
	}
	s.phase = phaseAttend
	s.crew.do(len(s.runs)*s.config.KVHeads, work < s.ops.aloneWork())
}

// unit does one unit of the phase in progress.
func (s *step) unit(worker, u int) {
	switch s.phase {
	case phaseProduct, phaseGatePairs:
		s.productUnit(&s.scratch[worker], u)
		return
	case phaseAttend:
		s.attendUnit(&s.scratch[worker], s.runs[u/s.config.KVHeads], u%s.config.KVHeads)
		return
	}
	for t := u * blockRows; t < min((u+1)*blockRows, s.rows); t++ {
		s.tokenUnit(&s.scratch[worker], t)
	}
}

// tokenUnit does token t's part of a phase by blocks.
func (s *step) tokenUnit(w *scratch, t int) {
	d := s.config.Hidden
	switch s.phase {
	case phaseEmbed:
		id := int(s.tokens[t])
		s.w.embed.row(s.x[t*d:(t+1)*d], id)
		if s.batch.Rows[s.rowOf[t]].Deferred {
			w.late++
		} else {
			w.given++
		}
		s.normTo(w, t, t, s.w.layers[0].attnNorm)
	case phaseWrite:
		s.writeKV(w, t)
	case phaseAttnActs:
		n := s.acts.k
		s.acts.set(t, s.attn[t*n:(t+1)*n])
	case phaseFFNNorm:
		l := &s.w.layers[s.layer]
		s.addProduct(t, l.o, l.oBias)
		s.normTo(w, t, t, l.ffnNorm)
	case phaseGate:
		s.gate(w, t)
	case phaseNextNorm:
		l := &s.w.layers[s.layer-1]
		s.addProduct(t, l.down, l.downBias)
		if s.layer < len(s.w.layers) {
			s.normTo(w, t, t, s.w.layers[s.layer].attnNorm)
			return
		}
		s.bad[t] = !finite(s.x[t*d : (t+1)*d])
	case phaseHeadNorm:
		s.normTo(w, t, int(s.want[s.headLo+t]), s.w.norm)
	default:
		panic(fmt.Sprintf("cpu: phase %d has no blocks", s.phase))
	}
}

// normTo writes the norm of token from's residual to activation row.
func (s *step) normTo(w *scratch, row, from int, weight []float32) {
	d := s.config.Hidden
	y := s.acts.place(row, w.norm)
	s.ops.norm(y, s.x[from*d:(from+1)*d], weight, s.eps, &w.sums)
	s.acts.set(row, y)
}

// addProduct adds the product by m, with its bias if there is one, to the
// residual.
func (s *step) addProduct(t int, m *matrix, bias []float32) {
	d := s.config.Hidden
	y := s.wide[t*m.stride():][:d]
	addBias(y, bias)
	s.ops.addTo(s.x[t*d:(t+1)*d], y)
}

// addBias adds a bias to a product, rounding once more; nil is none. A bias comes
// after the whole chain, not first in it, so products are the same with and
// without.
func addBias(y, bias []float32) {
	for i, b := range bias {
		y[i] += b
	}
}

// writeKV finishes q, k and v of token t (bias, norm, rotation) and puts k and v
// into the sequence's page.
func (s *step) writeKV(w *scratch, t int) {
	c, p, l := s.config, int(s.pos[t]), &s.w.layers[s.layer]
	row := s.qkv[t*l.qkv.stride():]
	dim := c.HeadDim
	addBias(row, l.qkvBias)
	for h := range c.Heads + c.KVHeads {
		head := row[h*dim : (h+1)*dim]
		if norm := l.headNorm(h, c.Heads); norm != nil {
			s.ops.norm(head, head, norm, s.eps, &w.sums)
		}
		s.ops.rotateBy(head, s.rope, p)
	}
	page := s.tables.row[s.rowOf[t]][p/s.arena.tokens]
	slot := p % s.arena.tokens
	k, v := row[c.Heads*dim:], row[(c.Heads+c.KVHeads)*dim:]
	for h := range c.KVHeads {
		s.arena.put(s.ops, page, halfK(s.layer), h, slot, k[h*dim:(h+1)*dim])
		s.arena.put(s.ops, page, halfV(s.layer), h, slot, v[h*dim:(h+1)*dim])
	}
}

// headNorm is the norm of head h of q and k together, nil if there is none.
func (l *layer) headNorm(h, heads int) []float32 {
	if h < heads {
		return l.qNorm
	}
	return l.kNorm
}

// runTokens bounds the tokens of a row whose attention is one unit: they read the pages
// that they all see together. More gain little, and share out worse.
const runTokens = 8

// runScores bounds the scores that a run keeps at a time, so that they stay in the
// second-level cache; one token has as many as it needs.
const runScores = 1 << 16

// attendUnit is the query heads over one kv head of a run of tokens.
func (s *step) attendUnit(w *scratch, r tokenRun, head int) {
	c := s.config
	group := c.Heads / c.KVHeads
	width, qkv := group*c.HeadDim, s.w.layers[s.layer].qkv.stride()
	dst, attn := s.attn, c.Heads*c.HeadDim
	if dst == nil {
		dst = s.acts.rows
	}
	for t := r.first; t < r.end; {
		n := int(s.pos[t]) + 1
		count := min(r.end-t, max(1, runScores/(group*paddedScores(n+runTokens))))
		q := w.queries[:count*width]
		for i := range count {
			copy(q[i*width:(i+1)*width], s.qkv[(t+i)*qkv+head*width:])
		}
		s.ops.attend(s.arena, w, dst[t*attn+head*width:], attn, q, s.tables.row[s.rowOf[t]], s.layer, head, group, n, count, s.scale)
		for i := range count {
			if head == 0 && s.layer == 0 {
				w.kvRead += int64(n + i)
			}
		}
		t += count
	}
}

// gate is silu(gate)·up of token t.
func (s *step) gate(w *scratch, t int) {
	n, l := s.config.FFN, &s.w.layers[s.layer]
	row := s.wide[t*l.gateUp.stride():]
	addBias(row, l.gateUpBias)
	y := s.acts.place(t, w.norm)
	s.ops.gate(y, row[:n], row[n:2*n])
	s.acts.set(t, y)
}

func finite(v []float32) bool {
	for _, x := range v {
		if x-x != 0 {
			return false
		}
	}
	return true
}
