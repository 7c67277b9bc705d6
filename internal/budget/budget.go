package budget

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// ErrFull means that there was no room in the budget, in time. ErrNever means that the budget is smaller
// than what one account needs, so waiting does not help.
var (
	ErrFull  = errors.New("budget: the memory for open requests is in use")
	ErrNever = errors.New("budget: a request needs more memory than open requests may have together")
)

// small is the most bytes for which Open does not wait its turn: small requests pass large ones.
const small = 64 << 10

// Large accounts leave one byte of spareShare in the budget to Add and to small accounts.
const spareShare = 4

// Budget bounds the bytes of its accounts. Any goroutine may call its methods.
type Budget struct {
	most int64

	mu      sync.Mutex
	used    int64
	waiting []*waiter // first come, first served
}

// waiter is an account that waits in Open.
type waiter struct {
	bytes   int64
	granted chan struct{} // closed once the bytes are counted in Budget.used
}

// New returns a Budget of the given number of bytes, at least 1.
func New(bytes int64) *Budget { return &Budget{most: max(bytes, 1)} }

// Most returns the size of the budget in bytes.
func (b *Budget) Most() int64 { return b.most }

// Used returns the bytes that its accounts hold.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// large returns the bytes that large accounts may use together.
func (b *Budget) large() int64 { return b.most - b.most/spareShare }

// take adds n bytes if they fit at once. Accounts that wait come first, unless n is small.
func (b *Budget) take(n int64) bool {
	room, first := b.most, true
	if n > small {
		room, first = b.large(), len(b.waiting) == 0
	}
	if !first || b.used+n > room {
		return false
	}
	b.used += n
	return true
}

// enter counts n bytes, or fewer if the budget could never hold them, and returns their number. If
// they don't fit it waits for room until ctx ends, and returns [ErrFull] then.
func (b *Budget) enter(ctx context.Context, n int64) (int64, error) {
	if n > small {
		n = min(n, b.large())
	}
	b.mu.Lock()
	if b.take(n) {
		b.mu.Unlock()
		return n, nil
	}
	w := &waiter{bytes: n, granted: make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	select {
	case <-w.granted:
		return n, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, w); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		b.grant() // the next one may need less
		return 0, ErrFull
	}
	return n, nil // granted just now
}

// add counts n more bytes if they fit, whether or not other accounts wait.
func (b *Budget) add(n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case n > b.most:
		return ErrNever
	case b.used+n > b.most:
		return ErrFull
	}
	b.used += n
	return nil
}

// leave subtracts n bytes and lets waiting accounts in.
func (b *Budget) leave(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used -= n; b.used < 0 {
		panic("budget: more bytes were given back than taken")
	}
	b.grant()
}

// grant lets accounts in, in the order of their arrival, as long as the first one fits.
func (b *Budget) grant() {
	for len(b.waiting) > 0 {
		w, room := b.waiting[0], b.large()
		if w.bytes <= small {
			room = b.most
		}
		if b.used+w.bytes > room {
			return
		}
		b.used += w.bytes
		b.waiting[0] = nil
		b.waiting = b.waiting[1:]
		close(w.granted)
	}
}

// block is the number of bytes by which an account grows at least: an output grows by a few bytes
// at a time, and the budget is locked only for each block.
const block = 4 << 10

// Account holds the bytes of one request. The zero value is closed and holds nothing. One goroutine
// at a time may call its methods.
type Account struct {
	of   *Budget
	held int64 // bytes counted in the budget
	used int64 // bytes in use, at most held
}

// Open opens the account with n bytes of b. It waits until they fit. If ctx ends first it returns
// [ErrFull], and the account stays closed. More bytes than b could ever hold count as all that it
// holds.
func (a *Account) Open(ctx context.Context, b *Budget, n int) error {
	held, err := b.enter(ctx, max(int64(n), 0))
	if err != nil {
		return err
	}
	*a = Account{b, held, held}
	return nil
}

// TryOpen is Open without waiting: it reports whether the bytes fit at once.
func (a *Account) TryOpen(b *Budget, n int) bool {
	held := max(int64(n), 0)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.take(held) {
		return false
	}
	*a = Account{b, held, held}
	return true
}

// Extend opens the account with n bytes for a request that has another account, like Add: it does
// not wait, and returns [ErrFull] or [ErrNever] if the bytes don't fit.
func (a *Account) Extend(b *Budget, n int) error {
	held := max(int64(n), 0)
	if err := b.add(held); err != nil {
		return err
	}
	*a = Account{b, held, held}
	return nil
}

// Add counts n more bytes. It never waits: if they don't fit it returns [ErrFull], or [ErrNever] if they
// could not fit a budget that no other account uses, and counts nothing.
// It must be called before the memory is allocated. A closed account takes any number of bytes.
func (a *Account) Add(n int) error {
	if a.of == nil || n <= 0 {
		return nil
	}
	if a.used+int64(n) > a.of.most {
		return ErrNever
	}
	if a.used+int64(n) > a.held {
		more := max(a.used+int64(n)-a.held, block)
		err := a.of.add(more)
		if err != nil && more == block { // the rest of the budget may be smaller than a block
			more = a.used + int64(n) - a.held
			err = a.of.add(more)
		}
		if err != nil {
			return err
		}
		a.held += more
	}
	a.used += int64(n)
	return nil
}

// Shrink leaves at most n bytes in the account, and gives the rest back.
func (a *Account) Shrink(n int) {
	a.used = min(a.used, max(int64(n), 0))
	a.giveBack()
}

// Close gives all bytes back. It may be called again.
func (a *Account) Close() {
	a.used = 0
	a.giveBack()
	*a = Account{}
}

func (a *Account) giveBack() {
	if rest := a.held - a.used; rest > 0 {
		a.held = a.used
		a.of.leave(rest)
	}
}
