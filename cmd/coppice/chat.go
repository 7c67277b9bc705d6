package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/internal/terminal"
	"github.com/coppice-llm/coppice/tokenizer/chat"
)

// chatCmd is coppice chat.
type chatCmd struct {
	nodeFlags
	backendFlags
	URL    string `name:"url" placeholder:"URL" help:"Chat with the OpenAI-compatible server at this URL instead of opening a model."`
	Name   string `name:"model-name" placeholder:"NAME" help:"With --url: name of the model. Default: the first of /v1/models."`
	APIKey string `name:"api-key" env:"COPPICE_API_KEY" placeholder:"KEY" help:"With --url: API key, sent as a bearer token."`

	System    string `help:"System message."`
	MaxTokens int    `name:"max-tokens" default:"1024" min:"1" help:"Maximum number of tokens of an answer."`
	samplingFlags

	lines io.Reader `kong:"-"` // what to answer; nil: the standard input
}

// chatCommands returns the part of the help about commands of the conversation.
func chatCommands() string {
	_, text, _ := strings.Cut(helpOf("chat"), "Commands:\n")
	text, _, _ = strings.Cut(text, "\nExamples:")
	return text
}

// talker answers conversations: a model in this process, or a server.
type talker interface {
	// answer streams the answer to messages into say, which one goroutine calls in order.
	// The end of ctx ends the answer without an error.
	answer(ctx context.Context, messages []chat.Message, say func(string)) (turn, error)
	// greeting names the model or server.
	greeting() string
	close() error
}

// turn holds the token counts and times of an answer.
type turn struct {
	prompt, cached, output int // tokens; prompt is 0 if the server does not report it
	first, total           time.Duration
}

// String returns the line printed after an answer.
func (t turn) String() string {
	var parts []string
	if t.prompt > 0 {
		parts = append(parts, fmt.Sprintf("%d prompt tokens, %d of them cached (%.0f %%)", t.prompt, t.cached, 100*float64(t.cached)/float64(t.prompt)))
	}
	parts = append(parts, fmt.Sprintf("%d output tokens", t.output), fmt.Sprintf("first after %.2f s", t.first.Seconds()))
	if d := t.total - t.first; t.output > 1 && d > 0 {
		parts = append(parts, fmt.Sprintf("then %.1f tokens/s", float64(t.output-1)/d.Seconds()))
	}
	return "[" + strings.Join(parts, "; ") + "]"
}

// Run is called by kong.
func (c *chatCmd) Run(ctx context.Context) (err error) {
	if c.URL != "" && c.Model != "" {
		return errors.New("--url and --model exclude each other; with --url, name the model by --model-name")
	}
	var t talker
	if c.URL != "" {
		t, err = c.dial(ctx)
	} else {
		t, err = c.openLocal(ctx)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	in := c.lines
	if in == nil {
		in = os.Stdin
	}
	d := &dialogue{talker: t, system: c.System, out: terminal.Out(), notes: terminal.Err(), signals: signals, lines: readLines(in),
		terminal: c.lines == nil && term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))}
	d.clear()
	return d.run()
}

// readLines sends the lines of r and closes the channel at its end. The goroutine ends
// with r, or with the process.
func readLines(r io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		in := bufio.NewReader(r)
		for {
			line, err := in.ReadString('\n')
			if line != "" {
				lines <- strings.TrimRight(line, "\r\n")
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}

// dialogue is a conversation on a terminal or a pipe. Answers are written to out,
// everything else to notes.
type dialogue struct {
	talker     talker
	system     string
	messages   []chat.Message
	out, notes io.Writer
	terminal   bool
	signals    <-chan os.Signal
	lines      <-chan string
}

func (d *dialogue) clear() {
	d.messages = nil
	if d.system != "" {
		d.messages = []chat.Message{{Role: "system", Content: d.system}}
	}
}

// run takes turns until the input ends.
func (d *dialogue) run() error {
	fmt.Fprintf(d.notes, "coppice: %s; /help lists commands\n", d.talker.greeting())
	for {
		text, err := d.read()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case strings.TrimSpace(text) == "":
		case strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//"):
			if d.command(text) {
				return nil
			}
		default:
			text = strings.TrimPrefix(text, "/") // "//bar" is the message "/bar"
			if err := d.turn(text); err != nil {
				return err
			}
		}
	}
}

// read returns the next message: a line and its continuation lines. The error is io.EOF at
// the end of the input, context.Canceled on a signal.
func (d *dialogue) read() (string, error) {
	prompt, text := "> ", ""
	for {
		if d.terminal {
			fmt.Fprint(d.out, prompt)
		}
		select {
		case <-d.signals:
			return "", d.leave(context.Canceled)
		case line, ok := <-d.lines:
			if !ok && text == "" {
				return "", d.leave(io.EOF)
			}
			more := strings.HasSuffix(line, `\`)
			text += strings.TrimSuffix(line, `\`)
			if !more {
				return text, nil
			}
			text += "\n"
			prompt = ". "
		}
	}
}

// leave ends the line of the prompt and returns why.
func (d *dialogue) leave(why error) error {
	if d.terminal {
		fmt.Fprintln(d.out)
	}
	return why
}

// command runs a command, a line that begins with a slash, and reports whether to leave.
func (d *dialogue) command(line string) (leave bool) {
	name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch rest = strings.TrimSpace(rest); name {
	case "/exit", "/quit", "/bye":
		return true
	case "/help", "/?":
		fmt.Fprint(d.notes, chatCommands())
	case "/clear":
		d.clear()
		fmt.Fprintln(d.notes, "coppice: a new conversation")
	case "/system":
		if rest == "" {
			fmt.Fprintf(d.notes, "coppice: the system message is %q\n", d.system)
			break
		}
		d.system = rest
		d.clear()
		fmt.Fprintln(d.notes, "coppice: a new conversation with that system message")
	default:
		fmt.Fprintf(d.notes, "coppice: there is no command %s; /help lists them\n", name)
	}
	return false
}

// turn sends a message and prints the answer. A refused message is reported and left out
// of the conversation; any other error ends the conversation.
func (d *dialogue) turn(text string) error {
	messages := append(d.messages[:len(d.messages):len(d.messages)], chat.Message{Role: "user", Content: text})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	over, watched := make(chan struct{}), make(chan bool)
	go func() {
		select {
		case s := <-d.signals:
			cancel()
			watched <- s == syscall.SIGTERM
		case <-over:
			watched <- false
		}
	}()
	var said strings.Builder
	took, err := d.talker.answer(ctx, messages, func(piece string) {
		said.WriteString(piece)
		fmt.Fprint(d.out, piece)
	})
	close(over)
	if end := <-watched; end {
		return context.Canceled
	}
	if said.Len() > 0 && !strings.HasSuffix(said.String(), "\n") {
		fmt.Fprintln(d.out)
	}
	if err != nil {
		if errors.Is(err, coppice.ErrClosed) {
			return err
		}
		fmt.Fprintf(d.notes, "coppice: %v\n", err)
		return nil
	}
	if ctx.Err() != nil {
		fmt.Fprintln(d.notes, "coppice: stopped")
	}
	fmt.Fprintln(d.notes, took)
	d.messages = append(messages, chat.Message{Role: "assistant", Content: said.String()})
	return nil
}
