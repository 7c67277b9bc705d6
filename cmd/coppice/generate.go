package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/grammar"
	"github.com/coppice-llm/coppice/grammar/jsonschema"
	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// generateCmd is coppice generate.
type generateCmd struct {
	nodeFlags
	backendFlags
	samplingFlags
	Prompt    string        `arg:"" help:"Text to continue."`
	MaxTokens int           `name:"max-tokens" default:"64" min:"1" help:"Maximum number of tokens to generate."`
	Samples   int           `default:"1" min:"1" help:"Number of texts to sample; they share the prompt's KV. Each is printed under a heading when it and its predecessors are complete. With --temperature 0 all are equal."`
	Timeout   time.Duration `default:"0s" help:"Stop after this time: 500ms, 10s, 2m. 0: never."`
	Digest    bool          `help:"Print a digest of the bits of all logits of each text, to compare processors, caches and versions."`
	Stats     bool          `help:"Print the scheduler's figures afterwards."`

	Chat   bool   `help:"Send the prompt as a user's message, through the model's chat template."`
	System string `help:"System message of the chat; implies --chat."`

	Stop      []string `sep:"none" placeholder:"TEXT" help:"Stop string: the output ends before this text. Repeat the flag for several."`
	MinTokens int      `name:"min-tokens" default:"0" help:"Ignore stop strings and end tokens before this many tokens."`
	JSON      bool     `help:"Generate a JSON object."`
	Schema    string   `name:"json-schema" type:"existingfile" placeholder:"FILE" help:"Generate JSON that satisfies the JSON schema in this file."`
	Regexp    string   `placeholder:"EXPR" help:"Generate text that matches this regular expression (RE2) from beginning to end."`
}

// Run is called by kong.
func (c *generateCmd) Run(ctx context.Context) (err error) {
	dir, remove, err := c.modelDir(ctx, c.Backend)
	if err != nil {
		return err
	}
	defer remove()
	if c.Model == "" {
		fmt.Fprintf(terminal.Err(), "coppice: no --model given: %s; for a real one: coppice pull %s\n", c.standIn(c.Backend), exampleModel)
	}
	node, err := c.nodeFlags.open(dir, &c.backendFlags, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	req, err := c.request(node)
	if err != nil {
		return err
	}
	if err := c.print(ctx, node.Node, req); err != nil {
		return err
	}
	if c.Stats {
		st, err := node.Stats(ctx)
		if err != nil {
			return err
		}
		fmt.Fprint(terminal.Err(), st.Scheduler)
	}
	return nil
}

// format returns the format that the flags describe.
func (c *generateCmd) format() (f coppice.Format, err error) {
	given := 0
	if c.JSON {
		f, given = coppice.Format{Language: jsonschema.AnyObject}, given+1
	}
	if c.Regexp != "" {
		f, given = coppice.Format{Language: grammar.RE2{}, Text: c.Regexp}, given+1
	}
	if c.Schema != "" {
		schema, err := os.ReadFile(c.Schema)
		if err != nil {
			return f, fmt.Errorf("--json-schema: %w", err)
		}
		f, given = coppice.Format{Language: jsonschema.Schema, Text: string(schema)}, given+1
	}
	if given > 1 {
		return f, fmt.Errorf("%d of --json, --json-schema and --regexp are given, want one", given)
	}
	return f, nil
}

// request returns the request that the flags describe.
func (c *generateCmd) request(m *local.Model) (coppice.Request, error) {
	req := coppice.Request{
		Prompt: c.Prompt, MaxTokens: c.MaxTokens, Samples: c.Samples, Timeout: c.Timeout,
		Sampling: c.over(m.Sampling),
		Digest:   c.Digest, StopStrings: c.Stop, MinTokens: c.MinTokens,
	}
	var err error
	if req.Format, err = c.format(); err != nil {
		return req, err
	}
	if !c.Chat && c.System == "" {
		return req, nil
	}
	if m.NoTemplate != nil {
		return req, m.NoTemplate
	}
	messages := []chat.Message{{Role: "user", Content: c.Prompt}}
	if c.System != "" {
		messages = append([]chat.Message{{Role: "system", Content: c.System}}, messages...)
	}
	return m.ChatRequest(messages, coppice.ChatOptions{Request: req})
}

// print generates and prints a single text as it arrives, several texts in order. A text
// cut off by the time limit is printed too.
func (c *generateCmd) print(ctx context.Context, node *coppice.Node, req coppice.Request) error {
	texts, ended, printed := make(map[int]string), make(map[int]*coppice.Ending), 0
	outputTokens, late := 0, error(nil)
	for piece, err := range node.Generate(ctx, req) {
		e := piece.Ending
		if err != nil && (e == nil || !errors.Is(err, coppice.ErrDeadline)) {
			return err
		}
		late = errors.Join(late, err)
		outputTokens += len(piece.Tokens)
		if c.Samples <= 1 {
			fmt.Fprint(terminal.Out(), piece.Text)
			if e != nil {
				fmt.Fprintln(terminal.Out())
				c.digest(e)
			}
		} else {
			texts[piece.Sample] += piece.Text
			ended[piece.Sample] = e
			for ; ended[printed] != nil; printed++ {
				fmt.Fprintf(terminal.Out(), "--- sample %d of %d\n%s\n", printed+1, c.Samples, texts[printed])
				c.digest(ended[printed])
			}
		}
		if e != nil {
			c.bill(piece.Sample, e)
		}
	}
	if outputTokens == 0 {
		return late
	}
	return nil
}

// digest prints the digest of a text's logits, if it is asked for.
func (c *generateCmd) digest(e *coppice.Ending) {
	if c.Digest {
		fmt.Fprintf(terminal.Out(), "digest %016x\n", e.LogitDigest)
	}
}

// bill prints the token counts and times of the text of a sample on standard error.
func (c *generateCmd) bill(sample int, e *coppice.Ending) {
	which, reason := "", e.Reason.String()
	if c.Samples > 1 {
		which = fmt.Sprintf("sample %d: ", sample+1)
	}
	switch {
	case errors.Is(e.Err, coppice.ErrDeadline):
		reason = "its time limit"
	case e.StopString != "":
		reason = fmt.Sprintf("the stop string %q", e.StopString)
	}
	fmt.Fprintf(terminal.Err(), "coppice: %s%d prompt and %d output tokens, ended by %s, first token after %v\n",
		which, e.PromptTokens, e.OutputTokens, reason, e.FirstToken.Round(1e5))
}
