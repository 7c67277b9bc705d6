package radixcache

// heap is a binary min-heap of nodes. Each node's index in it is written down in
// a table by NodeID, at, so that a walk or a pin takes the node out in O(log n).
type heap struct{ keys []heapKey }

// nowhere is the index of a node that is in no heap.
const nowhere = -1

// heapKey is a copy of what the node stands by; equal keys by age.
type heapKey struct {
	key, stamp uint64
	id         NodeID
}

func (k heapKey) less(o heapKey) bool {
	return k.key < o.key || k.key == o.key && k.stamp < o.stamp
}

// put puts a node in, or where it belongs with a new key.
func (h *heap) put(at []int32, k heapKey) {
	i := int(at[k.id])
	if i == nowhere {
		i = len(h.keys)
		h.keys = append(h.keys, k)
	}
	h.keys[i] = k
	h.down(at, i)
	h.up(at, int(at[k.id]))
}

// take takes a node out if it is in.
func (h *heap) take(at []int32, id NodeID) {
	i := int(at[id])
	if i == nowhere {
		return
	}
	at[id] = nowhere
	last := len(h.keys) - 1
	moved := h.keys[last]
	h.keys = h.keys[:last]
	if i == last {
		return
	}
	h.keys[i] = moved
	h.down(at, i)
	h.up(at, int(at[moved.id]))
}

func (h *heap) up(at []int32, i int) {
	k := h.keys[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !k.less(h.keys[parent]) {
			break
		}
		h.set(at, i, h.keys[parent])
		i = parent
	}
	h.set(at, i, k)
}

func (h *heap) down(at []int32, i int) {
	k := h.keys[i]
	for {
		child := 2*i + 1
		if child >= len(h.keys) {
			break
		}
		if right := child + 1; right < len(h.keys) && h.keys[right].less(h.keys[child]) {
			child = right
		}
		if !h.keys[child].less(k) {
			break
		}
		h.set(at, i, h.keys[child])
		i = child
	}
	h.set(at, i, k)
}

func (h *heap) set(at []int32, i int, k heapKey) {
	h.keys[i] = k
	at[k.id] = int32(i)
}
