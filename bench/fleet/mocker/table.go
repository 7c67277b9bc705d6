package mocker

import "github.com/coppice-llm/coppice/kv"

// table finds named blocks by hash: open addressing, at most half full, without
// tombstones. Keys stand in the blocks.
type table struct {
	cells []slot // slot+1, 0: empty. len is a power of two
	shift uint   // 64 - log2(len)
	used  int
}

const minTable = 1 << 6

func newTable() table { return table{cells: make([]slot, minTable), shift: 64 - 6} }

// home is where a hash would stand. Hashes are spread already; the product keeps
// it so where a test numbers its blocks.
func (t *table) home(h kv.BlockHash) int {
	return int(uint64(h) * 0x9e3779b97f4a7c15 >> t.shift)
}

func (t *table) find(blocks []block, h kv.BlockHash) slot {
	mask := len(t.cells) - 1
	for i := t.home(h); ; i = (i + 1) & mask {
		s := t.cells[i] - 1
		if s == none || blocks[s].hash == h {
			return s
		}
	}
}

// put enters a block whose hash is not there.
func (t *table) put(blocks []block, s slot) {
	if 2*(t.used+1) > len(t.cells) {
		old := t.cells
		t.cells = make([]slot, 2*len(old))
		t.shift--
		for _, cell := range old {
			if cell != 0 {
				t.enter(blocks, cell)
			}
		}
	}
	t.used++
	t.enter(blocks, s+1)
}

func (t *table) enter(blocks []block, cell slot) {
	mask := len(t.cells) - 1
	i := t.home(blocks[cell-1].hash)
	for t.cells[i] != 0 {
		i = (i + 1) & mask
	}
	t.cells[i] = cell
}

// cut takes a block out, and moves up those that stand behind it because of it.
func (t *table) cut(blocks []block, s slot) {
	mask := len(t.cells) - 1
	hole := t.home(blocks[s].hash)
	for t.cells[hole] != s+1 {
		hole = (hole + 1) & mask
	}
	for i := (hole + 1) & mask; t.cells[i] != 0; i = (i + 1) & mask {
		home := t.home(blocks[t.cells[i]-1].hash)
		if (i-home)&mask >= (i-hole)&mask {
			t.cells[hole], hole = t.cells[i], i
		}
	}
	t.cells[hole] = 0
	t.used--
}
