package actors

import (
	"encoding/json"
	"log/slog"
	"sync"
)

// logs keeps the lines of a log.
type logs struct {
	mu    sync.Mutex
	lines []map[string]any
}

// logger returns a logger that writes to l what has at least this level.
func (l *logs) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: level}))
}

// Write takes a line.
func (l *logs) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		return 0, err
	}
	l.lines = append(l.lines, fields)
	return len(line), nil
}

// of returns the lines with this message.
func (l *logs) of(message string) (found []map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if line[slog.MessageKey] == message {
			found = append(found, line)
		}
	}
	return found
}
