package grammar

// The functions here use explicit stacks instead of recursion: hostile rules may nest deeply.

// postorder returns the nodes of a graph that can be reached from roots. n is the number of
// nodes, and edges returns the nodes that a node's edges lead to. In order, a node follows the
// nodes that its edges lead to; on a cycle that holds for some of the edges only. at is a node on
// a cycle, or -1 if there is no cycle.
func postorder(n int, roots []int32, edges func(int32) []int32) (order []int32, at int32) {
	const open, done = 1, 2
	state := make([]uint8, n)
	type frame struct {
		node int32
		to   []int32 // not seen yet
	}
	var path []frame
	at = -1
	for _, root := range roots {
		if state[root] != 0 {
			continue
		}
		state[root] = open
		path = append(path, frame{root, edges(root)})
		for len(path) > 0 {
			f := &path[len(path)-1]
			if len(f.to) == 0 {
				state[f.node] = done
				order = append(order, f.node)
				path = path[:len(path)-1]
				continue
			}
			next := f.to[0]
			f.to = f.to[1:]
			switch state[next] {
			case 0:
				state[next] = open
				path = append(path, frame{next, edges(next)})
			case open:
				at = next
			}
		}
	}
	return order, at
}

// onCycle reports for each of n nodes whether the node can reach itself, by Tarjan's algorithm.
// edges returns the nodes that a node's edges lead to. It is called once per node, because that
// may be slow.
func onCycle(n int, edges func(int32) []int32) []bool {
	index, low := make([]int32, n), make([]int32, n) // index 0: not seen
	stacked, cyclic := make([]bool, n), make([]bool, n)
	type frame struct {
		node int32
		to   []int32 // not seen yet
	}
	var path []frame
	var stack []int32
	seen := int32(0)
	enter := func(v int32) {
		seen++
		index[v], low[v], stacked[v] = seen, seen, true
		stack = append(stack, v)
		path = append(path, frame{v, edges(v)})
	}
	for root := range int32(n) {
		if index[root] == 0 {
			enter(root)
		}
		for len(path) > 0 {
			f := &path[len(path)-1]
			v := f.node
			if len(f.to) > 0 {
				w := f.to[0]
				f.to = f.to[1:]
				if w == v {
					cyclic[v] = true
				}
				if index[w] == 0 {
					enter(w)
				} else if stacked[w] {
					low[v] = min(low[v], index[w])
				}
				continue
			}
			path = path[:len(path)-1]
			if len(path) > 0 {
				up := path[len(path)-1].node
				low[up] = min(low[up], low[v])
			}
			if low[v] != index[v] {
				continue
			}
			for alone := stack[len(stack)-1] == v; ; {
				w := stack[len(stack)-1]
				stack = stack[:len(stack)-1]
				stacked[w] = false
				cyclic[w] = cyclic[w] || !alone
				if w == v {
					break
				}
			}
		}
	}
	return cyclic
}
