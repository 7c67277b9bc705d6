package main

import (
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// bar shows a progress bar on a terminal, and nothing elsewhere. advance gets what is done and the
// total, which is known only when the work has begun; finish ends the bar. unit sets how both are
// shown.
func bar(label string, unit progressbar.Option) (advance func(done, total int), finish func()) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return func(int, int) {}, func() {}
	}
	var b *progressbar.ProgressBar
	return func(done, total int) {
			if b == nil {
				b = progressbar.NewOptions(total, unit, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetDescription(label),
					progressbar.OptionSetWidth(40), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
			}
			b.Set(done)
		}, func() {
			if b != nil {
				b.Finish()
			}
		}
}

// bytesBar is a bar of bytes.
func bytesBar(label string) (advance func(done, total int), finish func()) {
	return bar(label, progressbar.OptionShowBytes(true))
}

// progressBar is a bar of total steps. advance marks one step as done, from any goroutine.
func progressBar(total int, label string) (advance, finish func()) {
	set, finish := bar(label, progressbar.OptionShowCount())
	set(0, total)
	return counter(func(done int) { set(done, total) }), finish
}

// counter returns a function that calls set with 1, 2 and so on, from any goroutine. The calls of set
// follow each other: progressbar adds the difference to what it read before, so concurrent calls
// would add too much and end the bar early.
func counter(set func(done int)) func() {
	var mu sync.Mutex
	done := 0
	return func() {
		mu.Lock()
		defer mu.Unlock()
		done++
		set(done)
	}
}

// stepsBar is a bar of steps that ends after the last one.
func stepsBar() func(done, total int) {
	set, finish := bar("steps", progressbar.OptionShowCount())
	return func(done, total int) {
		if set(done, total); done == total {
			finish()
		}
	}
}
