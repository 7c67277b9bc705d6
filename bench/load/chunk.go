package load

import (
	"fmt"

	"github.com/coppice-llm/coppice/openai"
)

// readChunk takes the data of an event apart, in the memory of the one before.
func readChunk(c *openai.Chunk, data []byte) error {
	if err := c.Read(data); err != nil {
		return fmt.Errorf("a chunk that is not of the OpenAI API: %w: %s", err, clip(data))
	}
	return nil
}

// mostClip is how much of a server's words an error repeats, in bytes.
const mostClip = 400

// clip makes a server's words fit for one line.
func clip(b []byte) string {
	dots := ""
	if len(b) > mostClip {
		b, dots = b[:mostClip], "..."
	}
	out := make([]rune, 0, len(b))
	for _, r := range string(b) {
		if r < ' ' || r == 0x7f {
			r = ' '
		}
		out = append(out, r)
	}
	return string(out) + dots
}
