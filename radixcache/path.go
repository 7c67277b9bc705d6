package radixcache

// pinPath adds a handle to a node and protects the path to its root. The pins of a node
// count its children with pins, and not all handles below it. So only the first pin of a
// node adds a pin to its parent: two requests on two leaves below one prompt give the
// prompt two pins, and a third request on one of these leaves costs O(1). SGLang's
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
		if at == id && n.isLeaf() {
			t.unheap(at)
		}
		t.weighAll(n, -1)
		n.pins = 1
		t.weighAll(n, 1)
	}
}

// unpinPath removes a handle from a node. When a node loses its last pin, its parent
// loses one too, and the node becomes evictable: if it is the leaf with the handle, it
// enters its order again; a link is queued for joining.
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
		t.weighAll(n, -1)
		n.pins = 0
		t.weighAll(n, 1)
		if at == id && n.isLeaf() {
			t.enlist(at)
		} else if t.isLink(n) {
			t.loosen(at)
		}
	}
}
