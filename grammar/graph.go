package grammar

import "slices"

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

// onCycle reports for each of n nodes whether the node can reach itself, by Kosaraju's algorithm:
// in the graph with its edges turned around, walks from the nodes in the reverse of a postorder
// reach one strongly connected component after another. edges returns the nodes that a node's
// edges lead to. It is called once per node, because that may be slow.
func onCycle(n int, edges func(int32) []int32) []bool {
	roots := make([]int32, n)
	for i := range roots {
		roots[i] = int32(i)
	}
	cyclic, back := make([]bool, n), make([][]int32, n)
	roots, _ = postorder(n, roots, func(v int32) []int32 {
		to := edges(v)
		for _, w := range to {
			back[w] = append(back[w], v)
			cyclic[v] = cyclic[v] || v == w
		}
		return to
	})
	slices.Reverse(roots)
	order, _ := postorder(n, roots, func(v int32) []int32 { return back[v] })
	seen := make([]bool, n)
	for _, root := range roots {
		for alone := true; !seen[root]; alone = false { // order begins with root's component, root last
			seen[order[0]] = true
			cyclic[order[0]] = cyclic[order[0]] || !alone || order[0] != root
			order = order[1:]
		}
	}
	return cyclic
}
