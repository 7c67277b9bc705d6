package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"go.uber.org/zap"
)

// watched is a file that is applied again when its contents change. Contents that cannot
// be applied change nothing, and are logged once.
type watched struct {
	what, path string // name for the log; path "" means no file
	has        []byte // contents applied last; nil if unknown
	bad        []byte // contents refused last
	read       func() ([]byte, error)
	take       func([]byte) (zap.Field, error) // applies contents; the field describes them in the log
}

// run reads the file every second until ctx ends.
func (w *watched) run(ctx context.Context, log *zap.Logger) {
	if w.path == "" {
		return
	}
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for said := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		data, err := w.read()
		switch {
		case err != nil:
		case w.has != nil && bytes.Equal(data, w.has):
			w.bad, said = nil, ""
			continue
		case w.bad != nil && bytes.Equal(data, w.bad):
			continue
		default:
			var field zap.Field
			w.bad = data
			if field, err = w.take(data); err == nil {
				w.has, w.bad, said = data, nil, ""
				log.Info(w.what+" loaded", zap.String("file", w.path), field)
				continue
			}
		}
		if said != err.Error() {
			said = err.Error()
			log.Error(w.what+" not loaded", zap.String("file", w.path), zap.Error(err))
		}
	}
}

// readFlagFile returns the contents of the file at path, which a flag names; nil if path is empty. A file of
// more bytes than most says is an error.
func readFlagFile(flag, path string, most int) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, unread(flag, path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(data) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, path, err)
	}
	return data, nil
}
