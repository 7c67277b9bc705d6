package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// conversations is a data set of recorded conversations with their text, for the endpoint Chat: of
// agents with tools, for example. A line is a JSON object, a request:
//
//	session_id     name of the session: 1 to 128 printable characters of ASCII. Lines with the same
//	               name are a session's requests in their order. Without it the line is a session
//	messages       the whole prompt as messages of the chat API, sent as they are: with tool_calls,
//	               tool_call_id and parts, whatever the server takes
//	tools          tools of the chat API, optional
//	output_length  tokens of the answer; Config's default if missing
//	delay          pause before the request, in milliseconds
//	timestamp      time of the request, in milliseconds; used for the pause if delay is missing
//
// Other fields are ignored. Recorded answers are in the messages, so the answers of the server are
// in no later prompt. Source: the entries with messages of ai-dynamo/aiperf
// (trace replay), which some public data sets of agents have.
type conversations struct {
	cfg          TraceConfig
	name         string
	sessions     []Session
	requests     int
	most, fewest int // requests of a session
}

// conversationLine is a line of the file.
type conversationLine struct {
	Session   *string           `json:"session_id"`
	Messages  []json.RawMessage `json:"messages"`
	Tools     json.RawMessage   `json:"tools"`
	Mode      string            `json:"message_mode"`
	Output    *int              `json:"output_length"`
	Delay     *float64          `json:"delay"`
	Timestamp *float64          `json:"timestamp"`
}

// readConversations reads conversations. An error names the line and the field.
func readConversations(r io.Reader, cfg TraceConfig) (*conversations, error) {
	c := &conversations{cfg: cfg}
	index := map[string]int{}     // session by name
	last := map[string]*float64{} // its latest timestamp
	err := eachLine(r, maxSession, func(line []byte) error {
		var e conversationLine
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("want a JSON object with session_id, messages and output_length: %w", err)
		}
		if err := e.validate(); err != nil {
			return err
		}
		name := ""
		if e.Session != nil {
			name = *e.Session
		}
		i, known := index[name]
		if !known || name == "" {
			i = len(c.sessions)
			index[name] = i
			c.sessions = append(c.sessions, Session{Name: name})
		}
		t := Turn{User: Segment{Messages: e.Messages}, Whole: true, Tools: e.Tools, OutputTokens: cfg.OutputTokens}
		if e.Output != nil {
			t.OutputTokens = max(1, *e.Output)
		}
		if name != "" && known {
			t.Think = cfg.pause(e.pause(last[name]) / 1000)
		}
		last[name] = e.Timestamp
		c.sessions[i].Turns = append(c.sessions[i].Turns, t)
		c.requests++
		return nil
	})
	for i := range c.sessions {
		n := len(c.sessions[i].Turns)
		if c.most = max(c.most, n); i == 0 || n < c.fewest {
			c.fewest = n
		}
	}
	return c, err
}

// validate returns the first fault of a line.
func (e *conversationLine) validate() error {
	switch {
	case len(e.Messages) == 0:
		return errors.New("messages is missing or empty")
	case e.Mode != "" && e.Mode != "history":
		return fmt.Errorf("message_mode is %q, want history: each line with all messages of its prompt", e.Mode)
	case e.Output != nil && (*e.Output < 0 || *e.Output > MaxLength):
		return fmt.Errorf("output_length is %d, want 0 to %d", *e.Output, MaxLength)
	}
	if string(e.Tools) == "null" {
		e.Tools = nil
	}
	var tools []json.RawMessage
	if e.Tools != nil && json.Unmarshal(e.Tools, &tools) != nil {
		return errors.New("tools is not an array")
	}
	if e.Session != nil {
		if err := checkName("session_id", *e.Session); err != nil {
			return err
		}
	}
	for i, m := range e.Messages {
		var message struct {
			Role *string `json:"role"`
		}
		if err := json.Unmarshal(m, &message); err != nil {
			return fmt.Errorf("messages[%d] is not a message: %w", i, err)
		}
		if message.Role == nil {
			return fmt.Errorf("messages[%d].role is missing", i)
		}
	}
	for _, f := range []struct {
		name  string
		value *float64
	}{{"delay", e.Delay}, {"timestamp", e.Timestamp}} {
		if f.value != nil && !(*f.value >= 0 && *f.value/1000 <= mostMillis/1000) {
			return fmt.Errorf("%s is %v, want 0 to %v ms", f.name, *f.value, mostMillis)
		}
	}
	return nil
}

// mostMillis bounds times: those since 1970 are taken too.
const mostMillis = float64(1 << 45)

// pause returns the time in milliseconds between the request before, at the time last, and e.
func (e *conversationLine) pause(last *float64) float64 {
	switch {
	case e.Delay != nil:
		return *e.Delay
	case e.Timestamp == nil || last == nil:
		return 0
	}
	return max(0, *e.Timestamp-*last)
}

func (c *conversations) Sessions() int { return len(c.sessions) }

func (c *conversations) Requests() (fewest, most int) { return c.fewest, c.most }

// Total returns the number of requests of all sessions.
func (c *conversations) Total() int { return c.requests }

func (c *conversations) Session(i int) Session { return c.sessions[i] }

func (c *conversations) String() string {
	return fmt.Sprintf("conversations: %d requests in %d sessions of %s, speedup %g", c.requests, len(c.sessions), c.name, c.cfg.Speedup)
}
