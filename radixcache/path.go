package radixcache

// pinPath adds a handle to a node and protects the path to its root. A node counts
// its children with pins, and not all handles below it, so only a node's first pin
// continues at the parent: two requests on leaves below one prompt give the prompt
// two pins, and a third request on one of these leaves costs O(1). SGLang's
// inc_lock_ref counts at each node up to the root, on every call.
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

// unpinPath takes a handle off a node. A node that loses its last pin continues at
// the parent, and becomes evictable: a leaf enters its order again, and a link is
// queued for joining.
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
