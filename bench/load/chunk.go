package load

import (
	"fmt"

	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/openai"
)

// readChunk parses the data of an event into c, reusing the memory of the chunk before.
func readChunk(c *openai.Chunk, data []byte) error {
	if err := c.Read(data); err != nil {
		return fmt.Errorf("a chunk that is not of the OpenAI API: %w: %s", err, terminal.Quote(data))
	}
	return nil
}
