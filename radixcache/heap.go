package radixcache

// The heaps that a node can be in, by the index in Cache.places that tells where.
const (
	byAge = iota
	byRank
	heapKinds
)

// nowhere is the place of a node that is not in a heap.
const nowhere = -1

// heap is a binary min-heap of nodes. Each node's place is written down, so
// that a walk or a pin takes it out in O(log n).
type heap struct {
	keys []heapKey
	kind int
}

// heapKey is a copy of what the node stands by; equal keys by age.
type heapKey struct {
	key, stamp uint64
	id         NodeID
}

func (k heapKey) less(o heapKey) bool {
	return k.key < o.key || k.key == o.key && k.stamp < o.stamp
}

// heapPut puts a node in, or where it belongs with a new key.
func (c *Cache) heapPut(h *heap, k heapKey) {
	at := int(c.places[h.kind][k.id])
	if at == nowhere {
		at = len(h.keys)
		h.keys = append(h.keys, k)
	}
	h.keys[at] = k
	c.heapDown(h, at)
	c.heapUp(h, int(c.places[h.kind][k.id]))
}

// heapTake takes a node out if it is in.
func (c *Cache) heapTake(h *heap, id NodeID) {
	at := int(c.places[h.kind][id])
	if at == nowhere {
		return
	}
	c.places[h.kind][id] = nowhere
	last := len(h.keys) - 1
	moved := h.keys[last]
	h.keys = h.keys[:last]
	if at == last {
		return
	}
	h.keys[at] = moved
	c.heapDown(h, at)
	c.heapUp(h, int(c.places[h.kind][moved.id]))
}

func (c *Cache) heapUp(h *heap, at int) {
	k := h.keys[at]
	for at > 0 {
		parent := (at - 1) / 2
		if !k.less(h.keys[parent]) {
			break
		}
		c.heapSet(h, at, h.keys[parent])
		at = parent
	}
	c.heapSet(h, at, k)
}

func (c *Cache) heapDown(h *heap, at int) {
	k := h.keys[at]
	for {
		child := 2*at + 1
		if child >= len(h.keys) {
			break
		}
		if right := child + 1; right < len(h.keys) && h.keys[right].less(h.keys[child]) {
			child = right
		}
		if !h.keys[child].less(k) {
			break
		}
		c.heapSet(h, at, h.keys[child])
		at = child
	}
	c.heapSet(h, at, k)
}

func (c *Cache) heapSet(h *heap, at int, k heapKey) {
	h.keys[at] = k
	c.places[h.kind][k.id] = int32(at)
}
