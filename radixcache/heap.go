package radixcache

// lateHeap is a binary min-heap of the unpinned nodes that were parked when
// they were pinned: older than all in the line, and mostly few. Each node knows
// its index, so that a walk or a pin takes it out in O(log n).
type lateHeap []lateKey

// lateKey orders nodes as the line does. Nodes with one stamp are one path, as
// one walk stamps one path, so that their depth tells them apart.
type lateKey struct {
	stamp uint64
	id    NodeID
	start int32 // node.start
}

func (k lateKey) less(o lateKey) bool {
	return k.stamp < o.stamp || k.stamp == o.stamp && k.start > o.start
}

func (c *Cache) heapPush(id NodeID) {
	n := &c.nodes[id]
	c.heap = append(c.heap, lateKey{n.stamp, id, n.start})
	c.heapUp(len(c.heap) - 1)
}

func (c *Cache) heapRemove(id NodeID) {
	at, last := int(c.nodes[id].queue), len(c.heap)-1
	moved := c.heap[last]
	c.heap = c.heap[:last]
	c.nodes[id].queue = nowhere
	if at == last {
		return
	}
	c.heap[at] = moved
	c.heapDown(at)
	c.heapUp(int(c.nodes[moved.id].queue))
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

func (c *Cache) heapSet(at int, k lateKey) {
	c.heap[at] = k
	c.nodes[k.id].queue = int32(at)
}
