package load

import (
	"fmt"

	"github.com/coppice-llm/coppice/openai"
)

// readChunk parses the data of an event into c, reusing the memory of the chunk before.
func readChunk(c *openai.Chunk, data []byte) error {
	if err := c.Read(data); err != nil {
		return fmt.Errorf("a chunk that is not of the OpenAI API: %w: %s", err, clip(data))
	}
	return nil
}

// mostClip is the most bytes of a server's message that an error repeats.
const mostClip = 400

// clip makes a server's message fit for one line: control characters become spaces, and
// text beyond mostClip bytes is cut off.
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
