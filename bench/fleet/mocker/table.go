package mocker

import "github.com/coppice-llm/coppice/kv"

// table finds the named block with a given hash, by open addressing with linear probing. It is
// at most half full and has no tombstones. The hashes are in the blocks, so its methods get the
// slice of all blocks.
type table struct {
	cells []slot // slot+1; 0 means empty. len is a power of two
	shift uint   // 64 - log2(len)
	used  int
}

const minTable = 1 << 6

func newTable() table { return table{cells: make([]slot, minTable), shift: 64 - 6} }

// home returns the cell at which the search for a hash begins. Hashes are evenly spread already;
// the multiplication also spreads the small numbers that tests use as hashes.
func (t *table) home(h kv.BlockHash) int {
	return int(uint64(h) * 0x9e3779b97f4a7c15 >> t.shift)
}

// find returns the index in blocks of the block with this hash, or none.
func (t *table) find(blocks []block, h kv.BlockHash) slot {
	mask := len(t.cells) - 1
	for i := t.home(h); ; i = (i + 1) & mask {
		s := t.cells[i] - 1
		if s == none || blocks[s].hash == h {
			return s
		}
	}
}

// put adds block s, whose hash must not be in the table. It grows the table if needed.
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

// enter puts cell, which is a slot + 1, into the first free cell at or after its home.
func (t *table) enter(blocks []block, cell slot) {
	mask := len(t.cells) - 1
	i := t.home(blocks[cell-1].hash)
	for t.cells[i] != 0 {
		i = (i + 1) & mask
	}
	t.cells[i] = cell
}

// cut removes block s, and moves entries after it back where that is possible, so that find
// still reaches them.
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
