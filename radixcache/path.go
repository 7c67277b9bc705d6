package radixcache

// pinPath adds a handle to a node. Only nodes without pins tell their parent.
func (t *tree) pinPath(id NodeID) {
	n := &t.nodes[id]
	if n.held++; n.held > 1 {
		return
	}
	for at := id; at != Root; at = n.parent {
		n = &t.nodes[at]
		if n.pins > 0 {
			n.pins++
			return
		}
		if n.flags&isRoot == 0 {
			if at == id && n.isLeaf() {
				t.unheap(at)
			}
			t.weighAll(n, -1)
			n.pins = 1
			t.weighAll(n, 1)
		} else {
			n.pins = 1
		}
	}
}

// unpinPath takes a handle off a node.
func (t *tree) unpinPath(id NodeID) {
	n := &t.nodes[id]
	if n.held--; n.held > 0 {
		return
	}
	for at := id; at != Root; at = n.parent {
		n = &t.nodes[at]
		if n.pins > 1 {
			n.pins--
			return
		}
		if n.flags&isRoot == 0 {
			t.weighAll(n, -1)
			n.pins = 0
			t.weighAll(n, 1)
			if at == id && n.isLeaf() {
				t.enlist(at)
			} else if t.isLink(n) {
				t.loosen(at)
			}
		} else {
			n.pins = 0
		}
	}
}
