package load

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// FuzzTraces reads any bytes in each format of sessions. What is taken can be made into sessions, whose prompts have the
// recorded lengths.
func FuzzTraces(f *testing.F) {
	for _, name := range []string{"agentx.jsonl", "messages.jsonl"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, uint8(4))
	}
	f.Fuzz(func(t *testing.T, text []byte, scale uint8) {
		cfg, err := TraceConfig{Vocabulary: VocabularyOf(250), Scale: 1 << (scale % 8), InputTokens: 1 << 12}.checked()
		if err != nil {
			t.Fatal(err)
		}
		if d, err := readAgentTrace(bytes.NewReader(text), cfg); err == nil {
			checkRecording(t, d, 1<<12)
		}
		if d, err := readConversations(bytes.NewReader(text), cfg); err == nil {
			checkRecording(t, d, 0)
		}
		if format, err := formatOf(bytes.NewReader(text)); err == nil && format == AnyFormat {
			t.Errorf("%q has no format and no error", text)
		}
	})
}

// checkRecording makes all sessions of d and counts their requests. No prompt has more tokens than most.
func checkRecording(t *testing.T, d Recording, most int) {
	t.Helper()
	total := 0
	fewest, longest := d.Requests()
	for i := range d.Sessions() {
		s := d.Session(i)
		n := s.requests(0)
		if n < fewest || n > longest {
			t.Errorf("session %d has %d requests, want %d to %d", i, n, fewest, longest)
		}
		total += n
		for _, turn := range s.Turns {
			if turn.OutputTokens < 1 || turn.Think < 0 || len(turn.User.Tokens) > most {
				t.Errorf("a turn of %d tokens, after %v, for %d", len(turn.User.Tokens), turn.Think, turn.OutputTokens)
			}
		}
	}
	if total != d.Total() || total == 0 {
		t.Errorf("%d requests in the sessions of %d", total, d.Total())
	}
}
