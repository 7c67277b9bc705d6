package budget

import "context"

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
