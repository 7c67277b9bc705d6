package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"github.com/coppice-llm/coppice/cmd/internal/hub"
	"github.com/coppice-llm/coppice/internal/terminal"
)

// runCmd is coppice run: chat with the model as an argument, where Ollama has it.
type runCmd struct {
	Which  modelPath `arg:"" name:"model" help:"GGUF file, model directory, a name that coppice models lists, or owner/name[:Q4_K_M] of the hub, downloaded if missing."`
	Prompt []string  `arg:"" optional:"" help:"Message to answer. Without it, a conversation."`
	chatCmd
}

// Run is called by kong.
func (c *runCmd) Run(ctx context.Context, k *kong.Context) error {
	for _, p := range k.Path {
		if p.Flag != nil && !p.Resolved && (p.Flag.Name == "model" || p.Flag.Name == "url") {
			return errors.New("coppice run takes its model as an argument; for --model and --url there is coppice chat")
		}
	}
	c.Model, c.URL = namedModel(string(c.Which)), "" // whatever the environment says
	if len(c.Prompt) > 0 {
		c.lines = strings.NewReader(strings.Join(c.Prompt, " ") + "\n")
	}
	return c.chatCmd.Run(ctx)
}

// namedModel returns the value of --model for a model's name as users of other programs write it: a path if there
// is a file, else a name of the hub, with or without its prefix or address.
func namedModel(text string) modelPath {
	if _, err := os.Stat(expanded(text)); err == nil {
		return modelPath(text)
	}
	for _, prefix := range []string{hub.Prefix, "hf.co/", "huggingface.co/"} {
		text = strings.TrimPrefix(text, prefix)
	}
	if repo, _, _ := strings.Cut(text, ":"); hub.IsRepo(strings.SplitN(repo, "@", 2)[0]) {
		return modelPath(hub.Prefix + text)
	}
	return modelPath(text)
}

// rmCmd is coppice rm.
type rmCmd struct {
	Models []string `arg:"" name:"model" help:"Names that coppice models lists."`
}

// Run is called by kong.
func (c *rmCmd) Run() error {
	h, err := openHub()
	if err != nil {
		return err
	}
	defer h.Close()
	for _, text := range c.Models {
		name, ok := strings.CutPrefix(string(namedModel(text)), hub.Prefix)
		if !ok {
			return fmt.Errorf("%s is not the name of a model in %s; coppice models lists them. To remove a file, use the system's own command", text, h.Dir())
		}
		ref, err := hub.ParseRef(name, h.Endpoint())
		if err != nil {
			return err
		}
		freed, err := h.Remove(ref)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w; coppice list names the models that are there", err)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(terminal.Out(), "removed %v: %s\n", ref, decimalBytes(freed))
	}
	return nil
}

// psCmd is coppice ps.
type psCmd struct {
	askFlags
}

// Run is called by kong.
func (c *psCmd) Run(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	var answer struct {
		Models []struct {
			Name    string `json:"name"`
			Size    int64  `json:"size"`
			Context int    `json:"context_length"`
			Details struct {
				Family  string `json:"family"`
				Weights string `json:"quantization_level"`
			} `json:"details"`
		} `json:"models"`
	}
	if err := client.read(ctx, "/api/ps", &answer); err != nil {
		return err
	}
	t := tabwriter.NewWriter(terminal.Out(), 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tSIZE\tARCHITECTURE\tWEIGHTS\tCONTEXT")
	for _, m := range answer.Models {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", m.Name, orDash(m.Size > 0, decimalBytes(m.Size)), orDash(m.Details.Family != "", m.Details.Family),
			orDash(m.Details.Weights != "", m.Details.Weights), orDash(m.Context > 0, fmt.Sprint(m.Context)))
	}
	return t.Flush()
}

// orDash returns text, or a dash if the value is not known.
func orDash(known bool, text string) string {
	if known {
		return text
	}
	return "-"
}
