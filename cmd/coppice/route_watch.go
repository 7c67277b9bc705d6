package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.uber.org/zap"
)

// watched is a file that is taken again when it is another than before. One that can't be
// changes nothing, and is told of once.
type watched struct {
	what, path string // "": there is none
	has        []byte // what was taken last; nil: not known
	bad        []byte // what could not be
	read       func() ([]byte, error)
	take       func([]byte) (zap.Field, error)
}

// run looks at it every second until ctx ends.
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
				log.Info(w.what+" taken", zap.String("file", w.path), field)
				continue
			}
		}
		if said != err.Error() {
			said = err.Error()
			log.Error(w.what+" not taken", zap.String("file", w.path), zap.Error(err))
		}
	}
}

// readFile is the content of a file of at most so many bytes. What it says of an error leaves
// the path out.
func readFile(path string, most int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(data) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return data, err
}
