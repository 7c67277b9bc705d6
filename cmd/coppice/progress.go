package main

import (
	"os"
	"sync/atomic"
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
	var done atomic.Int64
	return func() { set(int(done.Add(1)), total) }, finish
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
