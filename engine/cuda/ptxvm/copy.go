package ptxvm

import (
	"encoding/binary"
	"fmt"
	"sort"
)

// CopyIn queues a copy from host memory. The memory is read when the copy runs, so it must not change
// before the copy is done.
func (m *Machine) CopyIn(s Stream, dst uint64, src []byte) error {
	return m.queueCopy(s, "copy from host", func(op opID) error {
		return m.pieces(len(src), func(at, n int) error {
			to, err := m.use("copy from host", op, dst+uint64(at), n, true)
			copy(to, src[at:])
			return err
		}, dst)
	})
}

// CopyOut queues a copy to host memory, which holds the bytes when the copy is done.
func (m *Machine) CopyOut(s Stream, dst []byte, src uint64) error {
	return m.queueCopy(s, "copy to host", func(op opID) error {
		return m.pieces(len(dst), func(at, n int) error {
			from, err := m.use("copy to host", op, src+uint64(at), n, false)
			copy(dst[at:], from)
			return err
		}, src)
	})
}

// CopyWithin queues a copy on the device. Source and destination must not overlap.
func (m *Machine) CopyWithin(s Stream, dst, src uint64, n int) error {
	return m.queueCopy(s, "copy", func(op opID) error {
		return m.pieces(n, func(at, n int) error {
			from, err := m.use("copy", op, src+uint64(at), n, false)
			if err != nil {
				return err
			}
			to, err := m.use("copy", op, dst+uint64(at), n, true)
			copy(to, from)
			return err
		}, src, dst)
	})
}

// Set queues filling n bytes.
func (m *Machine) Set(s Stream, dst uint64, value byte, n int) error {
	return m.queueCopy(s, "fill", func(op opID) error {
		return m.pieces(n, func(at, n int) error {
			to, err := m.use("fill", op, dst+uint64(at), n, true)
			for i := range to {
				to[i] = value
			}
			return err
		}, dst)
	})
}

// Set32 queues filling n words.
func (m *Machine) Set32(s Stream, dst uint64, value uint32, n int) error {
	return m.queueCopy(s, "fill", func(op opID) error {
		return m.pieces(4*n, func(at, n int) error {
			to, err := m.use("fill", op, dst+uint64(at), n, true)
			for i := range len(to) / 4 {
				binary.LittleEndian.PutUint32(to[4*i:], value)
			}
			return err
		}, dst)
	})
}

func (m *Machine) queueCopy(s Stream, name string, run func(opID) error) error {
	if m.fault != nil {
		return m.fault
	}
	m.enqueue(s, name, run)
	return nil
}

// pieces calls do for successive pieces [at, at+n) of bytes, so that no piece that begins at one of the
// addresses crosses the end of a window of a sparse allocation.
func (m *Machine) pieces(bytes int, do func(at, n int) error, addresses ...uint64) error {
	for at := 0; at < bytes; {
		n := bytes - at
		for _, addr := range addresses {
			if a := m.find(addr + uint64(at)); a != nil && m.sparse(a) {
				n = min(n, int(a.base-addr)+len(a.data)-at)
			}
		}
		if err := do(at, n); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// sparse reports whether a is a window of a sparse allocation that reaches beyond it.
func (m *Machine) sparse(a *allocation) bool {
	i := sort.Search(len(m.allocations), func(i int) bool { return m.allocations[i].base > a.base }) - 1
	return m.allocations[i] != a && a.base+uint64(a.size) < m.allocations[i].base+uint64(m.allocations[i].size)
}

// use checks an access of n bytes at addr by operation op, a copy or a fill, as kernels' accesses
// are checked, and records it. It returns the bytes.
func (m *Machine) use(name string, op opID, addr uint64, n int, write bool) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	a := m.find(addr)
	if a == nil || n < 0 || int(addr-a.base)+n > len(a.data) {
		return nil, &Fault{Kind: OutOfBounds, Kernel: name, Detail: fmt.Sprintf("global address %#x, %d bytes", addr, n)}
	}
	at := int(addr - a.base)
	for i := at; i < at+n && !write; i++ {
		if a.written[i/64]>>(i%64)&1 == 0 {
			return nil, &Fault{Kind: Uninitialised, Kernel: name, Detail: fmt.Sprintf("global address %#x, byte %d of its allocation", addr, i)}
		}
	}
	for i := at / 4; i < (at+n+3)/4; i++ {
		s := &a.notes[i]
		other := s.writer
		if write {
			other = m.unordered(a, i, op)
		}
		if other != 0 && other != op && !m.before(other) {
			return nil, &Fault{Kind: StreamRace, Kernel: name, Detail: fmt.Sprintf("global address %#x is used by %s, which nothing orders before", a.base+uint64(4*i), m.opName(other))}
		}
		if write {
			s.writer, s.writerBlock = op, 0
		} else {
			m.noteRead(a, i, op, 0)
		}
	}
	for i := at; i < at+n && write; i++ {
		a.written[i/64] |= 1 << (i % 64)
	}
	return a.data[at : at+n], nil
}
