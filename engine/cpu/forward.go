package cpu

import (
	"fmt"
	"sync/atomic"

	"github.com/coppice-llm/coppice/engine"
)

// aloneTokens is the largest number of rows for which a phase without a product runs on one
// goroutine: sharing it would take longer. aloneWork is the same bound in multiply-adds.
const aloneTokens = 8

// forward runs all layers and leaves the last one's output in x. It checks abort before each
// layer and returns false if it is set.
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

// byBlock runs a phase whose units are blocks of blockRows activation rows.
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

// product computes out = acts · m, where out is [rows][m.stride()].
func (s *step) product(m *matrix, out []float32) {
	if s.acts.k != m.k {
		panic(fmt.Sprintf("cpu: activations of %d for a matrix of %d", s.acts.k, m.k))
	}
	s.phase, s.mat, s.out = phaseProduct, m, out
	s.productUnits()
}

// productPairs computes silu(gate)·up from the paired matrix m, panel by panel, and makes it
// the activations of the next product. The outputs of gate and up exist only as one worker's
// tile at a time.
func (s *step) productPairs(m *matrix) {
	s.gated.k = m.n / 2
	s.phase, s.mat = phaseGatePairs, m
	s.productUnits()
	s.acts, s.gated = s.gated, s.acts
}

func (s *step) productUnits() {
	s.crew.do(s.units().count(), s.rows*s.mat.k*s.mat.n < s.ops.aloneWork())
}

// attention computes attention of all tokens in the current layer. A unit of this phase is one run
// of tokens for one kv head. To decide whether to share the work, attention counts two
// multiply-adds, for score and value, per element of a query and position.
func (s *step) attention() {
	work := 0
	for _, p := range s.pos {
		work += (int(p) + 1) * s.config.Heads * s.config.HeadDim * 2
	}
	s.phase = phaseAttend
	s.crew.do(len(s.runs)*s.config.KVHeads, work < s.ops.aloneWork())
}

// unit runs unit u of the phase in progress, on the given worker's scratch.
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

// tokenUnit runs token t's part of a phase whose units are blocks.
func (s *step) tokenUnit(w *scratch, t int) {
	d := s.config.Hidden
	switch s.phase {
	case phaseEmbed:
		id := int(s.tokens[t])
		s.w.embed.Widen(s.x[t*d:(t+1)*d], id*d, (id+1)*d)
		s.count(&w.counts, t)
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
	case phaseHidden:
		s.ops.norm(s.wide[t*d:(t+1)*d], s.x[int(s.want[t])*d:][:d], s.w.norm, s.eps, &w.sums)
	case phaseHeadNorm:
		s.normTo(w, t, int(s.want[s.headLo+t]), s.w.norm)
	default:
		panic(fmt.Sprintf("cpu: phase %d has no blocks", s.phase))
	}
}

// count counts token t by the side that has chosen it.
func (s *step) count(c *engine.StepStats, t int) {
	switch drafted := s.sampleAt(t) > 0; {
	case drafted:
		c.GivenTokens++
		c.Drafted++
	case s.batch.Rows[s.rowOf[t]].Deferred:
		c.DeferredTokens++
	default:
		c.GivenTokens++
	}
}

// normTo normalises the residual of token from into activation row row.
func (s *step) normTo(w *scratch, row, from int, weight []float32) {
	d := s.config.Hidden
	y := s.acts.place(row, w.norm)
	s.ops.norm(y, s.x[from*d:(from+1)*d], weight, s.eps, &w.sums)
	s.acts.set(row, y)
}

// addProduct adds token t's row of the last product, by m, and the bias, if any, to the
// residual.
func (s *step) addProduct(t int, m *matrix, bias []float32) {
	d := s.config.Hidden
	y := s.wide[t*m.stride():][:d]
	addBias(y, bias)
	s.ops.addTo(s.x[t*d:(t+1)*d], y)
}

// writeKV applies bias, head norm and rotation to q, k and v of token t, as the model has
// them, and writes k and v to the token's slot. Only q and k are normalised and rotated.
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

// headNorm returns the norm weights of head h, nil if the model has none. Heads below heads are
// query heads, the others kv heads.
func (l *layer) headNorm(h, heads int) []float32 {
	if h < heads {
		return l.qNorm
	}
	return l.kNorm
}

// runTokens is the most consecutive tokens of a row whose attention is one unit. They read a
// page once for all of them. Longer runs save little more and balance worse among workers.
const runTokens = 8

// runScores bounds the scores that a run holds at a time: 2^16 f32 are 256 KiB and stay in the
// second-level cache. A run over a long context is cut until it fits; one token always gets
// all its scores.
const runScores = 1 << 16

// even returns the length of the first of as few parts as possible, of n and each at most limit long,
// whose lengths differ by at most one.
func even(n, limit int) int {
	parts := (n + limit - 1) / limit
	return (n + parts - 1) / parts
}

// attendUnit computes attention of the tokens of run r for the query heads that share kv head
// head. w is the worker's scratch.
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
		count := even(r.end-t, max(1, runScores/(group*paddedScores(n+runTokens))))
		q := w.queries[:count*width]
		for i := range count {
			copy(q[i*width:(i+1)*width], s.qkv[(t+i)*qkv+head*width:])
		}
		s.ops.attend(s.arena, w, dst[t*attn+head*width:], attn, q, s.tables.row[s.rowOf[t]], s.layer, head, group, n, count, s.scale)
		for i := range count {
			if head == 0 && s.layer == 0 {
				w.counts.KVTokensRead += int64(n + i)
			}
		}
		t += count
	}
}

// gate computes silu(gate)·up of token t and makes it the token's activation row.
func (s *step) gate(w *scratch, t int) {
	n, l := s.config.FFN, &s.w.layers[s.layer]
	row := s.wide[t*l.gateUp.stride():]
	addBias(row, l.gateUpBias)
	y := s.acts.place(t, w.norm)
	s.ops.gate(y, row[:n], row[n:2*n])
	s.acts.set(t, y)
}

// addBias adds a bias to a product, with one more rounding; nil adds nothing. The bias is
// added after the whole chain rather than as its start, so a product has the same bits with
// and without a bias.
func addBias(y, bias []float32) {
	for i, b := range bias {
		y[i] += b
	}
}

// finite reports whether no value is infinite or NaN: x-x is 0 for a finite x and NaN for others.
func finite(v []float32) bool {
	for _, x := range v {
		if x-x != 0 {
			return false
		}
	}
	return true
}
