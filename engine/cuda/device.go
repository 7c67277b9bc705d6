package cuda

import (
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/coppice-llm/coppice/engine"
	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
	"github.com/coppice-llm/coppice/engine/cuda/internal/cudamem"
	"github.com/coppice-llm/coppice/engine/cuda/kernels"
	"github.com/coppice-llm/coppice/engine/model"
)

// device holds the state of a backend on its device. The launching goroutine owns it.
type device struct {
	ctx    cudrv.Context
	stream cudrv.Stream
	cfg    Config
	pool   *cudamem.Memory
	model  *model.Config
	w      weights
	run    map[string]cudrv.Function

	pageElements int // bf16 values of one page
	perSlot      int // entries of a slot's page table

	multiprocessors int
	room            rooms
	meta            cudrv.Ptr // the data of a step, uploaded in one copy
	metaBytes       int
	uploaded        int         // bytes of the last step's data
	batches         chan *place // free places of batches
	moves           chan *place // free places of moves

	pages  engine.Tables
	table  []int32 // page tables on the device after all queued work has run
	params []engine.SamplingParams
	graphs graphs
	kept   []int32 // by slot: 1 + the position of the kept x; 0: none
}

// rooms holds the device's buffers that kernels write, with their layouts.
type rooms struct {
	pool, table        cudrv.Ptr
	last, counts       cudrv.Ptr // by slot
	masks              cudrv.Ptr // by MaskID from 1 on
	x                  cudrv.Ptr // residual stream, f32 [tokens][hidden]
	acts               cudrv.Ptr // inputs of products, bf16 [tokens][widest]
	qkv                cudrv.Ptr // f32
	q                  cudrv.Ptr // bf16 [tokens][heads][dim]
	ffn                cudrv.Ptr // input of a layer's last product, bf16 [tokens][ffn]
	parts              cudrv.Ptr // slices of a product, f32 [slices][rows][columns]
	widened            cudrv.Ptr // a quantised matrix in bf16
	states             cudrv.Ptr // results of attention by token of a pass, split and head
	logits, work       cudrv.Ptr // f32 [rows][vocab], of as many samples at a time
	failed             cudrv.Ptr // by row; one entry more, for drafts
	drawn, norms, tops cudrv.Ptr // by sample
	prompt             promptRooms
}

// promptRooms holds buffers for log-probabilities of prompts, by token except kept.
type promptRooms struct {
	norms, tops, picked cudrv.Ptr
	kept                cudrv.Ptr // x of each slot's last token, f32 [slots][hidden]
}

// Sizes of the kernels' structures.
const (
	drawnBytes = 12
	normBytes  = 8
	topBytes   = 8
)

// newDevice opens the device and uploads the model. It locks its OS thread while it runs, because
// a context is current per thread.
func newDevice(m *model.Model, cfg Config) (*device, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, err := cfg.Driver.Open(cfg.Device)
	if err != nil {
		return nil, err
	}
	d := &device{ctx: ctx, cfg: cfg, model: m.Config(), run: map[string]cudrv.Function{}, params: make([]engine.SamplingParams, cfg.MaxSlots), kept: make([]int32, cfg.MaxSlots),
		graphs: graphs{execs: map[shape]cudrv.GraphExec{}, off: cfg.NoGraphs}}
	if err := d.open(m); err != nil {
		return nil, errors.Join(err, ctx.Close())
	}
	return d, nil
}

func (d *device) open(m *model.Model) error {
	c := d.model
	d.pageElements = 2 * c.Layers * c.KVHeads * d.cfg.PageTokens * c.HeadDim
	if err := d.fitPool(); err != nil {
		return err
	}
	positions := c.MaxPositions
	if d.cfg.Pages > 0 { // no sequence is longer than the pool
		positions = min(positions, d.cfg.Pages*d.cfg.PageTokens)
	}
	d.perSlot = (positions + d.cfg.PageTokens - 1) / d.cfg.PageTokens
	d.table, d.pages = make([]int32, d.cfg.MaxSlots*d.perSlot), engine.NewTables(d.cfg.MaxSlots)
	for i := range d.table {
		d.table[i] = -1
	}
	var err error
	if d.stream, err = d.ctx.NewStream(); err != nil {
		return err
	}
	properties, err := d.cfg.Driver.Properties(d.cfg.Device)
	if err != nil {
		return err
	}
	d.multiprocessors = properties.Multiprocessors
	plan := d.planWeights(m, positions)
	d.w.widest = plan.widest
	if err := d.load(properties, plan.forms); err != nil {
		return err
	}
	if err := d.budget(plan.bytes); err != nil {
		return err
	}
	if err := d.upload(m, positions, plan.bytes); err != nil {
		return fmt.Errorf("cuda: weights: %w", err)
	}
	if err := d.makeRooms(); err != nil {
		return fmt.Errorf("cuda: buffers: %w", err)
	}
	return nil
}

// load loads all kernels, and those for the given forms of weights.
func (d *device) load(p cudrv.Properties, forms []*kernels.Form) error {
	modules := map[string][]string{
		"layers":                           {"embed", "rmsnorm", "check_finite", "rope_write", "keep"},
		"gemm":                             {"gemm16", "gemm32", "gemm64", "gemm128", "gemm_slices", "gemm_sum"},
		kernels.Attention(d.model.HeadDim): {fmt.Sprint("attn_prefill_", d.model.HeadDim), fmt.Sprint("attn_decode_", d.model.HeadDim)},
		"merge":                            {"attn_merge"},
		"sample":                           {"sample", "logprobs", "prompt_logprobs"},
		"pages":                            {"page_copy", "table_write", "slot_clear", "slot_count", "slot_fail"},
		"weights":                          {"make_weights"},
	}
	for _, f := range forms {
		modules[f.Module()] = f.Kernels()
	}
	for module, names := range modules {
		m, err := d.loadModule(module, p)
		if err != nil {
			return fmt.Errorf("cuda: kernels %s: %w", module, err)
		}
		for _, n := range names {
			if d.run[n], err = d.ctx.Function(m, n); err != nil {
				return err
			}
		}
	}
	shared := map[string]int{}
	for _, n := range []string{"attn_prefill_", "attn_decode_"} {
		shared[fmt.Sprint(n, d.model.HeadDim)] = d.tileBytes()
	}
	for _, g := range kernels.GEMMs() {
		shared[g.Name] = g.SharedBytes
		for _, f := range forms {
			shared[f.Kernel(g.Name)] = f.SharedBytes(&g)
		}
	}
	for n, bytes := range shared {
		if err := d.ctx.SetMaxDynamicShared(d.run[n], bytes); err != nil {
			return err
		}
	}
	return nil
}

// loadModule loads machine code if it is embedded for the device and the driver accepts it, else
// PTX, which the driver compiles.
func (d *device) loadModule(name string, p cudrv.Properties) (cudrv.Module, error) {
	if code := kernels.Cubin(name, p.Major, p.Minor); code != nil {
		m, err := d.ctx.Load(code)
		if err == nil || errors.Is(err, cudrv.ErrLost) {
			return m, err
		}
	}
	return d.ctx.Load(kernels.PTX(name))
}

// tileBytes returns the shared memory of an attention block for tiles of K and V.
func (d *device) tileBytes() int { return kernels.TileBytes(d.model.HeadDim) }

// buffer is one of rooms: where its address is kept, and its size in bytes.
type buffer struct {
	p    *cudrv.Ptr
	n    int
	fill int // initial value of its bytes, -1: none
}

func (d *device) makeRooms() error {
	var err error
	if d.pool, err = cudamem.New(d.ctx, d.stream, d.cfg.Pool.Address, 2*d.pageElements, d.cfg.Pages); err != nil {
		return err
	}
	d.room.pool = d.pool.Base()
	for _, b := range d.buffers() {
		if *b.p, err = d.alloc(b.n); err != nil {
			return err
		}
		if b.fill < 0 {
			continue
		}
		if err := d.ctx.Fill(d.stream, *b.p, byte(b.fill), b.n); err != nil {
			return err
		}
	}
	d.metaBytes = d.metaRoom()
	if d.batches, err = newPlaces(d.ctx, d.cfg.MaxInflight); err != nil {
		return err
	}
	if d.moves, err = newPlaces(d.ctx, d.cfg.MaxMoves); err != nil {
		return err
	}
	return d.ctx.SyncStream(d.stream)
}

// places returns the free places of jobs like j.
func (d *device) places(j *job) chan *place {
	if j.Batch == nil {
		return d.moves
	}
	return d.batches
}

// buffers lists all buffers of rooms except the pool.
func (d *device) buffers() []buffer {
	c, r := d.model, &d.room
	tokens, rows, heads := d.cfg.MaxTokens, d.cfg.MaxRows, c.Heads*c.HeadDim
	samples := max(tokens, rows)
	ffn := kernels.Padded(c.FFN)
	widest := max(kernels.Padded(c.Hidden), kernels.Padded(heads))
	return []buffer{
		{&r.table, 4 * len(d.table), 0xff}, {&r.last, 4 * d.cfg.MaxSlots, 0xff}, {&r.counts, 4 * d.cfg.MaxSlots * c.Vocab, 0},
		{&r.masks, d.maskBytes() * d.cfg.maxMasks(), -1},
		{&r.x, 4 * tokens * c.Hidden, -1}, {&r.acts, 2 * max(tokens, rows) * widest, -1}, {&r.qkv, 4 * tokens * (c.Heads + 2*c.KVHeads) * c.HeadDim, -1},
		{&r.q, 2 * tokens * heads, -1}, {&r.ffn, 2 * tokens * ffn, -1}, {&r.logits, 4 * rows * c.Vocab, -1}, {&r.work, 4 * rows * c.Vocab, -1},
		{&r.failed, 4 * (rows + 1), -1}, {&r.drawn, drawnBytes * samples, -1}, {&r.norms, normBytes * samples, -1}, {&r.tops, topBytes * engine.MaxTopLogprobs * samples, 0},
		{&r.prompt.norms, normBytes * tokens, -1}, {&r.prompt.tops, topBytes * engine.MaxTopLogprobs * tokens, -1}, {&r.prompt.picked, 4 * tokens, -1},
		{&r.prompt.kept, 4 * d.cfg.MaxSlots * c.Hidden, -1},
		{&r.widened, max(d.w.widest, 1), -1}, {&r.parts, d.partsRoom(), -1}, {&r.states, d.statesRoom(), -1}, {&d.meta, d.metaRoom(), -1},
	}
}

// partsRoom returns the size of the buffer parts in bytes; at least 1.
func (d *device) partsRoom() int {
	c, most := d.model, 1
	heads := c.Heads * c.HeadDim
	for _, x := range [][2]int{{heads + 2*c.KVHeads*c.HeadDim, c.Hidden}, {c.Hidden, heads}, {2 * kernels.Padded(c.FFN), c.Hidden}, {c.Hidden, c.FFN}, {c.Vocab, c.Hidden}} {
		for rows := 65; rows <= min(max(d.cfg.MaxTokens, d.cfg.MaxRows), kernels.SliceRows); rows++ {
			if slices := kernels.Slices(rows, x[0], kernels.Padded(x[1]), d.multiprocessors); slices > 1 {
				most = max(most, 4*slices*rows*x[0])
			}
		}
	}
	return most
}

// metaRoom returns a size of the buffer meta that nearly all steps fit into. More need the ones that
// bind many long sequences with penalties, or have rows with thousands of biases.
func (d *device) metaRoom() int {
	c, rows, slots, tokens := &d.cfg, d.cfg.MaxRows, d.cfg.MaxSlots, d.cfg.MaxTokens
	splits := d.tokenSplits()
	items := rows*splits + (d.multiprocessors/d.model.KVHeads+1)*splits                          // of decoding rows, and of prompts by split
	return 64<<10 + 5*4*tokens + 12*rows + 8*(tokens+rows) + 16*items + 4*(rows*splits+tokens) + // layOut, attention
		(sampleRowSize+8)*max(tokens, rows) + 24*tokens + // samples, prompts
		2*4*slots + 12*c.PageTokens*d.perSlot + 12*4*rows + 12*len(d.table) + d.maskBytes()*c.maxMasks() // binds, copies, tables, masks
}

// growMeta makes the buffer meta hold at least n bytes. If it is too small, growMeta frees it, which
// waits for the device, destroys all graphs, and allocates n plus half as much.
func (d *device) growMeta(n int) error {
	if n <= d.metaBytes {
		return nil
	}
	var err error
	if d.meta != 0 {
		err = errors.Join(d.dropGraphs(), d.ctx.Free(d.meta))
	}
	d.meta, d.metaBytes = 0, 0
	if err == nil {
		d.meta, err = d.alloc(n + n/2)
	}
	if err == nil {
		d.metaBytes = n + n/2
	}
	return err
}

func (d *device) alloc(n int) (cudrv.Ptr, error) {
	p, err := d.ctx.Alloc(n)
	if err != nil {
		return 0, fmt.Errorf("%d bytes: %w", n, err)
	}
	return p, nil
}

// maskBytes returns the size of one mask on the device.
func (d *device) maskBytes() int { return 8 * ((d.model.Vocab + 63) / 64) }

func (d *device) scale() float32 { return float32(1 / math.Sqrt(float64(d.model.HeadDim))) }
