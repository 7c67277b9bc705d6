package radixcache

// notInHeap is node.heapAt of nodes that are pinned or not leaves.
const notInHeap = -1

// leafHeap is a binary min-heap of the leaves that may be evicted. Each node
// knows its index, so that a pin takes it out in O(log n).
type leafHeap []leafKey

// leafKey orders leaves: least recent first. Two leaves never have equal
// stamps, as one walk stamps one path; the id makes the order total anyhow.
type leafKey struct {
	stamp uint64
	id    NodeID
}

func (k leafKey) less(o leafKey) bool {
	return k.stamp < o.stamp || k.stamp == o.stamp && k.id < o.id
}

func (c *Cache) heapPush(id NodeID) {
	c.heap = append(c.heap, leafKey{c.nodes[id].stamp, id})
	c.heapUp(len(c.heap) - 1)
}

func (c *Cache) heapRemove(id NodeID) {
	at, last := int(c.nodes[id].heapAt), len(c.heap)-1
	moved := c.heap[last]
	c.heap = c.heap[:last]
	c.nodes[id].heapAt = notInHeap
	if at == last {
		return
	}
	c.heap[at] = moved
	c.heapDown(at)
	c.heapUp(int(c.nodes[moved.id].heapAt))
}

// heapSink restores the order after a node's stamp has risen.
func (c *Cache) heapSink(id NodeID) {
	at := int(c.nodes[id].heapAt)
	c.heap[at].stamp = c.nodes[id].stamp
	c.heapDown(at)
}

func (c *Cache) heapUp(at int) {
	k := c.heap[at]
	for at > 0 {
		parent := (at - 1) / 2
		if !k.less(c.heap[parent]) {
			break
		}
		c.heapSet(at, c.heap[parent])
		at = parent
	}
	c.heapSet(at, k)
}

func (c *Cache) heapDown(at int) {
	k := c.heap[at]
	for {
		child := 2*at + 1
		if child >= len(c.heap) {
			break
		}
		if right := child + 1; right < len(c.heap) && c.heap[right].less(c.heap[child]) {
			child = right
		}
		if !c.heap[child].less(k) {
			break
		}
		c.heapSet(at, c.heap[child])
		at = child
	}
	c.heapSet(at, k)
}

func (c *Cache) heapSet(at int, k leafKey) {
	c.heap[at] = k
	c.nodes[k.id].heapAt = int32(at)
}
