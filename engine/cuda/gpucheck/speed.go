package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda"
	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/model"
	"github.com/coppice-llm/coppice/engine/model/random"
	"github.com/coppice-llm/coppice/kv"
)

// decodeSteps is the number of timed steps, after some warm-up steps.
const decodeSteps, warmSteps = 16, 4

// meter times steps of one backend.
type meter struct {
	cfg   *Config
	r     *Report
	b     *cuda.Backend
	info  engine.Info
	shape kernels.Shape
	gpu   kernels.GPU // zero if the cost model does not know the device
	seq   uint64
	// sampling is that of rows that decode.
	sampling engine.SamplingParams
}

// openMeasured opens a backend with a model of the measured shape. Its warnings become part of the report.
func openMeasured(cfg *Config, r *Report, m *model.Model) (*cuda.Backend, error) {
	rows := cfg.SharedRows
	for _, n := range cfg.Batches {
		rows = max(rows, n)
	}
	return cuda.Open(m, cuda.Config{Driver: cfg.Driver, Device: cfg.Device, MemoryFraction: cfg.MemoryFraction,
		MakeWeights: true, MaxSlots: rows, MaxRows: rows, MaxTokens: max(cfg.Prompt, rows), Log: warnings(r)})
}

// warnings returns a logger that adds warnings to the report.
func warnings(r *Report) *slog.Logger {
	return slog.New(slog.NewTextHandler(lines{r}, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// lines adds each line that is written to the warnings of a report.
type lines struct{ r *Report }

func (l lines) Write(text []byte) (int, error) {
	l.r.Warnings = append(l.r.Warnings, strings.TrimSpace(string(text)))
	return len(text), nil
}

// speed times the measured model.
func speed(ctx context.Context, cfg *Config, r *Report) error {
	b, err := openMeasured(cfg, r, random.Repeated(cfg.Model, 1))
	if err != nil {
		return err
	}
	return errors.Join(newMeter(cfg, r, b, nil).all(ctx), b.Close())
}

// newMeter returns a meter of a backend of the measured shape, with weights in form f, or in bf16.
func newMeter(cfg *Config, r *Report, b *cuda.Backend, f *kernels.Form) *meter {
	c := cfg.Model
	m := &meter{cfg: cfg, r: r, b: b, info: b.Info(), shape: kernels.Shape{Hidden: c.Hidden, FFN: c.FFN, Layers: c.Layers, Heads: c.Heads,
		KVHeads: c.KVHeads, HeadDim: c.HeadDim, Vocab: c.Vocab, Weights: f}}
	m.gpu, _ = kernels.GPUNamed(r.Device.Name)
	return m
}

func (m *meter) all(ctx context.Context) error {
	for _, rows := range m.cfg.Batches {
		if err := errors.Join(ctx.Err(), m.decode(fmt.Sprintf("decode, batch %d, %d positions", rows, m.cfg.Context), rows, m.cfg.Context, 0)); err != nil {
			return err
		}
	}
	for _, rows := range []int{m.cfg.Batches[0], m.cfg.SharedRows} {
		m.sampling = engine.SamplingParams{Temperature: 1, TopK: 50, TopP: 0.9}
		err := errors.Join(ctx.Err(), m.decode(fmt.Sprintf("decode, batch %d, %d positions, top-k and top-p", rows, m.cfg.Context), rows, m.cfg.Context, 0))
		if m.sampling = (engine.SamplingParams{}); err != nil {
			return err
		}
		for _, context := range m.cfg.Long {
			if err := errors.Join(ctx.Err(), m.decode(fmt.Sprintf("decode, batch %d, %d positions", rows, context), rows, context, 0)); err != nil {
				return err
			}
		}
	}
	for _, shared := range []bool{false, true} {
		name, prefix := fmt.Sprintf("decode, batch %d, %d positions of each", m.cfg.SharedRows, m.cfg.Shared), 0
		if shared {
			name, prefix = fmt.Sprintf("decode, batch %d, %d positions shared", m.cfg.SharedRows, m.cfg.Shared), m.cfg.Shared
		}
		if err := errors.Join(ctx.Err(), m.decode(name, m.cfg.SharedRows, m.cfg.Shared, prefix)); err != nil {
			return err
		}
	}
	n := m.cfg.Prompt
	for _, x := range [][2]int{{n / 8, 0}, {n, 0}, {n / 8, n - n/8}} {
		if err := errors.Join(ctx.Err(), m.prefill("", x[0], x[1])); err != nil {
			return err
		}
	}
	for _, cached := range m.cfg.Long {
		if err := errors.Join(ctx.Err(), m.prefill("", min(64, n), cached)); err != nil {
			return err
		}
	}
	return m.tiers()
}

// submit submits b with the next Seq.
func (m *meter) submit(b *engine.Batch) (engine.Ticket, error) {
	m.seq++
	b.Seq = m.seq
	return m.b.Submit(b)
}

func wait(t engine.Ticket, err error) error {
	if err != nil {
		return err
	}
	<-t.Done()
	_, err = t.Result()
	return err
}

// pages returns the pages of each of rows rows of that many tokens. The first pages, for shared
// tokens, are the same for all rows. It returns nil if the pool has too few pages.
func (m *meter) pages(rows, tokens, shared int) [][]kv.PageID {
	common, each := shared/m.info.PageTokens, kv.CeilPages(tokens, m.info.PageTokens)
	if common+rows*(each-common) > m.info.NumPages {
		return nil
	}
	all, next := make([][]kv.PageID, rows), common
	for r := range all {
		for p := range each {
			if p < common {
				all[r] = append(all[r], kv.PageID(p))
				continue
			}
			all[r] = append(all[r], kv.PageID(next))
			next++
		}
	}
	return all
}

// decode times steps of decoding rows, each with context positions, of which the first shared ones
// are on common pages. The KV before the rows is arbitrary.
func (m *meter) decode(name string, rows, context, shared int) error {
	steps := warmSteps + decodeSteps
	pages := m.pages(rows, context+steps, shared)
	if pages == nil {
		m.r.Speed = append(m.r.Speed, Speed{Name: name, Note: "not run: too few pages"})
		return nil
	}
	var before engine.Ticket
	var start time.Time
	for i := range steps {
		batch := &engine.Batch{}
		for r := range rows {
			row := engine.Row{Slot: engine.Slot(r), Start: int32(context + i), Deferred: i > 0, Sample: true, SampleIndex: int32(i)}
			if i == 0 {
				batch.Binds = append(batch.Binds, engine.SlotBind{Slot: engine.Slot(r), Pages: pages[r], Sampling: m.sampling})
				row.Tokens = []kv.Token{1}
			}
			batch.Rows = append(batch.Rows, row)
		}
		t, err := m.submit(batch)
		if err != nil {
			return err
		}
		if before != nil {
			if err := wait(before, nil); err != nil {
				return err
			}
		}
		if before = t; i == warmSteps {
			start = time.Now()
		}
	}
	if err := wait(before, nil); err != nil {
		return err
	}
	took := time.Since(start).Seconds() // decodeSteps steps: the previous step has completed
	s := Speed{Name: name, Tokens: rows * decodeSteps, Seconds: took, PerSec: rate(float64(rows*decodeSteps), took)}
	bytes, costs := int64(0), m.shape.Decode(rows, context)
	for _, c := range costs {
		bytes += c.Unique
	}
	if shared == 0 && m.gpu.Name != "" {
		s.Expected = decodeSteps * kernels.Seconds(costs, m.gpu)
	}
	if shared == 0 && m.r.Ceilings.CopyBytesPerSecond > 0 {
		s.OfMemory = rate(float64(bytes)*decodeSteps, took) / m.r.Ceilings.CopyBytesPerSecond
	}
	m.add(s)
	return nil
}

func (m *meter) add(s Speed) {
	m.r.Speed = append(m.r.Speed, s)
	m.cfg.Log(fmt.Sprintf("%s: %.1f tokens/s", s.Name, s.PerSec))
}

// prefill times the prefill of a prompt's last tokens, as many as tokens says, after cached
// positions. name begins the measurement's name.
func (m *meter) prefill(name string, tokens, cached int) error {
	name += fmt.Sprintf("prefill %d", tokens)
	if cached > 0 {
		name += fmt.Sprintf(" after %d that are cached", cached)
	}
	pages := m.pages(1, tokens+cached, 0)
	if pages == nil {
		m.r.Speed = append(m.r.Speed, Speed{Name: name, Note: "not run: too few pages"})
		return nil
	}
	took := 0.0
	for range 2 { // the first one warms up
		batch := &engine.Batch{Binds: []engine.SlotBind{{Pages: pages[0]}}, Rows: []engine.Row{{Start: int32(cached), Tokens: make([]kv.Token, tokens), Sample: true}}}
		start := time.Now()
		if err := wait(m.submit(batch)); err != nil {
			return err
		}
		took = time.Since(start).Seconds()
	}
	s := Speed{Name: name, Tokens: tokens, Seconds: took, PerSec: rate(float64(tokens), took)}
	flops, costs := int64(0), m.shape.Extend(tokens, cached)
	for _, c := range costs {
		flops += c.Flops
	}
	if m.gpu.Name != "" {
		s.Expected = kernels.Seconds(costs, m.gpu)
	}
	if cached == 0 && m.r.Ceilings.ProductFlopsPerSec > 0 {
		s.OfGEMM = rate(float64(flops), took) / m.r.Ceilings.ProductFlopsPerSec
	}
	m.add(s)
	return nil
}

// tiers times copies of pages.
func (m *meter) tiers() error {
	n := min(64, m.info.NumPages)
	host, err := m.b.HostAlloc(n * m.info.PageBytes)
	if err != nil {
		return err
	}
	defer m.b.HostFree(host)
	memory, move := make([][]byte, n), engine.Move{}
	for p := range n {
		memory[p] = host[p*m.info.PageBytes:][:m.info.PageBytes]
		move.Pages = append(move.Pages, kv.PageID(p))
	}
	for i, to := range []kv.Tier{kv.TierHost, kv.TierDevice} {
		move.ID, move.From, move.To = engine.MoveID(i+1), kv.TierDevice, to
		if to == kv.TierDevice {
			move.From = kv.TierHost
		}
		start := time.Now()
		if err := m.b.Move(&move, memory); err != nil {
			return err
		}
		<-m.b.Ready()
		ended := m.b.Moved(nil)
		bytes := rate(float64(len(host)), time.Since(start).Seconds())
		if len(ended) != 1 || ended[0].Err != nil {
			return fmt.Errorf("moving %d pages: %+v", n, ended)
		}
		if to == kv.TierHost {
			m.r.Ceilings.PagesToHost = bytes
		} else {
			m.r.Ceilings.ToPages = bytes
		}
	}
	return nil
}
