package diskmem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/coppice-llm/coppice/mempool/internal/blockio"
	"github.com/coppice-llm/coppice/mempool/internal/slotted"
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

// resize makes the number of slots at most most, and returns those of the records found whose slots
// are left. Unless records would be lost, or shrink permits that, it leaves all slots and sets m.most
// to their number. It returns the number of records that don't fit into most.
func (m *medium) resize(found []slotted.Placed, shrink bool) (kept []slotted.Placed, beyond int, err error) {
	have := int32(len(m.places))
	if have <= m.most {
		return found, 0, nil
	}
	for i := range found {
		if found[i].Slot < m.most {
			kept = append(kept, found[i])
		}
	}
	if beyond = len(found) - len(kept); beyond > 0 && !shrink {
		m.most = have
		return found, beyond, nil
	}
	if err := m.begin(); err != nil {
		return nil, 0, err
	}
	defer m.end()
	return kept, beyond, m.cut(m.most)
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

// growPause is how long Grow does not try again after a failure: on a full disk, each put would
// otherwise reserve and release room.
const growPause = 10 * time.Second

// Grow implements slotted.Medium. It completes a file that has less than its full number of slots,
// or creates one, and reserves the room on the disk: less than a full file if that does not fit.
func (m *medium) Grow(have int32) (int32, error) {
	if m.refused != nil && m.now().Before(m.retry) {
		return have, m.refused
	}
	n, err := m.grow(have)
	if m.refused = err; err != nil {
		m.refused, m.retry = fmt.Errorf("reserving slots of %d bytes: %w", m.slotBytes, err), m.now().Add(growPause)
	}
	return have + n, m.refused
}

func (m *medium) grow(have int32) (n int32, err error) {
	if err := m.begin(); err != nil {
		return 0, err
	}
	defer m.end()
	i := slices.IndexFunc(m.files, func(f segment) bool { return f.slots < m.perFile })
	if i < 0 {
		return m.create(min(m.perFile, m.most-have))
	}
	f := m.files[i]
	path := m.path(f.number)
	old := int64(f.slots) * int64(m.slotBytes)
	if err := os.Truncate(path, old); err != nil { // what follows the slots may look like a record
		return 0, err
	}
	if n, err = m.reserve(f.File, old, min(m.perFile-f.slots, m.most-have)); err != nil {
		return 0, errors.Join(err, os.Truncate(path, old))
	}
	m.extend(i, n)
	return n, nil
}

// create creates a file of at most n slots under the lowest number that is free.
func (m *medium) create(n int32) (int32, error) {
	numbers, err := m.segments()
	if err != nil {
		return 0, err
	}
	number := 0
	for slices.Contains(numbers, number) {
		number++
	}
	path := m.path(number)
	f, err := blockio.Open(path, os.O_RDWR|os.O_CREATE, m.in)
	if err == nil {
		if n, err = m.reserve(f, 0, n); err != nil {
			f.Close()
		}
	}
	if err != nil {
		os.Remove(path)
		return 0, err
	}
	m.add(segment{f, number, 0}, n)
	return n, nil
}

// reserve extends a file of old bytes by n slots, or by n/2, n/4 and so on if the disk has no room
// for more. It returns the number of slots. It leaves room on the disk for the
// index.
func (m *medium) reserve(f *blockio.File, old int64, n int32) (int32, error) {
	for {
		size := old + int64(n)*int64(m.slotBytes)
		spare := 1<<20 + (int64(len(m.places))+int64(n))*int64(m.format.HeaderBytes())
		err := f.Reserve(size + spare)
		if err == nil {
			return n, os.Truncate(f.Name(), size)
		}
		if n == 1 || !blockio.NoRoom(err) {
			return 0, err
		}
		n /= 2
	}
}
