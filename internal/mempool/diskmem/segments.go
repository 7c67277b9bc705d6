package diskmem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/coppice-llm/coppice/internal/mempool/blockio"
)

// segment is an open file of slots.
type segment struct {
	*blockio.File
	number int   // in its name
	slots  int32 // whole slots; what follows them is ignored
}

// place is the place of a slot.
type place struct {
	file int32 // index in medium.files
	at   int32 // number of the slot in the file
}

const segmentName = "slots-%04d"

func (m *medium) path(number int) string {
	return filepath.Join(m.dir, fmt.Sprintf(segmentName, number))
}

// segments returns the numbers of the files of slots in the directory, in ascending order.
func (m *medium) segments() (numbers []int, err error) {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var n int
		if _, err := fmt.Sscanf(e.Name(), "slots-%d", &n); err == nil && e.Name() == fmt.Sprintf(segmentName, n) {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// openFiles opens the files of slots. Slots are self-describing, so a file that is missing or too
// short costs only its own slots. openFiles returns a warning for each file that it leaves alone.
func (m *medium) openFiles() (warnings []string, err error) {
	numbers, err := m.segments()
	if err != nil {
		return nil, err
	}
	for _, number := range numbers {
		f, size, err := openFile(m.path(number))
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("%s is not used: %v", m.path(number), err))
			continue
		}
		slots := int32(min(size/int64(m.slotBytes), 1<<31-1-int64(len(m.places))))
		m.add(segment{f.Inject(m.in), number, 0}, slots)
	}
	return warnings, nil
}

// openFile opens an existing file for reading and writing and returns its size.
func openFile(path string) (*blockio.File, int64, error) {
	if st, err := os.Lstat(path); err != nil {
		return nil, 0, err
	} else if !st.Mode().IsRegular() {
		return nil, 0, errors.New("it is not a regular file")
	}
	f, err := blockio.Open(path, os.O_RDWR, nil)
	if err != nil {
		return nil, 0, err
	}
	size, err := f.Size()
	if err != nil {
		f.Close()
	}
	return f, size, err
}

// add adds a file without slots to the open files, and then its slots.
func (m *medium) add(f segment, slots int32) {
	m.mu.Lock()
	m.files = append(m.files, f)
	m.mu.Unlock()
	m.extend(len(m.files)-1, slots)
}

// extend adds slots to the end of file i of m.files.
func (m *medium) extend(i int, slots int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &m.files[i]
	for range slots {
		m.places = append(m.places, place{int32(i), f.slots})
		f.slots++
	}
}

// cut removes slots from the end until there are at most most. Their records are lost.
func (m *medium) cut(most int32) error {
	left := most
	files := m.files
	m.files, m.places = nil, nil
	for i, f := range files {
		slots := min(f.slots, left)
		var err error
		if slots == 0 && f.slots > 0 {
			err = errors.Join(f.Close(), os.Remove(m.path(f.number)))
		} else {
			if slots < f.slots {
				err = os.Truncate(m.path(f.number), int64(slots)*int64(m.slotBytes))
			}
			f.slots = 0
			m.add(f, slots)
			left -= slots
		}
		if err != nil {
			m.files = append(m.files, files[i+1:]...) // closeFiles closes them
			return err
		}
	}
	return nil
}

// Grow implements slotted.Medium. It completes a file that has less than its full number of slots,
// or creates one, and reserves the room on the disk.
func (m *medium) Grow(have int32) (int32, error) {
	if err := m.begin(); err != nil {
		return have, err
	}
	defer m.end()
	i := slices.IndexFunc(m.files, func(f segment) bool { return f.slots < m.perFile })
	if i < 0 {
		return m.create(have)
	}
	f := &m.files[i]
	path, old := m.path(f.number), int64(f.slots)*int64(m.slotBytes)
	n := min(m.perFile-f.slots, m.most-have)
	err := os.Truncate(path, old) // what follows the slots may look like the beginning of a record
	if err == nil {
		if err = f.Reserve(old + int64(n)*int64(m.slotBytes)); err != nil {
			err = errors.Join(err, os.Truncate(path, old))
		}
	}
	if err != nil {
		return have, fmt.Errorf("reserving %d slots of %d bytes: %w", n, m.slotBytes, err)
	}
	m.extend(i, n)
	return have + n, nil
}

// create creates a file of slots under the lowest number that is free.
func (m *medium) create(have int32) (int32, error) {
	numbers, err := m.segments()
	if err != nil {
		return have, err
	}
	number := 0
	for slices.Contains(numbers, number) {
		number++
	}
	n, path := min(m.perFile, m.most-have), m.path(number)
	f, err := blockio.Open(path, os.O_RDWR|os.O_CREATE, m.in)
	if err == nil {
		if err = f.Reserve(int64(n) * int64(m.slotBytes)); err != nil {
			f.Close()
		}
	}
	if err != nil {
		os.Remove(path)
		return have, fmt.Errorf("reserving %d slots of %d bytes: %w", n, m.slotBytes, err)
	}
	m.add(segment{f, number, 0}, n)
	return have + n, nil
}
